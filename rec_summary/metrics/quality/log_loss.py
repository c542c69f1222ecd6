"""Log loss of click predictions, and the same relative to knowing the click rate only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import ExactSum, Parts, take_apart
from rec_summary.metrics.quality.clicks import REASONS, Clicks, Labels, clean, take_refused
from rec_summary.metrics.state import Array, Floats, nested, register, same_settings, take, unnested

if TYPE_CHECKING:
    from typing_extensions import Self


@register
class LogLoss:
    """Sums of the log loss, the weights and the clicks; each exact in any order and split.

    Attributes:
        epsilon: Scores are clipped to [epsilon, 1 - epsilon], or one wrong certainty would make
            the loss infinite.
        refused: How many examples were refused, by reason in the order of `clicks.REASONS`.
    """

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
        self._losses, self._weights, self._clicks = ExactSum(), ExactSum(), ExactSum()

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; see `clicks.clean` for what the arguments may be and what is refused.

        Raises:
            TypeError: Something does not hold real numbers.
            ValueError: The sizes differ.
        """
        self.count(clean(scores, labels, weights))

    def count(self, batch: Clicks) -> None:
        """Counts a batch that was checked already."""
        if len(batch.scores):
            self.count_losses(self.losses(batch), batch.labels, batch.weights)
        self.refused += batch.refused

    def losses(self, batch: Clicks) -> Parts:
        """Returns the losses of a batch of one example or more, for `count_losses`."""
        likely = np.where(batch.labels, batch.scores, 1.0 - batch.scores)
        losses = np.log(np.clip(likely, self.epsilon, 1.0 - self.epsilon))
        np.negative(losses, out=losses)
        if batch.weights is not None:
            losses *= batch.weights
        return take_apart(losses)

    def count_losses(self, losses: Parts, labels: Labels, weights: Floats | None) -> None:
        """Counts losses of a state that clips alike; all arguments have shape [examples]."""
        if weights is None:
            self._weights.add_whole(len(labels))
            self._clicks.add_whole(int(np.count_nonzero(labels)))
        else:
            self._weights.add(weights)
            self._clicks.add(weights[labels])
        self._losses.add_parts(losses)

    @property
    def weight(self) -> float:
        """The weight of the examples counted."""
        return self._weights.value()

    @property
    def click_rate(self) -> float:
        """The share of clicks in that weight; NaN before the first example."""
        weight = self.weight
        return self._clicks.value() / weight if weight else math.nan

    def log_loss(self) -> float:
        """Returns the mean negative log likelihood in nats; NaN before the first example."""
        weight = self.weight
        return self._losses.value() / weight if weight else math.nan

    def normalised_entropy(self) -> float:
        """Returns the log loss over the entropy of the click rate.

        Below 1 the model knows more than the rate. NaN as long as all labels are the same.
        Source: He et al. 2014, "Practical Lessons from Predicting Clicks on Ads at Facebook".
        """
        rate = self.click_rate
        if not 0 < rate < 1:
            return math.nan
        return self.log_loss() / -(rate * math.log(rate) + (1 - rate) * math.log1p(-rate))

    def merge(self, other: Self) -> None:
        """Adds what `other` has counted.

        Raises:
            ValueError: It clips otherwise.
        """
        same_settings("epsilon", self.epsilon, other.epsilon)
        for mine, theirs in zip(self._sums(), other._sums(), strict=True):
            mine.merge(theirs)
        self.refused += other.refused

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`."""
        for each in self._sums():
            each.scale(factor)

    def copy(self) -> Self:
        """Returns a state of its own with the same sums."""
        other = type(self)(self.epsilon)
        other.merge(self)
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns ``epsilon``, ``refused`` and the three sums."""
        return {
            "epsilon": np.array(self.epsilon),
            "refused": self.refused.copy(),
            **nested("losses", self._losses.arrays()),
            **nested("weights", self._weights.arrays()),
            **nested("clicks", self._clicks.arrays()),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the state that `arrays` describes.

        Raises:
            ValueError: They describe none.
        """
        state = cls(float(take(arrays, "epsilon", np.float64)))
        state.refused = take_refused(arrays)
        state._losses = ExactSum.from_arrays(unnested("losses", arrays))
        state._weights = ExactSum.from_arrays(unnested("weights", arrays))
        state._clicks = ExactSum.from_arrays(unnested("clicks", arrays))
        losses, weight, clicks = (each.value() for each in state._sums())
        if losses < 0 or not 0 <= clicks <= weight:
            raise ValueError(
                three_part(
                    "The sums of a log loss",
                    (losses, weight, clicks),
                    "a loss of at least 0, and no more clicks than weight",
                )
            )
        return state

    def _sums(self) -> tuple[ExactSum, ExactSum, ExactSum]:
        return self._losses, self._weights, self._clicks
