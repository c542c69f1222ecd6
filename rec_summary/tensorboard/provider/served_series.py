"""The series of a TensorBoard run: scalars as samples, everything else as references to records."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.series.sampling import ScalarSampler, m4
from rec_summary.tensorboard.dashboards.points import Plugin, Point

KEPT_SCALARS: Final = 10_000
"""Points of a series of scalars that are kept: more than a page asks for, unless it is told to."""

_PER_BUCKET: Final = 4
_LEAST_PER_BUCKET: Final = 2  # of a smooth series, the first and the last are the extremes
_NO_STEP: Final = -(1 << 63)
_TYPES: Final = "qdiq"  # of the columns of references
_SCALAR_TYPES: Final = "qdf"  # records have float32
_POINT: Final = np.dtype([("index", "i8"), ("step", "i8"), ("wall_time", "f8"), ("value", "f8")])


class ScalarSeries:
    """A series of scalars, downsampled by M4 while it is read.

    Attributes:
        plugin: Whose series it is.
    """

    def __init__(self, plugin: Plugin) -> None:
        """Begins empty."""
        self.plugin = plugin
        # Step, wall time and value of the newest points: most series are short, and a sampler
        # takes twice the memory for a point.
        self._columns: tuple[array[Any], ...] = tuple(map(array, _SCALAR_TYPES))
        self._sampler: ScalarSampler | None = None
        self._last: tuple[int, float] | None = None

    def extend(self, steps: Any, wall_times: Any, values: Any) -> None:
        """Takes the next points, at least one; all arguments are arrays of shape [n]."""
        _append(self._columns, (steps, wall_times, values))
        if len(self._columns[0]) > KEPT_SCALARS:
            self._sample()
        step, wall_time = self._last or (_NO_STEP, -np.inf)
        self._last = max(step, int(steps[-1])), max(wall_time, float(wall_times.max()))

    def forget(self, step: int) -> None:
        """Forgets what is of a step or of later ones."""
        if self._sampler is not None:
            self._sample().forget(step)
        else:
            _keep(self._columns, step)
        points = self._points()
        self._last = None
        if len(points):
            self._last = int(points["step"].max()), float(points["wall_time"].max())

    def last(self) -> tuple[int, float] | None:
        """Returns the highest step and the latest wall time; None if there are no points."""
        return self._last

    def points(self, most: int) -> npt.NDArray[Any]:
        """Returns at most so many points, the last one among them.

        From four on, the least and the greatest value of all are among them as well.

        Returns:
            An array with the fields `step`, `wall_time` and `value`, by step.
        """
        points = self._points()
        steps = points["step"]
        # Of a step that was recorded again after it was read, the later value counts.
        points = points[np.append(steps[1:] != steps[:-1], True)] if len(steps) else points
        count = len(points)
        if count <= most:
            return points
        if most < _PER_BUCKET:
            return points[count - most :]
        index = points["index"] - points["index"][0]
        for per_bucket in range(_LEAST_PER_BUCKET, _PER_BUCKET + 1):
            buckets = index * (most // per_bucket) // (index[-1] + 1)
            kept = m4(buckets, points["value"])
            if len(kept) <= most:
                break
        return points[kept]

    def _points(self) -> npt.NDArray[Any]:
        """Returns all points that are kept, with the field `index` as well."""
        if self._sampler is not None:
            return self._sample().points()
        points = np.zeros(len(self._columns[0]), _POINT)
        points["index"] = np.arange(len(points))
        for name, column in zip(("step", "wall_time", "value"), self._columns, strict=True):
            points[name] = np.array(column)
        return points

    def _sample(self) -> ScalarSampler:
        """Passes the newest points on to the sampler, and returns it."""
        self._sampler = self._sampler or ScalarSampler(KEPT_SCALARS)
        if self._columns[0]:
            self._sampler.extend(*map(np.array, self._columns))
        for column in self._columns:
            del column[:]
        return self._sampler


class Reference(NamedTuple):
    """Where a value is.

    Attributes:
        step: The step.
        wall_time: Seconds since the epoch.
        file: The number of its file; -1 if it is kept in memory.
        offset: Where in the file its record begins, in bytes; the number of a kept value.
    """

    step: int
    wall_time: float
    file: int
    offset: int


class StoredSeries:
    """A series of values that are read when they are asked for.

    Attributes:
        plugin: Whose series it is.
        kind: The kind of record that the values are made of.
        recorded: The tag that was recorded.
        tag: The tag of the points that are made of them.
    """

    def __init__(self, kind: str, recorded: str, point: Point) -> None:
        """Begins empty.

        Args:
            kind: The kind of record.
            recorded: The tag that was recorded.
            point: The first point.
        """
        self.plugin = point.plugin
        self.kind = kind
        self.recorded = recorded
        self.tag = point.tag
        self._columns: tuple[array[Any], ...] = tuple(map(array, _TYPES))

    def extend(self, steps: Any, wall_times: Any, file: int, offsets: Any) -> None:
        """Takes the places of further values, in one file; arrays of shape [n]."""
        files = np.full(len(steps), file)
        _append(self._columns, (steps, wall_times, files, offsets))

    def forget(self, step: int) -> None:
        """Forgets what is of a step or of later ones."""
        _keep(self._columns, step)

    def last(self) -> tuple[int, float] | None:
        """Returns the highest step and the latest wall time; None if there are no values."""
        steps, wall_times = self._columns[:2]
        return (max(steps), max(wall_times)) if steps else None

    def points(self, most: int) -> list[Reference]:
        """Returns at most so many values at even distances, the last one among them, by step.

        Of several values of a step, the last one counts.
        """
        steps, *others = (np.array(column) for column in self._columns)
        if not len(steps) or most < 1:
            return []
        order = np.argsort(steps, kind="stable")
        ordered = steps[order]
        order = order[np.append(ordered[1:] != ordered[:-1], True)]
        if len(order) > most:
            order = order[np.linspace(len(order) - 1, 0, most).astype(np.int64)[::-1]]
        columns = (column[order].tolist() for column in (steps, *others))
        return [Reference(*row) for row in zip(*columns, strict=True)]

    def at(self, step: int) -> Reference | None:
        """Returns the last value of a step."""
        steps = np.array(self._columns[0])
        found = np.flatnonzero(steps == step)
        if not len(found):
            return None
        row = int(found[-1])
        return Reference(*(column[row] for column in self._columns))


class FixedSeries:
    """A series of one value, which is replaced when it changes.

    Attributes:
        plugin: Whose series it is.
        step: The step.
        wall_time: Seconds since the epoch.
        value: TensorBoard's `Summary.Value`.
    """

    def __init__(self, step: int, wall_time: float, point: Point) -> None:
        """Holds a point."""
        self.plugin = point.plugin
        self.step = step
        self.wall_time = wall_time
        self.value = point.value

    def last(self) -> tuple[int, float]:
        """Returns the step and the wall time."""
        return self.step, self.wall_time


Series = ScalarSeries | StoredSeries | FixedSeries


def _append(columns: tuple[array[Any], ...], rows: Sequence[Any]) -> None:
    """Appends an array of shape [n] to each column."""
    for column, new in zip(columns, rows, strict=True):
        column.frombytes(np.asarray(new).astype(column.typecode).tobytes())


def _keep(columns: tuple[array[Any], ...], step: int) -> None:
    """Removes the rows of a step, which is the first column, and of later ones."""
    kept = np.array(columns[0]) < step
    if not kept.all():
        for column in columns:
            values = np.array(column)[kept]
            del column[:]
            column.frombytes(values.tobytes())
