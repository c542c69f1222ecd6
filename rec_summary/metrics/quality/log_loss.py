"""Log loss of click predictions, its ratio to the entropy of the click rate, and calibration."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import ExactSum, Places, units_of, units_of_whole
from rec_summary.metrics.quality.clicks import REASONS, Clicks, Labels, clean
from rec_summary.metrics.state import Floats, Scalable, Stored, register


class LossSums(NamedTuple):
    """Sums over examples, in units of 2**-1074.

    Attributes:
        losses: The sum of the losses.
        weights: The sum of the weights.
        clicks: The sum of the weights of clicks.
        scores: The sum of the weighted scores.
    """

    losses: int
    weights: int
    clicks: int
    scores: int


def loss_sums(
    losses: Floats,
    scores: Floats,
    labels: Labels,
    weights: Floats | None,
    groups: Places | None = None,
    count: int = 1,
) -> list[LossSums]:
    """Returns the sums of each group.

    Args:
        losses: The weighted losses, (examples,), as of `LogLoss.terms`.
        scores: The weighted scores, (examples,).
        labels: Whether there was a click, (examples,).
        weights: The weights, (examples,); None if each is 1.
        groups: The group of each example, below `count`; None if there is only one group.
        count: The number of groups.
    """
    if weights is None:
        if groups is None:
            examples, clicks = [len(labels)], [int(np.count_nonzero(labels))]
        else:
            examples = np.bincount(groups, minlength=count).tolist()
            clicks = np.bincount(groups[labels], minlength=count).tolist()
        heavy = [list(map(units_of_whole, each)) for each in (examples, clicks)]
    else:
        clicked = np.where(labels, weights, 0.0)
        heavy = [units_of(each, groups, count) for each in (weights, clicked)]
    sums = (units_of(each, groups, count) for each in (losses, scores))
    return [LossSums(*found) for found in zip(next(sums), *heavy, next(sums), strict=True)]


@register
class LogLoss(Scalable):
    """Sums of the log loss, the weights, the clicks and the scores; exact in any order and split.

    Attributes:
        epsilon: Scores are clipped to [epsilon, 1 - epsilon], so that one wrong score of 0 or 1
            does not make the loss infinite.
        refused: The number of refused examples by reason, in the order of `clicks.REASONS`.
    """

    _settings = ("epsilon",)
    _sums = ("refused",)
    _parts = ("_losses", "_weights", "_clicks", "_scores")

    def __init__(self, epsilon: float = 1e-7) -> None:
        """Starts empty.

        Args:
            epsilon: Above 0, at most 0.1.

        Raises:
            ValueError: It is anything else.
        """
        if not 0 < epsilon <= 0.1:
            raise ValueError(three_part("epsilon", epsilon, "a number above 0, at most 0.1"))
        self.epsilon = float(epsilon)
        self.refused = np.zeros(len(REASONS), np.int64)
        self._losses, self._weights = ExactSum(), ExactSum()
        self._clicks, self._scores = ExactSum(), ExactSum()

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; `clicks.clean` describes the arguments.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        self.count(clean(scores, labels, weights))

    def count(self, batch: Clicks) -> None:
        """Counts a checked batch."""
        self.add(loss_sums(*self.terms(batch), batch.labels, batch.weights)[0])
        self.refused += batch.refused

    def terms(self, batch: Clicks) -> tuple[Floats, Floats]:
        """Returns the weighted loss and the weighted score of each example."""
        likely = np.where(batch.labels, batch.scores, 1.0 - batch.scores)
        losses: Floats = np.log(np.clip(likely, self.epsilon, 1.0 - self.epsilon))
        np.negative(losses, out=losses)
        if batch.weights is None:
            return losses, batch.scores
        losses *= batch.weights
        return losses, batch.scores * batch.weights

    def add(self, sums: LossSums) -> None:
        """Adds sums over examples, of a state with the same `epsilon`."""
        self._losses.add_units(sums.losses)
        self._weights.add_units(sums.weights)
        self._clicks.add_units(sums.clicks)
        self._scores.add_units(sums.scores)

    @property
    def weight(self) -> float:
        """The weight of the examples counted."""
        return self._weights.value()

    @property
    def clicks(self) -> float:
        """The weight of the clicks counted."""
        return self._clicks.value()

    @property
    def click_rate(self) -> float:
        """The weight of clicks divided by the whole weight; NaN before the first example."""
        weight = self.weight
        return self._clicks.value() / weight if weight else math.nan

    def log_loss(self) -> float:
        """Returns the mean negative log likelihood in nats; NaN before the first example."""
        weight = self.weight
        return self._losses.value() / weight if weight else math.nan

    def normalised_entropy(self) -> float:
        """Returns the log loss divided by the entropy of the click rate.

        A value below 1 is better than predicting the click rate for every example. NaN if all
        labels are the same.
        Source: He et al. 2014, "Practical Lessons from Predicting Clicks on Ads at Facebook".
        """
        rate = self.click_rate
        if not 0 < rate < 1:
            return math.nan
        return self.log_loss() / -(rate * math.log(rate) + (1 - rate) * math.log1p(-rate))

    def calibration(self) -> float:
        """Returns predicted clicks divided by observed clicks; above 1 is over-prediction.

        NaN without clicks. Source: as of `normalised_entropy`.
        """
        clicks = self.clicks
        return self._scores.value() / clicks if clicks else math.nan

    def calibration_free_entropy(self) -> float:
        """Returns the log loss divided by that of predicting the mean score for every example.

        A model that predicts too much everywhere is compared with one that does so as well.
        """
        rate, weight = self.click_rate, self.weight
        mean = self._scores.value() / weight if weight else math.nan
        if not 0 < mean < 1:
            return math.nan
        return self.log_loss() / -(rate * math.log(mean) + (1 - rate) * math.log1p(-mean))

    @classmethod
    def _restored(cls, arrays: Stored) -> LogLoss:
        state = cls(float(arrays.take("epsilon", np.float64)))
        state._take_contents(arrays)
        sums = [getattr(state, name).value() for name in cls._parts]
        losses, weight, clicks, scores = sums
        if min(losses, scores) < 0 or not 0 <= clicks <= weight:
            expected = "losses and scores of at least 0, and no more clicks than weight"
            raise ValueError(three_part("The sums of a log loss", sums, expected))
        return state
