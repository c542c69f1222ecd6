"""A histogram of durations with bins of equal relative width; its quantiles merge exactly.

The bins are those of DDSketch (Masson, Rim and Lee, 2019), between fixed bounds.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.errors import three_part
from rec_summary.metrics.state import State, Stored
from rec_summary.metrics.tags import quantile_tags

_QUANTILES: Final = (0.5, 0.9, 0.99)
_ACCURACY: Final = 0.01
# A bin covers the numbers within the accuracy of its value.
_LOG_STEP: Final = math.log((1 + _ACCURACY) / (1 - _ACCURACY))


class LogHistogram(State):
    """Counts of positive numbers; a mergeable state.

    Quantiles between the bounds have a relative error of at most 1 %. Numbers up to the lower
    bound, zero and negative ones included, count as the smallest number seen. Numbers above the
    upper bound count as the largest.

    Attributes:
        low: The lower bound.
        high: The upper bound.
        counts: The number of values up to `low`, in each bin, and above `high`.
        least: The smallest number seen; infinite when there was none.
        largest: The largest number seen; minus infinity when there was none.

    Raises:
        ValueError: A bound is out of range.
    """

    _settings = ("low", "high")
    _sums = ("counts",)

    def __init__(self, low: float, high: float) -> None:
        if not 0 < low < high < math.inf:
            raise ValueError(three_part("low, high", (low, high), "0 < low < high, finite"))
        self.low, self.high = float(low), float(high)
        bins = math.ceil((math.log(high) - math.log(low)) / _LOG_STEP)
        self.counts = np.zeros(bins + 2, np.int64)
        self.least, self.largest = math.inf, -math.inf

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    def add_all(self, values: Array, times: Array | None = None) -> None:
        """Counts numbers of any shape; NaN is skipped.

        Args:
            values: The numbers.
            times: How often each number counts, integers of the same shape; once by default.
        """
        numbers = values.astype(np.float64).ravel()
        present = ~np.isnan(numbers)
        numbers = numbers[present]
        if not numbers.size:
            return
        inside = np.clip(numbers, self.low, self.high)
        places = 1 + ((np.log(inside) - math.log(self.low)) / _LOG_STEP).astype(np.intp)
        np.minimum(places, self.counts.size - 2, out=places)
        places[numbers <= self.low] = 0
        places[numbers > self.high] = self.counts.size - 1
        if times is None:
            self.counts += np.bincount(places, minlength=self.counts.size)
        else:
            np.add.at(self.counts, places, times.ravel()[present])
        self.least = min(self.least, float(numbers.min()))
        self.largest = max(self.largest, float(numbers.max()))

    def quantile(self, share: float) -> float:
        """Returns a quantile; NaN if the histogram is empty.

        Args:
            share: The share of all numbers that are not above it, 0 to 1; 0.5 is the median.
        """
        total = self.count
        if not total:
            return math.nan
        rank = min(int(share * total), total - 1)
        place = int(np.searchsorted(np.cumsum(self.counts), rank, side="right"))
        if place == 0:
            return self.least
        if place == self.counts.size - 1:
            return self.largest
        upper = math.log(self.low) + place * _LOG_STEP
        value = math.exp(upper) * (1 - _ACCURACY)
        return min(max(value, self.least), self.largest)

    def report(self, name: str) -> dict[str, float]:
        """Returns some quantiles by tag, as `quantile_tags` of this name."""
        return quantile_tags(name, _QUANTILES, map(self.quantile, _QUANTILES))

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, the counts and the extremes."""
        return {**super().arrays(), "extremes": np.array([self.least, self.largest])}

    @classmethod
    def _restored(cls, arrays: Stored) -> LogHistogram:
        new = super()._restored(arrays)
        least, largest = arrays.take("extremes", np.float64, (2,), finite=False).tolist()
        if not (least <= largest if new.count else (least, largest) == (math.inf, -math.inf)):
            what = "The array 'extremes' of a state"
            raise ValueError(three_part(what, (least, largest), "the extremes"))
        new.least, new.largest = least, largest
        return new

    def _add(self, other: LogHistogram) -> None:
        super()._add(other)
        self.least = min(self.least, other.least)
        self.largest = max(self.largest, other.largest)
