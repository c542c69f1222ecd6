"""`checkpoints/latest-good`: the newest checkpoint of this training for which the gate has held."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from rec_summary.metrics.slices.gate import Gate, judge
from rec_summary.metrics.slices.sums import SERVED_EXAMPLES
from rec_summary.records.checkpoints.saved import (
    GOOD,
    SAVED,
    link_good,
    list_checkpoints,
    newest_between,
)
from rec_summary.records.failures import Troubles
from rec_summary.values.slice_sums import SlicedSums, joined, parts_of

_KIND: Final = f"recommender metrics: {GOOD}"
_COARSE: Final = 1.0  # seconds, at most, by which the clock of a file system is behind
_PARTS: Final = 8  # of the window: as much more than the window is judged, at most


class _Span(NamedTuple):
    """Some reports that follow one another: where they begin, and what they have counted."""

    step: int
    wall_time: float
    columns: list[SlicedSums]

    @property
    def examples(self) -> float:
        wholes = (each.sums for each in self.columns if not each.column)
        return max(float(sums[0, SERVED_EXAMPLES]) for sums in wholes)


class LatestGood:
    """Judges the last examples, and moves the link. Failures are counted as troubles."""

    def __init__(self, gate: Gate, directory: str, troubles: Troubles) -> None:
        """Starts empty: a link of an earlier process stays until the gate holds again.

        Args:
            gate: The gate.
            directory: The record directory.
            troubles: Receives every failure.
        """
        self._gate, self._directory, self._troubles = gate, directory, troubles
        self._spans: deque[_Span] = deque()
        self._began = time.time() - _COARSE
        self._last = 0, self._began  # the step and the time of the last report

    def add(
        self, step: int, wall_time: float, sums: Sequence[SlicedSums], *, detailed: bool
    ) -> None:
        """Takes the sums of a report, and judges if it has details.

        Args:
            step: Its step.
            wall_time: Its time, in seconds since the epoch.
            sums: What was counted since the report before.
            detailed: Whether it has details.
        """
        with self._troubles.attempt(_KIND):
            self._count(step, wall_time, sums)
            if detailed and self._spans:
                self._move()

    def _count(self, step: int, wall_time: float, sums: Sequence[SlicedSums]) -> None:
        served = [each for each in sums if each.sums[:, SERVED_EXAMPLES].any()]
        columns = [each._replace(cells=None, weights=None) for each in served]
        last, self._last = self._last, (step, wall_time)
        if not any(not each.column for each in columns):
            return
        spans = self._spans
        if spans and spans[-1].examples < self._gate.window / _PARTS:
            both = joined([*spans[-1].columns, *columns])
            spans[-1] = spans[-1]._replace(columns=both)
        else:
            spans.append(_Span(*last, columns))
        while self._examples - spans[0].examples >= self._gate.window:
            spans.popleft()

    @property
    def _examples(self) -> float:
        return sum(each.examples for each in self._spans)

    def _move(self) -> None:
        """Moves the link to the newest checkpoint that was judged, if the gate holds."""
        parts = parts_of(column for span in self._spans for column in span.columns)
        if not judge(self._gate, parts).holds:
            return
        found = list_checkpoints(self._directory, SAVED, follow=True)
        begin, (step, wall_time) = self._spans[0], self._last
        steps, times = (begin.step, step), (begin.wall_time, wall_time)
        newest = newest_between(found, steps, times, [self._began])  # a restart repeats steps
        if newest is not None:
            link_good(newest)
        elif (
            self._examples >= self._gate.window  # before, it is early
            and not any(written >= self._began for written, _ in found)
        ):
            folder = os.path.join(self._directory, SAVED)
            self._troubles.limit(
                f"{_KIND}: no checkpoint",
                f"{GOOD}: the gate holds, but this training has saved no checkpoint in {folder} "
                "so far: use `rec-summary control RUN --checkpoint`, or MindSpore's "
                "ModelCheckpoint(directory=...) with this folder",
            )
