"""How much of the quality is lost if the values of a feature are permuted among examples.

Permutation importance (Breiman 2001, "Random Forests"; Fisher, Rudin and Dominici 2019). One pass
over a batch gives one observation: the quality of the batch, minus that with the permuted column.
Passes of different batches are independent, so their spread gives the standard error.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Floats
from rec_summary.errors import three_part
from rec_summary.metrics.state import State, Stored

LEAST_PASSES: Final = 8
"""The passes of a feature from one value of its curve to the next."""

_SECONDS: Final = 21_600  # of a part of the past
_DAY, _WEEK = 4, 28  # in such parts

_METRICS: Final = 2  # the loss of AUC, and the gain of the loss
_SUMS: Final = 6  # of one metric: passes, w, w², wd, w²d, w²d²


class Estimate(NamedTuple):
    """What a feature is worth.

    Attributes:
        value: The quality that is lost without it, on average; NaN without passes.
        standard_error: Of that; NaN for fewer than two passes.
        passes: The number of passes.
    """

    value: float
    standard_error: float
    passes: int

    def minus(self, other: Estimate) -> Estimate:
        """Returns the difference of two independent estimates."""
        error = math.hypot(self.standard_error, other.standard_error)
        return Estimate(self.value - other.value, error, min(self.passes, other.passes))


class Importance(NamedTuple):
    """The estimates of one feature.

    Attributes:
        area: Of the AUC that is lost.
        loss: Of the log loss that is gained; for ratings, of the squared error.
    """

    area: Estimate
    loss: Estimate

    @property
    def main(self) -> Estimate:
        """That of the AUC, or of the loss if there is no AUC."""
        return self.area if self.area.passes else self.loss


class FeatureImportance(State):
    """The importance of features over time; a mergeable state.

    It has the sums since the last value of the curve, and those of each quarter of a day of the
    last eight days.
    """

    def __init__(self) -> None:
        """Starts empty. Features have a row from their first pass on."""
        self._rows: dict[str, int] = {}
        self._fresh: Floats = np.zeros((0, _METRICS, _SUMS))
        self._past: dict[int, Floats] = {}  # by the number of the quarter, (rows, ...) or fewer

    def add(self, feature: str, time: float, area: float, loss: float, weight: float = 1.0) -> None:
        """Adds a pass.

        Args:
            feature: The feature that was permuted.
            time: When, in seconds since 1970.
            area: The AUC that was lost; NaN if it is not known.
            loss: The loss that was gained; NaN if it is not known.
            weight: How much the pass counts, such as its clicks: the spread of an AUC falls with
                their number.
        """
        row = self._rows.setdefault(feature, len(self._rows))
        observed = np.zeros((_METRICS, _SUMS))
        for metric, delta in enumerate((area, loss)):
            if math.isfinite(delta) and weight > 0:
                moments = 1, weight, weight**2, weight * delta
                observed[metric] = *moments, weight**2 * delta, (weight * delta) ** 2
        self._fresh = _grown(self._fresh, len(self._rows))
        self._fresh[row] += observed
        quarter = int(time // _SECONDS)
        past = _grown(self._past.get(quarter, np.zeros((0, _METRICS, _SUMS))), len(self._rows))
        past[row] += observed
        self._past[quarter] = past
        self._forget()

    def end_interval(self) -> FeatureImportance:
        """Returns a copy; features that have a new value begin again."""
        ended = self.copy()
        self._fresh[(self._fresh[..., 0] >= LEAST_PASSES).any(axis=1)] = 0.0
        return ended

    def fresh(self) -> dict[str, Importance]:
        """Returns the features with a new value, and this value."""
        estimates = self._estimates(self._fresh)
        return {name: one for name, one in estimates.items() if one.main.passes >= LEAST_PASSES}

    def now(self) -> dict[str, Importance]:
        """Returns the importance over the last day."""
        return self._estimates(self._between(_DAY, 0))

    def a_week_ago(self) -> dict[str, Importance]:
        """Returns the importance over the same day a week before."""
        return self._estimates(self._between(_WEEK + _DAY, _WEEK))

    def arrays(self) -> dict[str, Array]:
        """Returns the names of the features, and their sums."""
        quarters = sorted(self._past)
        size = len(self._rows)
        past = [_grown(self._past[quarter], size) for quarter in quarters]
        return {
            "names": np.array([*self._rows], np.str_),
            "fresh": _grown(self._fresh, size).copy(),
            "quarters": np.array(quarters, np.int64),
            "past": np.array(past).reshape(len(quarters), size, _METRICS, _SUMS),
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> FeatureImportance:
        new = cls()
        names = arrays.take("names", "U", (None,)).tolist()
        new._rows = {name: row for row, name in enumerate(names)}
        if len(new._rows) != len(names):
            raise ValueError(three_part("The names of features", names, "different names"))
        shape = (len(names), _METRICS, _SUMS)
        new._fresh = arrays.take("fresh", np.float64, shape)
        quarters = arrays.take("quarters", np.int64, (None,)).tolist()
        past = arrays.take("past", np.float64, (len(quarters), *shape))
        new._past = dict(zip(quarters, past, strict=True))
        return new

    def _add(self, other: FeatureImportance) -> None:
        rows = [self._rows.setdefault(name, len(self._rows)) for name in other._rows]
        size = len(self._rows)
        self._fresh = _grown(self._fresh, size)
        self._fresh[rows] += _grown(other._fresh, len(rows))
        for quarter, sums in other._past.items():
            mine = _grown(self._past.get(quarter, np.zeros((0, _METRICS, _SUMS))), size)
            mine[rows] += _grown(sums, len(rows))
            self._past[quarter] = mine
        self._forget()

    def _forget(self) -> None:
        oldest = max(self._past, default=0) - _WEEK - _DAY
        for quarter in [quarter for quarter in self._past if quarter < oldest]:
            del self._past[quarter]

    def _between(self, first: int, last: int) -> Floats:
        """Returns the sums of the quarters of some ages, both inclusive."""
        newest = max(self._past, default=0)
        total = np.zeros((len(self._rows), _METRICS, _SUMS))
        for quarter, sums in self._past.items():
            if last <= newest - quarter <= first:
                total += _grown(sums, len(self._rows))
        return total

    def _estimates(self, sums: Floats) -> dict[str, Importance]:
        rows = _grown(sums, len(self._rows))
        return {name: Importance(*map(_estimate, rows[row])) for name, row in self._rows.items()}


def _grown(sums: Floats, rows: int) -> Floats:
    """Returns sums with room for so many features."""
    if len(sums) == rows:
        return sums
    return np.concatenate([sums, np.zeros((rows - len(sums), *sums.shape[1:]))])


def _estimate(sums: Floats) -> Estimate:
    passes, weight, squares, deltas, square_deltas, delta_squares = sums.tolist()
    if not weight:
        return Estimate(math.nan, math.nan, 0)
    mean = deltas / weight
    spread = max(delta_squares - 2 * mean * square_deltas + mean**2 * squares, 0.0)
    error = math.nan
    if passes > 1:
        error = math.sqrt(spread * passes / (passes - 1)) / weight
    return Estimate(mean, error, int(passes))
