"""The series of a TensorBoard run: scalars as samples, everything else as references to records."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.series.ranks.summary import History
from rec_summary.series.sampling import ScalarSampler, m4
from rec_summary.tensorboard.dashboards.images import IMAGES
from rec_summary.tensorboard.dashboards.points import Plugin, Point

KEPT_SCALARS: Final = 10_000
"""Points of a series of scalars that are kept: more than a page asks for, unless a limit is set."""

_PER_BUCKET: Final = 4
_LEAST_PER_BUCKET: Final = 2  # of a smooth series, the first and the last are the extremes
_NO_STEP: Final = -(1 << 63)
_SCALAR: Final = np.dtype([("step", "i8"), ("wall_time", "f8"), ("value", "f4")])
_REFERENCE: Final = np.dtype(
    [("step", "i8"), ("wall_time", "f8"), ("file", "i4"), ("offset", "i8")]
)
_POINT: Final = np.dtype([("index", "i8"), ("step", "i8"), ("wall_time", "f8"), ("value", "f8")])


class ScalarSeries:
    """A series of scalars, downsampled by M4 while it is read.

    Attributes:
        plugin: Whose series it is.
    """

    __slots__ = ("_last", "_rows", "_sampler", "plugin")

    def __init__(self, plugin: Plugin) -> None:
        """Begins empty."""
        self.plugin = plugin
        # The newest points: most series are short, and a sampler takes twice the memory for a
        # point. There may be 100,000 series, so that even an empty list would count.
        self._rows = b""
        self._sampler: ScalarSampler | None = None
        self._last: tuple[int, float] | None = None

    def extend(self, steps: Any, wall_times: Any, values: Any) -> None:
        """Takes the next points, at least one; all arguments are arrays of shape [n]."""
        self._rows += _rows(_SCALAR, steps, wall_times, values)
        if len(self._rows) > KEPT_SCALARS * _SCALAR.itemsize:
            self._sample()
        step, wall_time = self._last or (_NO_STEP, -np.inf)
        self._last = max(step, int(steps[-1])), max(wall_time, float(wall_times.max()))

    def forget(self, step: int) -> None:
        """Forgets what is of a step or of later ones."""
        if self._sampler is not None:
            self._sample().forget(step)
        else:
            rows = np.frombuffer(self._rows, _SCALAR)
            self._rows = rows[rows["step"] < step].tobytes()
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
        rows = np.frombuffer(self._rows, _SCALAR)
        points = np.zeros(len(rows), _POINT)
        points["index"] = np.arange(len(points))
        for name in _SCALAR.names or ():
            points[name] = rows[name]
        return points

    def _sample(self) -> ScalarSampler:
        """Passes the newest points on to the sampler, and returns it."""
        self._sampler = self._sampler or ScalarSampler(KEPT_SCALARS)
        if self._rows:
            rows = np.frombuffer(self._rows, _SCALAR)
            self._sampler.extend(*(rows[name].copy() for name in _SCALAR.names or ()))
            self._rows = b""
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
        self._rows = bytearray()

    def extend(self, steps: Any, wall_times: Any, file: int, offsets: Any) -> None:
        """Takes the places of further values, in one file; arrays of shape [n]."""
        self._rows += _rows(_REFERENCE, steps, wall_times, file, offsets)

    def forget(self, step: int) -> None:
        """Forgets what is of a step or of later ones."""
        rows = self._references()
        self._rows = bytearray(rows[rows["step"] < step].tobytes())

    def last(self) -> tuple[int, float] | None:
        """Returns the highest step and the latest wall time; None if there are no values."""
        rows = self._references()
        return (int(rows["step"].max()), float(rows["wall_time"].max())) if len(rows) else None

    def points(self, most: int) -> list[Reference]:
        """Returns at most so many values at even distances, the last one among them, by step.

        Of several values of a step, the last one counts.
        """
        rows = self._references()
        steps = rows["step"]
        if not len(steps) or most < 1:
            return []
        order = np.argsort(steps, kind="stable")
        ordered = steps[order]
        order = order[np.append(ordered[1:] != ordered[:-1], True)]
        if len(order) > most:
            order = order[np.linspace(len(order) - 1, 0, most).astype(np.int64)[::-1]]
        return [Reference(*row) for row in rows[order].tolist()]

    def at(self, step: int) -> Reference | None:
        """Returns the last value of a step."""
        rows = self._references()
        found = rows[rows["step"] == step]
        return Reference(*found[-1].tolist()) if len(found) else None

    def _references(self) -> npt.NDArray[Any]:
        # A view of the bytes would not let them grow.
        return np.frombuffer(bytes(self._rows), _REFERENCE)


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


class PictureSeries:
    """A series of one picture of all ranks, which is drawn when it is asked for.

    Attributes:
        plugin: Whose series it is.
        history: What is drawn.
    """

    def __init__(self, step: int, wall_time: float, history: History) -> None:
        """Holds what is drawn, at a step and a wall time in seconds since the epoch."""
        self.plugin = IMAGES
        self.history = history
        self._place = Reference(step, wall_time, -1, 0)

    def last(self) -> tuple[int, float]:
        """Returns the step and the wall time."""
        return self._place[:2]

    def points(self, most: int) -> list[Reference]:
        """Returns the picture's place, unless none is asked for."""
        return [self._place][:most]

    def at(self, step: int) -> Reference:
        """Returns the picture's place: it may be newer than the one that was asked for."""
        return self._place


Series = ScalarSeries | StoredSeries | FixedSeries | PictureSeries


def _rows(form: np.dtype[Any], *columns: Any) -> bytes:
    """Returns columns, of shape [n] or single numbers, as the bytes of rows; the first has [n]."""
    rows = np.empty(len(columns[0]), form)
    for name, column in zip(form.names or (), columns, strict=True):
        rows[name] = column
    return rows.tobytes()
