"""A histogram of durations with bins of equal relative width: quantiles that merge exactly.

Its bins are those of DDSketch (Masson, Rim and Lee, 2019), between fixed bounds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.state import register
from rec_summary.metrics.state_io import Arrays, check_same, stored_array, stored_counts

if TYPE_CHECKING:
    from typing_extensions import Self


@register
class LogHistogram:
    """Counts of positive numbers; a mergeable state.

    Quantiles between the bounds have a relative error of at most `accuracy`. Numbers up to the
    lower bound (zero and negative ones, too) count as the smallest number that was seen,
    numbers above the upper bound as the largest.

    Attributes:
        low: The lower bound.
        high: The upper bound.
        accuracy: The relative error.
        counts: The number of values up to `low`, in each bin, and above `high`.
        least: The smallest number seen; infinite when there was none.
        largest: The largest number seen; minus infinity when there was none.

    Raises:
        ValueError: The bounds are no bounds, or the accuracy is none.
    """

    def __init__(self, low: float, high: float, accuracy: float = 0.01) -> None:
        if not 0 < low < high < math.inf:
            raise ValueError(three_part("low, high", (low, high), "0 < low < high, finite"))
        if not 0.0001 <= accuracy <= 0.5:
            raise ValueError(three_part("accuracy", accuracy, "a number from 0.0001 to 0.5"))
        self.low, self.high, self.accuracy = float(low), float(high), float(accuracy)
        # A bin reaches from its value less the accuracy to its value plus the accuracy.
        self._log_step = math.log((1 + accuracy) / (1 - accuracy))
        bins = math.ceil((math.log(high) - math.log(low)) / self._log_step)
        self.counts = np.zeros(bins + 2, np.int64)
        self.least, self.largest = math.inf, -math.inf

    @property
    def count(self) -> int:
        """How many numbers were seen."""
        return int(self.counts.sum())

    def add(self, value: float) -> None:
        """Counts one number; NaN is passed over."""
        if math.isnan(value):
            return
        place = 0
        if value > self.high:
            place = self.counts.size - 1
        elif value > self.low:
            place = 1 + int((math.log(value) - math.log(self.low)) / self._log_step)
            place = min(place, self.counts.size - 2)
        self.counts[place] += 1
        self.least = min(self.least, value)
        self.largest = max(self.largest, value)

    def add_all(self, values: npt.NDArray[Any]) -> None:
        """Counts numbers of any shape; NaN are passed over."""
        found = values.astype(np.float64).ravel()
        found = found[~np.isnan(found)]
        if not found.size:
            return
        inside = np.clip(found, self.low, self.high)
        places = 1 + ((np.log(inside) - math.log(self.low)) / self._log_step).astype(np.intp)
        np.minimum(places, self.counts.size - 2, out=places)
        places[found <= self.low] = 0
        places[found > self.high] = self.counts.size - 1
        self.counts += np.bincount(places, minlength=self.counts.size)
        self.least = min(self.least, float(found.min()))
        self.largest = max(self.largest, float(found.max()))

    def quantile(self, share: float) -> float:
        """Returns the number that a share of all is not above; NaN when there was none.

        Args:
            share: From 0 to 1: 0.5 is the median.
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
        upper = math.log(self.low) + place * self._log_step
        value = math.exp(upper) * (1 - self.accuracy)
        return min(max(value, self.least), self.largest)

    def merge(self, other: Self) -> None:
        """Adds the numbers of another histogram.

        Raises:
            ValueError: It has other settings.
        """
        check_same("low, high, accuracy", self._settings(), other._settings())
        self.counts += other.counts
        self.least = min(self.least, other.least)
        self.largest = max(self.largest, other.largest)

    def copy(self) -> Self:
        """Returns an independent copy."""
        new = type(self)(*self._settings())
        new.merge(self)
        return new

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns settings and state as arrays to be stored."""
        return {
            "settings": np.array(self._settings()),
            "counts": self.counts.copy(),
            "extremes": np.array([self.least, self.largest]),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the histogram of which these are the arrays.

        Raises:
            ValueError: They are none of a histogram.
        """
        new = cls(*stored_array(arrays, "settings", "f", (3,)).tolist())
        new.counts = stored_counts(arrays, "counts", new.counts.shape)
        least, largest = stored_array(arrays, "extremes", "f", (2,)).tolist()
        if not (least <= largest if new.count else (least, largest) == (math.inf, -math.inf)):
            raise ValueError(
                three_part("the stored array 'extremes'", (least, largest), "the extremes")
            )
        new.least, new.largest = least, largest
        return new

    def _settings(self) -> tuple[float, float, float]:
        return self.low, self.high, self.accuracy
