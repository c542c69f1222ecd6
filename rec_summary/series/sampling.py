"""Fewer points of long series, without losing a peak.

Every series is cut into stretches of equally many points. Of scalars, the least and the
greatest of each stretch are kept (NaN and infinities count as greatest: they are what one
looks for); of other values, which have no order, the last. When there are too many
stretches, neighbours are joined, so memory is bounded by the points that are kept.

This is min/max decimation, as plotting programs do it: at the resolution of a screen, the
curve looks the same. Source: Jugel et al., "M4: A Visualization-Oriented Time Series Data
Aggregation", VLDB 2014, of which this keeps the two that matter to the eye, and the first
and last point of a series as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rec_summary.series.batch import SCALAR, Batch, Recorded
from rec_summary.series.step_buffer import Restart


class Kept(NamedTuple):
    """A value that is kept, with its place among all values of the run."""

    serial: int
    step: int
    recorded: Recorded


class Thinner:
    """Takes the values of one run, and gives back at most so many of each series."""

    def __init__(self, max_points: int) -> None:
        """Begins empty.

        Args:
            max_points: How many points of a series are kept at most; at least 10.
        """
        self._max_points = max_points
        self._series: dict[tuple[str, str], _Series] = {}
        self._serial = 0

    def add(self, batch: Batch) -> None:
        """Takes values of finished steps."""
        for record in batch.records():
            for recorded in record.values:
                self._serial += 1
                key = recorded[:2]
                series = self._series.get(key)
                if series is None:
                    pick = _extremes if recorded.kind == SCALAR else _last
                    series = self._series[key] = _Series(self._max_points, pick)
                series.add(Kept(self._serial, record.step, recorded))

    def restart(self, restart: Restart) -> None:
        """Forgets what is of this step or a later one: training went on from there."""
        for series in self._series.values():
            series.forget(restart.step)

    def drain(self) -> Iterator[Batch]:
        """Yields the values that are kept, in the order in which they came."""
        kept = [point for series in self._series.values() for point in series.points()]
        self._series.clear()
        for point in sorted(kept, key=lambda point: point.serial):
            yield point.recorded.origin.of([point.recorded])


class _Series:
    """The points of one series."""

    def __init__(self, max_points: int, pick: Callable[[list[Kept]], list[Kept]]) -> None:
        self._pick = pick
        self._most = (max_points - 2) // (2 if pick is _extremes else 1)
        self._span = 1  # how many points make a stretch
        self._stretches: list[list[Kept]] = []
        self._open: list[Kept] = []  # the stretch at hand: what is kept of it
        self._count = 0  # how many points it has seen
        self._first: Kept | None = None
        self._latest: Kept | None = None

    def add(self, point: Kept) -> None:
        if self._first is None:
            self._first = point
        self._latest = point
        self._open = self._pick([*self._open, point])
        self._count += 1
        if self._count < self._span:
            return
        self._stretches.append(self._open)
        self._open, self._count = [], 0
        if len(self._stretches) >= self._most:
            self._halve()

    def forget(self, step: int) -> None:
        self._stretches = [kept for stretch in self._stretches if (kept := _before(step, stretch))]
        self._open = _before(step, self._open)
        if self._first is not None and self._first.step >= step:
            self._first = None
        left = self._all()
        self._latest = left[-1] if left else None

    def points(self) -> list[Kept]:
        return self._all()

    def _all(self) -> list[Kept]:
        found = [point for stretch in (*self._stretches, self._open) for point in stretch]
        ends = [point for point in (self._first, self._latest) if point is not None]
        return sorted({point.serial: point for point in (*found, *ends)}.values(), key=_serial)

    def _halve(self) -> None:
        pairs = [self._stretches[index : index + 2] for index in range(0, len(self._stretches), 2)]
        self._stretches = [self._pick([point for part in pair for point in part]) for pair in pairs]
        self._span *= 2


def _before(step: int, points: list[Kept]) -> list[Kept]:
    return [point for point in points if point.step < step]


def _extremes(points: list[Kept]) -> list[Kept]:
    least, greatest = min(points, key=_height), max(points, key=_height)
    if least.serial == greatest.serial:
        return [least]
    return sorted((least, greatest), key=_serial)


def _last(points: list[Kept]) -> list[Kept]:
    return points[-1:]


def _height(point: Kept) -> float:
    number: float = point.recorded.value.scalar_value
    return math.inf if math.isnan(number) else number


def _serial(point: Kept) -> int:
    return point.serial
