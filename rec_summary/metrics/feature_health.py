"""What is wrong with the values of a feature: missing, default and out of range."""

from __future__ import annotations

from typing import Any

import numpy as np

from rec_summary.arrays import Array, Integers
from rec_summary.metrics.hashing import hashed
from rec_summary.metrics.state import State


class FeatureCounts(State):
    """Numbers of values of a feature; a mergeable state.

    Attributes:
        values: The number of all values.
        missing: How many are NaN, or empty strings.
        default: How many are the default value.
        out_of_range: How many are below the least or above the largest value.
    """

    _sums = ("values", "missing", "default", "out_of_range")

    def __init__(self) -> None:
        """Starts empty."""
        self.values = self.missing = self.default = self.out_of_range = 0

    def add(self, values: Array, default: Any, low: float, high: float) -> None:
        """Counts values.

        Args:
            values: Numbers or str, not as objects, of any shape.
            default: The default value; None if there is none.
            low: The least value in range; strings have no range.
            high: The largest one.
        """
        self.values += values.size
        if values.dtype.kind in "iubf":
            self.out_of_range += int(np.count_nonzero((values < low) | (values > high)))
        if values.dtype.kind == "f":
            self.missing += int(np.count_nonzero(np.isnan(values)))
        elif values.dtype.kind == "U":
            self.missing += int(np.count_nonzero(values == ""))
        if default is not None:
            self.default += int(np.count_nonzero(values == default))


def as_ids(values: Array) -> Integers:
    """Returns an integer for each value but NaN, the same for equal values; of shape (n,)."""
    flat = hashed(values.reshape(-1))
    if flat.dtype.kind == "f":
        numbers = flat[~np.isnan(flat)].astype(np.float64) + 0.0  # -0.0 becomes 0.0
        flat = numbers.view(np.int64)
    ids: Integers = flat.astype(np.int64)
    return ids
