"""Log loss of click predictions, its ratio to the entropy of the click rate, and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array, Flags, Floats
from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import ExactSum, units_of, units_of_whole
from rec_summary.metrics.quality.clicks import REASONS, Clicks, clean
from rec_summary.metrics.state import Scalable, Stored

LEAST_SCORE: Final = 1e-7
"""Scores are clipped to this and 1 minus this, so that a wrong 0 or 1 has a finite loss."""

# The arrays of the squared weights, and those that are equal to them if all weights are 1.
_OF_ONES: Final = {"squares.units": "weights.units", "click_squares.units": "clicks.units"}


def losses_of(scores: Floats, labels: Flags) -> Floats:
    """Returns the log loss of each example, of its score and whether there was a click."""
    # The predicted probability of the label: the score of a click, 1 minus it for a non-click.
    # `where` and `clip` take several times as long: their branches are not predictable.
    losses: Floats = (~labels).astype(np.float64)
    losses -= scores
    np.abs(losses, out=losses)
    np.maximum(losses, LEAST_SCORE, out=losses)
    np.minimum(losses, 1.0 - LEAST_SCORE, out=losses)
    np.log(losses, out=losses)
    np.negative(losses, out=losses)
    return losses


def loss_sums(
    losses: Floats,
    scores: Floats,
    labels: Flags,
    weights: Floats | None,
    starts: Sequence[int] = (0,),
) -> list[tuple[int, ...]]:
    """Returns the sums of each part for `LogLoss.add`, in units of 2**-1074.

    Args:
        losses: The weighted losses, (examples,), as of `LogLoss.terms`.
        scores: The weighted scores, (examples,).
        labels: Whether there was a click, (examples,).
        weights: The weights, (examples,); None if each is 1.
        starts: Where each part begins, the first one at 0; none is empty.
    """
    if weights is None:
        parts = np.split(labels, starts[1:])
        heavy = [units_of_whole(len(part)) for part in parts]
        clicks = [units_of_whole(int(np.count_nonzero(part))) for part in parts]
        weighed = squared = (heavy, clicks)
    else:
        weighed, squared = (
            (units_of(each, starts), units_of(np.where(labels, each, 0.0), starts))
            for each in (weights, weights * weights)
        )
    sums = (units_of(losses, starts), *weighed, units_of(scores, starts), *squared)
    return list(zip(*sums, strict=True))


class LogLoss(Scalable):
    """Sums of the log loss, the weights, the clicks and the scores; exact in any order and split.

    Attributes:
        refused: The number of refused examples by reason, in the order of `clicks.REASONS`.
    """

    _sums = ("refused",)
    _parts = ("_losses", "_weights", "_clicks", "_scores", "_squares", "_click_squares")  # as sums

    def __init__(self) -> None:
        """Starts empty."""
        self.refused = np.zeros(len(REASONS), np.int64)
        self._losses, self._weights = ExactSum(), ExactSum()
        self._clicks, self._scores = ExactSum(), ExactSum()
        self._squares, self._click_squares = ExactSum(), ExactSum()

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
        losses = losses_of(batch.scores, batch.labels)
        if batch.weights is None:
            return losses, batch.scores
        losses *= batch.weights
        return losses, batch.scores * batch.weights

    def add(self, sums: Sequence[int]) -> None:
        """Adds sums over examples, in the order of the parts."""
        for name, units in zip(self._parts, sums, strict=True):
            getattr(self, name).add_units(units)

    @property
    def weight(self) -> float:
        """The weight of the examples counted."""
        return self._weights.value()

    @property
    def clicks(self) -> float:
        """The weight of the clicks counted."""
        return self._clicks.value()

    @property
    def mean_score(self) -> float:
        """The mean score; NaN before the first example."""
        weight = self.weight
        return self._scores.value() / weight if weight else math.nan

    @property
    def squares(self) -> tuple[float, float]:
        """The sums of the squared weights, of non-clicks and of clicks."""
        of_clicks = self._click_squares.value()
        return self._squares.value() - of_clicks, of_clicks

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

        A model with a wrong mean is compared with a constant prediction of the same mean.
        """
        rate, mean = self.click_rate, self.mean_score
        if not 0 < mean < 1:
            return math.nan
        return self.log_loss() / -(rate * math.log(mean) + (1 - rate) * math.log1p(-mean))

    def scale(self, factor: float) -> None:
        """Multiplies the weight of every example by `factor`, above 0, in place."""
        super().scale(factor)
        self._squares.scale(factor)  # a second time, because they are squares
        self._click_squares.scale(factor)

    def arrays(self) -> dict[str, Array]:
        """Returns the sums; of squared weights only if they are not all 1."""
        arrays = super().arrays()
        for squares, of_ones in _OF_ONES.items():
            if np.array_equal(arrays[squares], arrays[of_ones]):
                del arrays[squares]
        return arrays

    @classmethod
    def _restored(cls, arrays: Stored) -> LogLoss:
        for squares, of_ones in _OF_ONES.items():
            if of_ones in arrays:
                arrays.setdefault(squares, arrays[of_ones])
        state = super()._restored(arrays)
        sums = [getattr(state, name).value() for name in cls._parts]
        losses, weight, clicks, scores, squared, click_squares = sums
        least = min(losses, scores, clicks, click_squares)
        if least < 0 or clicks > weight or click_squares > squared:
            expected = "losses and scores of at least 0, and no more clicks than weight"
            raise ValueError(three_part("The sums of a log loss", sums, expected))
        return state
