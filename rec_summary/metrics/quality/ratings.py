"""Errors of predicted ratings, or of any other predicted numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import ExactSum, units_of_whole
from rec_summary.metrics.quality.clicks import column
from rec_summary.metrics.state import MOST_WEIGHT, Scalable, Stored

_LARGEST = 1e150  # the square of a larger number overflows float64


class RatingErrors(Scalable):
    """Sums of prediction minus rating, absolute and squared; each exact in any order and split.

    Attributes:
        refused: The number of refused examples: NaN, infinite or above 1e150 in size, or with a
            weight that is below 0 or above 2**20.
    """

    _sums = ("refused",)
    _parts = ("_weights", "_errors", "_absolute", "_squared")

    def __init__(self) -> None:
        """Starts empty."""
        self.refused = 0
        self._weights, self._errors = ExactSum(), ExactSum()
        self._absolute, self._squared = ExactSum(), ExactSum()

    def update(self, predictions: Any, ratings: Any, weights: Any = None) -> None:
        """Counts a batch.

        Args:
            predictions: Real numbers of any shape.
            ratings: As many real numbers.
            weights: As many weights, 0 to 2**20; all 1 if None.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        predicted = column("predictions", predictions).astype(np.float64)
        rated = column("ratings", ratings, predicted.size).astype(np.float64)
        usable = (np.abs(predicted) <= _LARGEST) & (np.abs(rated) <= _LARGEST)
        if weights is not None:
            weights = column("weights", weights, predicted.size).astype(np.float64)
            usable &= (weights >= 0) & (weights <= MOST_WEIGHT)
        if not usable.all():
            self.refused += int(np.count_nonzero(~usable))
            predicted, rated = predicted[usable], rated[usable]
            weights = None if weights is None else weights[usable]
        with np.errstate(under="ignore"):
            errors = predicted - rated
            sizes, squares = np.abs(errors), errors * errors
            if weights is None:
                self._weights.add_units(units_of_whole(len(errors)))
            else:
                self._weights.add(weights)
                errors, sizes, squares = errors * weights, sizes * weights, squares * weights
        self._errors.add(errors)
        self._absolute.add(sizes)
        self._squared.add(squares)

    @property
    def weight(self) -> float:
        """The weight of the examples counted."""
        return self._weights.value()

    def bias(self) -> float:
        """Returns the mean of prediction minus rating; NaN before the first example."""
        return self._mean(self._errors)

    def mae(self) -> float:
        """Returns the mean absolute error; NaN before the first example."""
        return self._mean(self._absolute)

    def rmse(self) -> float:
        """Returns the root of the mean squared error; NaN before the first example."""
        return math.sqrt(self._mean(self._squared))

    @classmethod
    def _restored(cls, arrays: Stored) -> RatingErrors:
        state = super()._restored(arrays)
        for name in ("_weights", "_absolute", "_squared"):
            value = getattr(state, name).value()
            if value < 0:
                raise ValueError(three_part(f"The sum of {name[1:]}", value, "at least 0"))
        return state

    def _mean(self, total: ExactSum) -> float:
        weight = self.weight
        return total.value() / weight if weight else math.nan
