"""Errors of predicted ratings, or of any other predicted numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import ExactSum
from rec_summary.metrics.quality.clicks import column
from rec_summary.metrics.state import Array, nested, register, take_count, unnested

if TYPE_CHECKING:
    from typing_extensions import Self

_PARTS = ("weights", "errors", "absolute", "squared")
_LARGEST = 1e150  # the square of more has no room in float64


@register
class RatingErrors:
    """Sums of prediction minus rating, absolute and squared; each exact in any order and split.

    Attributes:
        refused: How many examples were refused: NaN, infinite or above 1e150 in size, or with a
            weight that is not above 0 and at most 2**20.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.refused = 0
        self._sums = {part: ExactSum() for part in _PARTS}

    def update(self, predictions: Any, ratings: Any, weights: Any = None) -> None:
        """Counts a batch.

        Args:
            predictions: Real numbers of any shape.
            ratings: As many real numbers.
            weights: As many weights, above 0 and at most 2**20; all 1 if None.

        Raises:
            TypeError: Something does not hold real numbers.
            ValueError: The sizes differ.
        """
        predicted = column("predictions", predictions).astype(np.float64)
        rated = column("ratings", ratings, predicted.size).astype(np.float64)
        usable = (np.abs(predicted) <= _LARGEST) & (np.abs(rated) <= _LARGEST)
        heavy = None
        if weights is not None:
            heavy = column("weights", weights, predicted.size).astype(np.float64)
            usable &= (heavy > 0) & (heavy <= 2.0**20)
        if not usable.all():
            self.refused += int(np.count_nonzero(~usable))
            predicted, rated = predicted[usable], rated[usable]
            heavy = None if heavy is None else heavy[usable]
        errors = predicted - rated
        sizes = np.abs(errors)
        squares = errors * errors
        if heavy is None:
            self._sums["weights"].add_whole(len(errors))
        else:
            self._sums["weights"].add(heavy)
            errors, sizes, squares = errors * heavy, sizes * heavy, squares * heavy
        self._sums["errors"].add(errors)
        self._sums["absolute"].add(sizes)
        self._sums["squared"].add(squares)

    @property
    def weight(self) -> float:
        """The weight of the examples counted."""
        return self._sums["weights"].value()

    def bias(self) -> float:
        """Returns the mean of prediction minus rating; NaN before the first example."""
        return self._mean("errors")

    def mae(self) -> float:
        """Returns the mean absolute error; NaN before the first example."""
        return self._mean("absolute")

    def rmse(self) -> float:
        """Returns the root of the mean squared error; NaN before the first example."""
        return math.sqrt(self._mean("squared"))

    def _mean(self, part: str) -> float:
        weight = self.weight
        return self._sums[part].value() / weight if weight else math.nan

    def merge(self, other: Self) -> None:
        """Adds what `other` has counted."""
        for part, mine in self._sums.items():
            mine.merge(other._sums[part])
        self.refused += other.refused

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`."""
        for each in self._sums.values():
            each.scale(factor)

    def copy(self) -> Self:
        """Returns a state of its own with the same sums."""
        other = type(self)()
        other.merge(self)
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns ``refused`` and the four sums."""
        arrays: dict[str, Array] = {"refused": np.array(self.refused, np.int64)}
        for part, each in self._sums.items():
            arrays.update(nested(part, each.arrays()))
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the state that `arrays` describes.

        Raises:
            ValueError: They describe none.
        """
        state = cls()
        state.refused = take_count(arrays, "refused")
        state._sums = {part: ExactSum.from_arrays(unnested(part, arrays)) for part in _PARTS}
        for part in ("weights", "absolute", "squared"):
            value = state._sums[part].value()
            if value < 0:
                raise ValueError(three_part(f"The sum of {part}", value, "at least 0"))
        return state
