"""A TensorBoard run whose values stay in the records until they are asked for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from tensorboard import data_compat
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.graph import metadata as graphs

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import Batch, Record, Recorded, by_tag, concatenated
from rec_summary.series.event_reader import record_at
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.step_buffer import Restart
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs.computation import graph_def
from rec_summary.tensorboard.dashboards.graphs.dataset import dataset_graph_def
from rec_summary.tensorboard.dashboards.graphs.graph_def import tagged_graph
from rec_summary.tensorboard.dashboards.images import IMAGES
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.points import Point, plugin, tensor_value
from rec_summary.tensorboard.outputs import COMPUTATION, Names, RunOutput, RunOutputs, TargetNames
from rec_summary.tensorboard.provider.served_series import (
    FixedSeries,
    Reference,
    ScalarSeries,
    Series,
    StoredSeries,
)
from rec_summary.tensorboard.run_reader import MadeRecord

_KEPT: Final = -1  # the number of no file
_RUN_GRAPH: Final = Point(
    graphs.RUN_GRAPH_NAME, plugin(graphs.PLUGIN_NAME, summary_pb2.DATA_CLASS_BLOB_SEQUENCE), None
)
_UNREADABLE: Final = (ValueError, ArithmeticError, MemoryError, ImportError, OSError)


class ServedRun(RunOutput):
    """Keeps the series of one TensorBoard run.

    One thread adds values while others read them: whoever uses a series holds `lock`.

    Attributes:
        lock: Held while values are added or read.
        started: When the first value was written, in seconds since the epoch; None without values.
    """

    _draws = False  # before a picture is asked for

    def __init__(self, name: str, stamp: int, outputs: ServedRuns, report: Report) -> None:
        """Begins empty.

        Args:
            name: The run's name.
            stamp: When its records were begun, in whole seconds.
            outputs: Knows the record files.
            report: Takes what cannot be shown.
        """
        super().__init__(name, report, EVERYTHING)
        self.lock = threading.RLock()
        self.started: float | None = None
        self._stamp = stamp
        self._outputs = outputs
        self._series: dict[str, dict[str, Series]] = {}  # by the name of the plugin, and by tag
        self._files: list[RecordFile] = []
        self._numbers: dict[str, int] = {}  # of the files, by path
        self._kept: list[bytes] = []  # recorded values that are in no file
        self._laid_out = 0

    def take(self, batch: Batch) -> None:
        """Takes recorded values."""
        with self.lock:
            super().take(batch)

    def shows(self, tag: str) -> bool:
        """Whether there is a value with this recorded tag."""
        with self.lock:
            return super().shows(tag)

    def put_graph(self, record: Record, graph: Any, kind: str = COMPUTATION) -> None:
        """Shows a graph, unless the same graph is shown already."""
        with self.lock:
            super().put_graph(record, graph, kind)

    def settle(self, *, evaluation: bool) -> None:
        """Shows all values so far, and their layout on the page of custom scalars.

        Args:
            evaluation: Whether the scalars are metrics of evaluations.
        """
        with self.lock:
            self._pass_on(self._buffer.flush())
            tags = self._tags.of("scalars")
            if len(tags) != self._laid_out:
                self._laid_out = len(tags)
                point = layout_point(tags, evaluation=evaluation)
                if point is not None:
                    self.show(0, float(self._stamp), "layout", point)

    def show(self, step: int, wall_time: float, kind: str, point: Point) -> None:
        """Shows the point of a series that has one point only, instead of an earlier one."""
        with self.lock:
            self._pass_on(self._buffer.flush())
            self._begin(wall_time)
            tag, _ = self._tags.name(point, kind)
            self._of(point.plugin.name)[tag] = FixedSeries(step, wall_time, point)

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

    def tensor(self, series: StoredSeries, place: Reference) -> Any:
        """Reads a value; returns it as a `TensorProto`, None if it cannot be read any more.

        Raises:
            OSError: The file cannot be read.
        """
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

    def _of(self, plugin_name: str) -> dict[str, Series]:
        return self._series.setdefault(plugin_name, {})

    def _begin(self, wall_time: float) -> None:
        if self.started is None:
            self.started = wall_time

    def _restart(self, restart: Restart) -> None:
        for by_name in self._series.values():
            for each in by_name.values():
                if not isinstance(each, FixedSeries):
                    each.forget(restart.step)
        for record in restart.again:
            self._write_record(record)

    def _write_framed(self, batch: Batch) -> bool:
        # A block has a tag several times, once for each layout of records.
        scalars = self._series.get("scalars", {})
        for tag, (_, _, steps, wall_times, values) in by_tag(concatenated([batch.scalars()])):
            series = scalars[tag]
            assert isinstance(series, ScalarSeries)
            series.extend(steps, wall_times, values)
        file = self._number(batch.path)
        for (kind, tag), steps, wall_times, offsets in batch.located():
            owner = self._mapper(kind).plugin
            assert owner is not None  # as they are recorded
            stored = self._of(owner.name)[tag]
            assert isinstance(stored, StoredSeries)
            stored.extend(steps, wall_times, file, offsets)
        return True

    def _write_points(self, record: Record, points: list[tuple[Recorded, Point]]) -> None:
        self._begin(record.wall_time)
        for recorded, point in points:
            tag, _ = self._tags.name(point, recorded.kind)
            of_plugin = self._of(point.plugin.name)
            if point.value.WhichOneof("value") == "simple_value":
                scalars = of_plugin.setdefault(tag, ScalarSeries(point.plugin))
                number = np.array([point.value.simple_value])
                assert isinstance(scalars, ScalarSeries)
                scalars.extend(record.steps, record.wall_times, number)
                continue
            series = of_plugin.get(tag)
            if series is None:
                series = of_plugin[tag] = StoredSeries(recorded.kind, recorded.tag, point)
            assert isinstance(series, StoredSeries)
            if isinstance(record, MadeRecord):
                file, offset = _KEPT, len(self._kept)
                self._kept.append(recorded.value.SerializeToString())
            else:
                file, offset = self._number(record.path), record.offset
            series.extend(record.steps, record.wall_times, file, [offset])

    def _write_graph(self, record: Record, serialized: bytes) -> None:
        self._store_graph(record, COMPUTATION, graphs.RUN_GRAPH_NAME, _RUN_GRAPH)

    def _write_tagged_graph(self, record: Record, kind: str, tag: str, graph: Any) -> None:
        point = tagged_graph(tag, graph)
        shown, _ = self._tags.name(point, kind)
        self._store_graph(record, kind, shown, point)

    def _store_graph(self, record: Record, kind: str, shown: str, point: Point) -> None:
        self._begin(record.wall_time)
        series = StoredSeries(kind, point.tag, point)
        self._of(point.plugin.name)[shown] = series
        series.extend([0], record.wall_times, self._number(record.path), [record.offset])

    def _number(self, path: str) -> int:
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self._files)
            self._files.append(self._outputs.file(path))
        return number


class ServedRuns(RunOutputs):
    """The TensorBoard runs of one recorded run, each with its series.

    Attributes:
        served: The TensorBoard runs, by name.
    """

    def __init__(self, run: Run, names: Names, targets: TargetNames, report: Report) -> None:
        """Begins without values.

        Args:
            run: The run.
            names: Assigns names to TensorBoard runs.
            targets: Whether each rank has a sub-run.
            report: Takes what cannot be shown.
        """
        super().__init__(run, names, targets)
        self.served: dict[str, ServedRun] = {}
        self._report = report

    def session(self) -> ServedRun:
        """Returns the TensorBoard run of the run itself; HParams shows it as a session."""
        return self._open(self.run.name)

    def writer(self, rank: int, number: int = 1) -> ServedRun:
        """Returns the TensorBoard run of a rank; its further writers have numbers from 2 on."""
        return self._open(self._writer_name(rank, number), rank)

    def settle(self) -> None:
        """Shows all values so far."""
        evaluation = self._evaluation_name()
        for name, each in list(self.served.items()):
            each.settle(evaluation=name == evaluation)

    def file(self, path: str) -> RecordFile:
        """Returns a record file of the run."""
        return self.run.file(path)

    def _open(self, name: str, rank: int | None = None) -> ServedRun:
        served = self.served.get(name)
        if served is None:
            served = ServedRun(name, self._stamp(name, rank), self, self._report)
            self.served[name] = served
        return served


_GRAPHS: Final = ("graph_def", dashboards.DATASET_GRAPH)


def _graph_of(series: StoredSeries, record: Record) -> Any:
    """Returns the tensor of a graph."""
    make = graph_def if record.kind == "graph_def" else dataset_graph_def
    graph = make(getattr(record.event, record.kind))
    if series.plugin is _RUN_GRAPH.plugin:
        return tensor_value(graph.SerializeToString(deterministic=True), [1]).tensor
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
