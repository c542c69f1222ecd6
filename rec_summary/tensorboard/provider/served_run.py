"""A TensorBoard run whose values stay in the records until they are asked for.

Scalars are kept as samples, everything else as references to records.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from tensorboard import data_compat
from tensorboard.util import tensor_util

from rec_summary.arrays import Array
from rec_summary.records.reading.runs import RecordFile
from rec_summary.records.reading.totals import Totals
from rec_summary.series.batch import Record, Recorded
from rec_summary.series.event_reader import record_at
from rec_summary.series.sampling import ScalarSampler, m4
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.points import SCALARS, Point
from rec_summary.tensorboard.run_reader import DerivedRecord

KEPT_SCALARS: Final = 10_000
"""Points of a series of scalars that are kept: more than a page asks for, unless a limit is set."""

_PER_BUCKET: Final = 4
_LEAST_PER_BUCKET: Final = 2  # of a smooth series, the first and the last are the extremes
_NO_STEP: Final = -(1 << 63)
_KEPT: Final = -1  # the number of no file
_SCALAR: Final = np.dtype([("step", "i8"), ("wall_time", "f8"), ("value", "f4")])
_PLACE: Final = np.dtype([("step", "i8"), ("wall_time", "f8"), ("file", "i4"), ("offset", "i8")])
_POINT: Final = np.dtype([("index", "i8"), ("step", "i8"), ("wall_time", "f8"), ("value", "f8")])
_UNREADABLE: Final = (ValueError, ArithmeticError, MemoryError, ImportError, OSError)


class ScalarSeries:
    """A series of scalars, downsampled by M4 while it is read.

    Attributes:
        plugin: Whose series it is.
    """

    __slots__ = ("_last", "_rows", "_sampler")

    plugin = SCALARS

    def __init__(self) -> None:
        """Begins empty."""
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

    def points(self, most: int) -> Array:
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
            sampled = m4(buckets, points["value"])
            if len(sampled) <= most:
                break
        return points[sampled]

    def _points(self) -> Array:
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


class Place(NamedTuple):
    """Where a value is.

    Attributes:
        step: The step.
        wall_time: Seconds since the epoch.
        file: The number of its file; -1 if it is in none.
        offset: Where in the file its record begins, in bytes; else the number of its record.
    """

    step: int
    wall_time: float
    file: int = _KEPT
    offset: int = 0


class RecordStore:
    """The records that series refer to: in their files, or kept if they are in no file."""

    def __init__(self, file: Callable[[str], RecordFile]) -> None:
        """Begins empty.

        Args:
            file: Returns the record file with a path.
        """
        self._file = file
        self._files: list[RecordFile] = []
        self._numbers: dict[str, int] = {}  # of the files, by path
        self._kept: list[Record] = []

    def number(self, path: str) -> int:
        """Returns the number of a file, for places."""
        if path not in self._numbers:
            self._numbers[path] = len(self._files)
            self._files.append(self._file(path))
        return self._numbers[path]

    def add(self, record: Record) -> tuple[int, int]:
        """Returns file and offset of a record, for places; keeps it if it is in no file."""
        if not isinstance(record, DerivedRecord):
            return self.number(record.path), record.offset
        self._kept.append(record)
        return _KEPT, len(self._kept) - 1

    def read(self, file: int, offset: int) -> Record | None:
        """Returns the record at a place; None if none can be read there any more.

        Raises:
            OSError: The file cannot be read.
        """
        return self._kept[offset] if file == _KEPT else record_at(self._files[file], offset)


class StoredSeries:
    """A series of values that are read when they are asked for.

    Attributes:
        plugin: Whose series it is.
        kind: The kind of record that the values are made of.
        recorded: The tag that was recorded.
    """

    def __init__(self, store: RecordStore, kind: str, recorded: str, point: Point) -> None:
        """Begins empty.

        Args:
            store: Reads the records.
            kind: The kind of record.
            recorded: The tag that was recorded.
            point: The first point.
        """
        self.plugin = point.plugin
        self.kind = kind
        self.recorded = recorded
        self._tag = point.tag
        self._store = store
        self._rows = bytearray()

    def extend(self, steps: Any, wall_times: Any, file: int, offsets: Any) -> None:
        """Takes the places of further values, in one file; arrays of shape [n]."""
        self._rows += _rows(_PLACE, steps, wall_times, file, offsets)

    def forget(self, step: int) -> None:
        """Forgets what is of a step or of later ones."""
        rows = self._places()
        self._rows = bytearray(rows[rows["step"] < step].tobytes())

    def last(self) -> tuple[int, float] | None:
        """Returns the highest step and the latest wall time; None if there are no values."""
        rows = self._places()
        return (int(rows["step"].max()), float(rows["wall_time"].max())) if len(rows) else None

    def places(self, most: int) -> list[Place]:
        """Returns where at most so many values are, at even distances, the last one among them.

        They are in the order of steps. Of several values of a step, the last one counts.
        """
        rows = self._places()
        steps = rows["step"]
        if not len(steps) or most < 1:
            return []
        order = np.argsort(steps, kind="stable")
        ordered = steps[order]
        order = order[np.append(ordered[1:] != ordered[:-1], True)]
        if len(order) > most:
            order = order[np.linspace(len(order) - 1, 0, most).astype(np.int64)[::-1]]
        return [Place(*row) for row in rows[order].tolist()]

    def at(self, step: int) -> Place | None:
        """Returns where the last value of a step is."""
        rows = self._places()
        matching = rows[rows["step"] == step]
        return Place(*matching[-1].tolist()) if len(matching) else None

    def read(self, place: Place) -> Recorded | None:
        """Reads a value as it was recorded; None if it cannot be read any more.

        Raises:
            OSError: The file cannot be read.
        """
        record = self._store.read(place.file, place.offset)
        if record is None or record.step != place.step:
            return None  # the file is another one now
        own = (self.kind, self.recorded)
        return next((value for value in reversed(record.values) if value[:2] == own), None)

    def tensor(self, place: Place) -> Any:
        """Reads a value; returns it as a `TensorProto`, None if it cannot be read any more.

        Raises:
            OSError: The file cannot be read.
        """
        recorded = self.read(place)
        if recorded is None:
            return None
        with contextlib.suppress(*_UNREADABLE):
            for point in dashboards.VALUES[recorded.kind]()(recorded.tag, recorded.value):
                if (point.tag, point.plugin.name) == (self._tag, self.plugin.name):
                    return _tensor(point.rendered().value)
        return None

    def _places(self) -> Array:
        # A view of the bytes would not let them grow.
        return np.frombuffer(bytes(self._rows), _PLACE)


class SingleSeries:
    """A series of one value, which is made when it is asked for, and replaced when it changes.

    Attributes:
        plugin: Whose series it is.
    """

    def __init__(self, step: int, wall_time: float, point: Point) -> None:
        """Takes the value.

        Args:
            step: Its step.
            wall_time: Seconds since the epoch.
            point: The value, as a rule not drawn yet.
        """
        self.plugin = point.plugin
        self._place = Place(step, wall_time)
        self._point = point

    def last(self) -> tuple[int, float]:
        """Returns the step and the wall time."""
        return self._place[:2]

    def places(self, most: int) -> list[Place]:
        """Returns the place of the value, unless none is asked for."""
        return [self._place][:most]

    def at(self, step: int) -> Place:
        """Returns the place of the value: it may be newer than the one that was asked for."""
        return self._place

    def tensor(self, place: Place) -> Any:
        """Returns the value as a `TensorProto`; None if it cannot be made any more."""
        with contextlib.suppress(*_UNREADABLE):
            return _tensor(self._point.rendered().value)
        return None


Series = ScalarSeries | StoredSeries | SingleSeries


class ServedRun:
    """The series of one TensorBoard run.

    One thread adds values while others read them: hold `lock` while you use a series.

    Attributes:
        name: The run's name.
        lock: Held while values are added or read.
        started: When the first value was written, in seconds since the epoch; None without values.
    """

    def __init__(self, name: str, totals: Callable[[], Totals] | None = None) -> None:
        """Begins empty.

        Args:
            name: The run's name.
            totals: Returns the totals of examples that pages show in the place of steps; None for
                steps.
        """
        self.name = name
        self.lock = threading.RLock()
        self.started: float | None = None
        self._totals = totals
        self._series: dict[str, dict[str, Series]] = {}  # by the name of the plugin, and by tag

    def shown(self, steps: Any) -> Any:
        """Returns what pages show in the place of steps, of the same shape."""
        return steps if self._totals is None else self._totals().at(steps)

    def plugins(self) -> list[str]:
        """Returns the names of the plugins that have series."""
        return [name for name, by_tag in list(self._series.items()) if by_tag]

    def series(self, plugin_name: str, data_class: int) -> list[tuple[str, Any]]:
        """Returns the tags and the series of a plugin that have values; hold `lock`."""
        return [
            (tag, series)
            for tag, series in self._series.get(plugin_name, {}).items()
            if series.plugin.metadata.data_class == data_class and series.last() is not None
        ]

    def last_values(self, kind: str) -> dict[str, Recorded]:
        """Reads the last values of a kind by recorded tag; those that can be read."""
        with self.lock:
            every = [item for by_tag in self._series.values() for item in by_tag.values()]
            own = [item for item in every if isinstance(item, StoredSeries) and item.kind == kind]
            last = {item.recorded: (item, place) for item in own for place in item.places(1)}
        values: dict[str, Recorded] = {}
        for tag, (series, place) in last.items():
            with contextlib.suppress(*_UNREADABLE):
                recorded = series.read(place)
                if recorded is not None:
                    values[tag] = recorded
        return values

    def find(self, plugin_name: str, tag: str, data_class: int) -> Any:
        """Returns a series; None if there is no such series."""
        series = self._series.get(plugin_name, {}).get(tag)
        return series if series and series.plugin.metadata.data_class == data_class else None

    def of_plugin(self, plugin_name: str) -> dict[str, Any]:
        """Returns the series of a plugin by tag, to add to."""
        return self._series.setdefault(plugin_name, {})

    def begin(self, wall_time: float) -> None:
        """Takes the time of a value, in seconds since the epoch."""
        if self.started is None:
            self.started = wall_time

    def forget(self, step: int) -> None:
        """Forgets what is of a step or of later ones."""
        for by_name in self._series.values():
            for series in by_name.values():
                if isinstance(series, ScalarSeries | StoredSeries):
                    series.forget(step)


def _tensor(value: Any) -> Any:
    """Returns what TensorBoard's loaders make of a `Summary.Value`: a `TensorProto`."""
    if not value.HasField("histo"):
        return data_compat.migrate_value(value).tensor
    # As TensorBoard's own summaries: its loaders round edges, such as times, to float32.
    histogram = value.histo
    inner = list(histogram.bucket_limit[:-1])
    columns = [[histogram.min, *inner], [*inner, histogram.max], list(histogram.bucket)]
    rows = np.array(columns if histogram.bucket else [[], [], []], np.float64).T
    return tensor_util.make_tensor_proto(rows)


def _rows(form: np.dtype[Any], *columns: Any) -> bytes:
    """Returns columns, of shape [n] or single numbers, as the bytes of rows; the first has [n]."""
    rows = np.empty(len(columns[0]), form)
    for name, column in zip(form.names or (), columns, strict=True):
        rows[name] = column
    return rows.tobytes()
