"""The best value of a metric so far, and its step; values come in parts.

A page that shows the last value of a series only, as HParams does, shows the best one if it has
each value that was better than all before.
"""

from __future__ import annotations

import bisect
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rec_summary.metrics.directions import costs_of
from rec_summary.series.batch import Columns
from rec_summary.series.limits import Count, Seconds, Step

_LONGEST: Final = 1024  # points that are remembered for a restart


def best_place(metric: str, values: npt.ArrayLike, direction: str = "") -> int | None:
    """Returns where the best finite value of a metric is; None if there is none. See `costs_of`."""
    costs = costs_of(metric, np.asarray(values, np.float64), direction)
    return int(costs.argmin()) if np.isfinite(costs).any() else None


BestPoint = tuple[Step, Seconds, float]
"""A step, its wall time, and the value; finite numbers."""


class BestSeries(Struct):
    """The values of a metric that were the best ones so far.

    Attributes:
        points: These values, each better than the one before. Of a thousand and more, older ones
            are thinned out.
        shown: How many of them, from the first on, are shown already.
        superseded: Whether others are shown that are not in force any more.
    """

    points: list[BestPoint] = []
    shown: Count = 0
    superseded: bool = False

    def extend(self, metric: str, columns: Columns, direction: str = "") -> None:
        """Takes values of the metric, of which there is at least one; see `costs_of`."""
        self.forget(int(columns.steps[0]))  # the later value of a step counts
        best = self.points[-1][2] if self.points else np.nan
        costs = costs_of(metric, np.concatenate(([best], columns.values)), direction)
        rows = (costs[1:] < np.minimum.accumulate(costs)[:-1]).nonzero()[0]
        self.points += zip(
            columns.steps[rows].tolist(),
            columns.wall_times[rows].tolist(),
            columns.values[rows].tolist(),
            strict=True,
        )
        while len(self.points) > _LONGEST:
            newest = len(self.points) - _LONGEST // 2
            self.shown -= min(self.shown, newest) // 2
            self.points[:newest] = self.points[:newest:2]

    def forget(self, step: int) -> None:
        """Forgets the values of a step and of later ones."""
        count = bisect.bisect_left(self.points, step, key=itemgetter(0))
        if count < len(self.points):
            del self.points[count:]
            if self.shown > count:
                self.shown, self.superseded = count, True

    def new(self) -> list[BestPoint]:
        """Returns the best values that were not returned before.

        The last value that is shown may be superseded. Then the last one in force is returned
        again: where the steps of a series go back, it supersedes itself.
        """
        points = self.points[max(self.shown - self.superseded, 0) :]
        if points:
            self.shown, self.superseded = len(self.points), False
        return points
