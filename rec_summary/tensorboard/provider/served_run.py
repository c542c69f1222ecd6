"""A TensorBoard run whose values stay in the records until they are asked for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from tensorboard import data_compat
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.graph import metadata as graphs

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import Record, Recorded
from rec_summary.series.comparison.samples import Totals
from rec_summary.series.event_reader import record_at
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs.computation import graph_def
from rec_summary.tensorboard.dashboards.graphs.dataset import dataset_graph_def
from rec_summary.tensorboard.dashboards.graphs.graph_def import tagged_graph
from rec_summary.tensorboard.dashboards.images import IMAGES
from rec_summary.tensorboard.dashboards.points import Point, plugin, tensor_value
from rec_summary.tensorboard.dashboards.ranks import heat_map
from rec_summary.tensorboard.provider.served_series import (
    PictureSeries,
    Reference,
    ScalarSeries,
    Series,
    StoredSeries,
)

_KEPT: Final = -1  # the number of no file
_UNREADABLE: Final = (ValueError, ArithmeticError, MemoryError, ImportError, OSError)

RUN_GRAPH: Final = Point(
    graphs.RUN_GRAPH_NAME, plugin(graphs.PLUGIN_NAME, summary_pb2.DATA_CLASS_BLOB_SEQUENCE), None
)
"""A point of the first computation graph, without its value."""


class ServedRun:
    """The series of one TensorBoard run.

    One thread adds values while others read them: whoever uses a series holds `lock`.

    Attributes:
        name: The run's name.
        lock: Held while values are added or read.
        started: When the first value was written, in seconds since the epoch; None without values.
    """

    def __init__(
        self,
        name: str,
        file: Callable[[str], RecordFile],
        totals: Callable[[], Totals] | None = None,
    ) -> None:
        """Begins empty.

        Args:
            name: The run's name.
            file: Returns the record file with a path.
            totals: Returns the totals of examples that pages show in the place of steps; None for
                steps.
        """
        self.name = name
        self.lock = threading.RLock()
        self.started: float | None = None
        self._file = file
        self._totals = totals
        self._series: dict[str, dict[str, Series]] = {}  # by the name of the plugin, and by tag
        self._files: list[RecordFile] = []
        self._numbers: dict[str, int] = {}  # of the files, by path
        self._kept: list[bytes] = []  # recorded values that are in no file

    def shown(self, steps: Any) -> Any:
        """Returns what pages show in the place of steps, of the same shape."""
        return steps if self._totals is None else self._totals().at(steps)

    def plugins(self) -> list[str]:
        """Returns the names of the plugins that have series."""
        return [name for name, each in list(self._series.items()) if each]

    def series(self, plugin_name: str, data_class: int) -> list[tuple[str, Series]]:
        """Returns the tags and the series of a plugin that have values; hold `lock`."""
        return [
            (tag, each)
            for tag, each in self._series.get(plugin_name, {}).items()
            if each.plugin.metadata.data_class == data_class and each.last() is not None
        ]

    def one(self, plugin_name: str, tag: str) -> Series | None:
        """Returns a series; None if there is no such series."""
        return self._series.get(plugin_name, {}).get(tag)

    def tensor(self, series: StoredSeries | PictureSeries, place: Reference) -> Any:
        """Reads a value; returns it as a `TensorProto`, None if it cannot be read any more.

        Raises:
            OSError: The file cannot be read.
        """
        if isinstance(series, PictureSeries):
            return data_compat.migrate_value(heat_map(series.history).value).tensor
        if place.file == _KEPT:
            value = Summary.Value.FromString(self._kept[place.offset])
            return _tensor_of(series, Recorded(series.kind, series.recorded, value, None))  # type: ignore[arg-type]
        record = record_at(self._files[place.file], place.offset)
        if record is None:
            return None
        try:
            if record.kind in _GRAPHS:
                return _graph_of(series, record)
            recorded = _own(series, record) if record.step == place.step else None
            return None if recorded is None else _tensor_of(series, recorded)
        except _UNREADABLE:
            return None  # the file is another one now

    def last_values(self, kind: str) -> dict[str, Recorded]:
        """Reads the last values of a kind by recorded tag; those that can be read."""
        with self.lock:
            every = [each for by_tag in self._series.values() for each in by_tag.values()]
            own = [each for each in every if isinstance(each, StoredSeries) and each.kind == kind]
            places = [(each, place) for each in own for place in each.points(1)]
        last = {each.recorded: (each, place) for each, place in places if place.file != _KEPT}
        found: dict[str, Recorded] = {}
        for tag, (series, place) in last.items():
            with contextlib.suppress(*_UNREADABLE):
                record = record_at(self._files[place.file], place.offset)
                recorded = None if record is None else _own(series, record)
                if recorded is not None:
                    found[tag] = recorded
        return found

    def of(self, plugin_name: str) -> dict[str, Series]:
        """Returns the series of a plugin by tag, to add to."""
        return self._series.setdefault(plugin_name, {})

    def begin(self, wall_time: float) -> None:
        """Takes the time of a value, in seconds since the epoch."""
        if self.started is None:
            self.started = wall_time

    def forget(self, step: int) -> None:
        """Forgets what is of a step or of later ones."""
        for by_name in self._series.values():
            for each in by_name.values():
                if isinstance(each, ScalarSeries | StoredSeries):
                    each.forget(step)

    def number(self, path: str) -> int:
        """Returns the number of a file, for references."""
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self._files)
            self._files.append(self._file(path))
        return number

    def keep(self, recorded: Recorded) -> tuple[int, int]:
        """Keeps a value that is in no file; returns file and offset for a reference."""
        self._kept.append(recorded.value.SerializeToString())
        return _KEPT, len(self._kept) - 1


_GRAPHS: Final = ("graph_def", dashboards.DATASET_GRAPH)


def _graph_of(series: StoredSeries, record: Record) -> Any:
    """Returns the tensor of a graph."""
    make = graph_def if record.kind == "graph_def" else dataset_graph_def
    graph = make(getattr(record.event, record.kind))
    if series.plugin is RUN_GRAPH.plugin:
        return tensor_value([graph.SerializeToString(deterministic=True)]).tensor
    return tagged_graph(series.tag, graph).value.tensor


def _own(series: StoredSeries, record: Record) -> Recorded | None:
    """Returns the value of a record that belongs to a series; the last one of several."""
    found = (each for each in reversed(record.values) if each[:2] == (series.kind, series.recorded))
    return next(found, None)


def _tensor_of(series: StoredSeries, recorded: Recorded) -> Any:
    """Returns the tensor that a series has of a recorded value; None if there is none.

    Raises:
        ValueError: The value cannot be shown.
    """
    for point in _points_of(series, recorded):
        if (point.tag, point.plugin.name) == (series.tag, series.plugin.name):
            with np.errstate(all="ignore"):  # buckets may be wider than a float32 is
                return data_compat.migrate_value(point.value).tensor
    return None


def _points_of(series: StoredSeries, recorded: Recorded) -> Iterator[Point]:
    mapper = dashboards.VALUES[recorded.kind]()
    mapper.draws = series.plugin.name == IMAGES.name
    yield from mapper(recorded.tag, recorded.value)
