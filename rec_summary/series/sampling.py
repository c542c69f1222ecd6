"""Downsampling of long series without losing a peak.

A series is cut into buckets of equally many points. Of scalars, the first, the minimum, the
maximum and the last point of each bucket are kept, so that a line through the points that are kept
looks like a line through all points. NaN counts as greater than every number, so
the line has a gap there. Values of other kinds have no order: the last of each bucket is kept, and
the first of all.
Source: Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014.

`ScalarSampler` downsamples one series of scalars while it is read; `RunSampler` all series of a
run. Memory is bounded by the number of points that are kept::

    sampler = ScalarSampler(1000)
    for columns in ...:
        sampler.extend(columns.steps, columns.wall_times, columns.values)
    points = sampler.points()  # points["step"], points["wall_time"], points["value"]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.arrays import Array, Floats, Integers
from rec_summary.series.batch import SCALAR, Batch, Record, Series, by_tag
from rec_summary.series.options import EVERYTHING

_PER_BUCKET: Final = 4
_FINER: Final = 4  # while points come, buckets are at least so many times finer than in the end
_MOST_PARTS: Final = 256  # arrays of few points each take more memory than their points
_POINT: Final = np.dtype(
    [("index", "i8"), ("serial", "i8"), ("step", "i8"), ("wall_time", "f8"), ("value", "f8")]
)


def m4(buckets: Integers, values: Floats) -> Integers:
    """Returns which points to keep: the first, minimum, maximum and last of each bucket.

    Args:
        buckets: The bucket of each point, ascending, of shape [n], with n of at least 1.
        values: The values of the points, of shape [n].

    Returns:
        The numbers of the points, ascending, each once.
    """
    starts = np.flatnonzero(np.diff(buckets, prepend=buckets[:1] - 1))
    sizes = np.diff(starts, append=len(buckets))
    ends = starts + sizes - 1
    # `maximum` passes NaN on, `fmin` does not.
    least = _equal(values, np.repeat(np.fmin.reduceat(values, starts), sizes))
    greatest = _equal(values, np.repeat(np.maximum.reduceat(values, starts), sizes))
    first = least[np.searchsorted(least, starts)]
    last = greatest[np.searchsorted(greatest, ends, side="right") - 1]
    kept: Integers = np.unique(np.concatenate([starts, first, last, ends]))
    return kept


def _equal(values: Floats, others: Floats) -> Integers:
    """Returns where values are the same; NaN is the same as NaN."""
    return np.flatnonzero((values == others) | (np.isnan(values) & np.isnan(others)))


class ScalarSampler:
    """Keeps at most so many points of a series of scalars."""

    def __init__(self, max_points: int) -> None:
        """Begins empty.

        Args:
            max_points: How many points are kept at most; at least 4.
        """
        self._max_points = max_points
        self._most_held = 2 * _FINER * max_points
        self._points = np.zeros(0, _POINT)
        self._new: list[Array] = []
        self._held = 0
        self._count = 0  # points so far
        self._span = 1  # points of a bucket; a power of two, so that buckets can be joined

    def extend(
        self,
        steps: Integers,
        wall_times: Floats,
        values: Floats,
        serials: Integers | int = 0,
    ) -> None:
        """Takes the next points.

        Args:
            steps: The steps, of shape [n].
            wall_times: Seconds since the epoch, of shape [n].
            values: The values, of shape [n].
            serials: Numbers that are kept with the points.
        """
        new = np.zeros(len(steps), _POINT)
        new["index"] = np.arange(self._count, self._count + len(steps))
        new["serial"], new["step"] = serials, steps
        new["wall_time"], new["value"] = wall_times, values
        self._new.append(new)
        self._count += len(new)
        self._held += len(new)
        if self._held > self._most_held:
            self._join()
        elif len(self._new) > _MOST_PARTS:
            self._all()

    def forget(self, step: int) -> None:
        """Forgets the points of `step` and of later steps: training went on from there."""
        points = self._all()
        self._points = points[points["step"] < step]
        self._held = len(self._points)
        self._count = int(self._points["index"][-1]) + 1 if self._held else 0

    def points(self) -> Array:
        """Returns the points to keep: an array with the fields `step`, `wall_time` and `value`."""
        points = self._all()
        if len(points) <= self._max_points:
            return points
        fine = points["index"] // self._span
        most = self._max_points // _PER_BUCKET
        return points[m4(fine * most // (fine[-1] + 1), points["value"])]

    def _all(self) -> Array:
        if self._new:
            self._points = np.concatenate([self._points, *self._new])
            self._new.clear()
        return self._points

    def _join(self) -> None:
        """Joins buckets until there are few enough."""
        points = self._all()
        while self._count > self._span * _FINER * self._max_points // _PER_BUCKET:
            self._span *= 2
        self._points = points[m4(points["index"] // self._span, points["value"])]
        self._held = len(self._points)


class _Kept(NamedTuple):
    """A record with one value, and its place in the run."""

    serial: int
    record: Record


class _LastSampler:
    """Keeps at most so many values of any kind: the first of all, and the last of each bucket."""

    def __init__(self, max_points: int) -> None:
        self._most = max_points - 1
        self._first: _Kept | None = None
        self._last: dict[int, _Kept] = {}  # by the number of the bucket
        self._count = 0
        self._span = 1

    def add(self, kept: _Kept) -> None:
        if self._first is None:
            self._first = kept
        self._last[self._count // self._span] = kept
        self._count += 1
        if len(self._last) > self._most:
            self._span *= 2
            self._last = {bucket // 2: kept for bucket, kept in self._last.items()}

    def forget(self, step: int) -> None:
        self._last = {key: kept for key, kept in self._last.items() if kept.record.step < step}
        if self._first is not None and self._first.record.step >= step:
            self._first = None

    def points(self) -> list[_Kept]:
        first = [] if self._first is None else [self._first]
        return [*first, *(kept for kept in self._last.values() if kept is not self._first)]


class RunSampler:
    """Takes the values of one run, and gives back at most so many of each series."""

    def __init__(self, max_points: int) -> None:
        """Begins empty.

        Args:
            max_points: How many points of a series are kept at most; at least 4.
        """
        self._scalars: dict[str, ScalarSampler] = defaultdict(lambda: ScalarSampler(max_points))
        self._others: dict[Series, _LastSampler] = defaultdict(lambda: _LastSampler(max_points))
        self._serial = 0
        self._path = ""

    def add(self, batch: Batch) -> None:
        """Takes values of finished steps."""
        self._path = batch.path
        for tag, (_, _, steps, wall_times, values) in by_tag(batch.scalars()):
            serials = self._serial + np.searchsorted(batch.steps, steps)
            self._scalars[tag].extend(steps, wall_times, values, serials)
        others = {kind for kind, _ in batch.series()} - {SCALAR}
        if others:
            self._add_others(batch.select(EVERYTHING, others), batch.steps)
        self._serial += len(batch)

    def restart(self, step: int, again: Iterable[Record]) -> None:
        """Forgets what is of this step or a later one, but not these values: training went on."""
        for sampler in self._scalars.values():
            sampler.forget(step)
        for others in self._others.values():
            others.forget(step)
        for record in again:
            self.add(record)

    def drain(self) -> Iterator[Batch]:
        """Yields the values that are kept, in the order in which they came."""
        kept = [kept_value for sampler in self._others.values() for kept_value in sampler.points()]
        for tag, scalars in self._scalars.items():
            for _, serial, step, wall_time, number in scalars.points().tolist():
                event = Event(wall_time=wall_time, step=step)
                event.summary.value.append(Summary.Value(tag=tag, scalar_value=number))
                kept.append(_Kept(serial, Record(self._path, 0, 0, wall_time, event)))
        self._scalars.clear()
        self._others.clear()
        for point in sorted(kept, key=lambda point: point.serial):
            yield point.record

    def _add_others(self, batch: Batch, steps: Integers) -> None:
        for record in batch.records():
            serial = self._serial + int(np.searchsorted(steps, record.step))
            for recorded in record.values:
                self._others[recorded[:2]].add(_Kept(serial, record.of([recorded])))
