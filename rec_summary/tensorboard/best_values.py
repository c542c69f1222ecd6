"""The best values of metrics, for HParams, which shows the last value of a series only.

So what is best has a series of its own: each value that was better than all before. Its last value
is the best one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from operator import itemgetter
from typing import Final

import numpy as np
from msgspec import Struct

from rec_summary.series.batch import SCALAR, Batch, Columns, by_tag, concatenated
from rec_summary.series.limits import Count, Seconds, Step
from rec_summary.series.lineage import costs_of
from rec_summary.series.step_buffer import Finished, Restart
from rec_summary.tensorboard.first_screen import has_best

_LONGEST: Final = 1024  # points that are remembered for a restart

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

    def extend(self, metric: str, columns: Columns) -> None:
        """Takes values of the metric, of which there is at least one."""
        self.forget(int(columns.steps[0]))  # of a step that comes again the later value counts
        least = costs_of(metric, np.array([each[2] for each in self.points[-1:]] or [np.nan]))
        costs = costs_of(metric, columns.values)
        before = np.minimum.accumulate(np.append(least, costs))[:-1]
        rows = np.flatnonzero(costs < before)
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
        """Forgets what is of a step or of later ones."""
        count = bisect.bisect_left(self.points, step, key=itemgetter(0))
        if count < len(self.points):
            del self.points[count:]
            if self.shown > count:
                self.shown, self.superseded = count, True

    def new(self) -> list[BestPoint]:
        """Returns what is to be shown now, and was not before.

        What is not in force any more may be the last value that is shown. Then the last one in
        force is shown again: where the steps of a series go back, it supersedes itself.
        """
        found = self.points[max(self.shown - self.superseded, 0) :]
        if found:
            self.shown, self.superseded = len(self.points), False
        return found


class BestValues:
    """The best values of the metrics of a TensorBoard run.

    Attributes:
        state: The series of each metric, by its recorded tag.
    """

    def __init__(self, state: dict[str, BestSeries] | None, *, evaluation: bool) -> None:
        """Begins, or continues with the state of an earlier export.

        Args:
            state: The series so far; kept up to date. None if there were values before that are
                not known: then nothing is the best.
            evaluation: Whether all scalars are metrics of evaluations.
        """
        self.state = {} if state is None else state
        self._is_known = state is not None
        self._group = "/eval" if evaluation else ""
        self._is_metric: dict[str, bool] = {}

    def take(self, finished: Finished) -> None:
        """Takes values, or forgets those that a restart supersedes."""
        if isinstance(finished, Batch):
            self._extend(finished)
            return
        assert isinstance(finished, Restart)
        for series in self.state.values():
            series.forget(finished.step)
        for record in finished.again:
            self._extend(record)

    def new(self) -> Iterator[tuple[str, list[BestPoint]]]:
        """Yields metrics, by their recorded tags, with what was not yielded before."""
        for tag, series in self.state.items():
            points = series.new()
            if points:
                yield tag, points

    def _extend(self, batch: Batch) -> None:
        wanted = {each for each in batch.series() if each[0] == SCALAR and self._wants(each[1])}
        if wanted:
            for tag, columns in by_tag(concatenated([batch.only(wanted).scalars()])):
                self.state.setdefault(tag, BestSeries()).extend(tag, columns)

    def _wants(self, tag: str) -> bool:
        known = self._is_metric.get(tag)
        if known is None:
            known = self._is_metric[tag] = self._is_known and has_best(tag, self._group)
        return known
