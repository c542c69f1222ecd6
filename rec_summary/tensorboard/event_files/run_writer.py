"""Writing one TensorBoard run: batches of records in, events of one event file out."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from rec_summary.series.batch import Batch, Record, Recorded
from rec_summary.series.best_values import BestSeries
from rec_summary.series.limits import Checksum, Count
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.sampling import RunSampler
from rec_summary.series.step_buffer import BufferState, Restart
from rec_summary.series.text import check_unicode
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs.graph_def import tagged_graph
from rec_summary.tensorboard.dashboards.images import IMAGES, no_image
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.points import Point
from rec_summary.tensorboard.event_files.event_file import EventFile, FilePosition
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.outputs import BEST_KIND, RunOutput
from rec_summary.values.npy import file_name, save
from rec_summary.values.tensor import from_tensor

TENSOR_FOLDER: Final = "tensors"


class OutputState(Struct):
    """What a later `TensorBoardRun` needs to continue.

    Attributes:
        file: Its event file.
        steps: The state of its step buffer.
        tags: Recorded tag, plugin, kind, and the tag that is shown, of each series.
        memories: What dashboards remember, by kind of value.
        graphs: The checksums of graphs that were written, by kind of graph.
        layout: The checksum of the layout that was written.
        restarts: How often steps went back.
        best: The best values, by the tags of metrics; None if there may have been others before.
    """

    file: FilePosition
    steps: BufferState
    tags: list[tuple[str, str, str, str]]
    memories: dict[str, list[str]]
    graphs: dict[str, list[Checksum]]
    layout: Checksum
    restarts: Count
    best: dict[str, BestSeries] | None = None

    def __post_init__(self) -> None:
        check_unicode([self.tags, list(self.best or ())])


class TensorBoardRun(RunOutput):
    """Takes the values of one TensorBoard run, and appends them to its event file.

    `flush` writes all values so far; `state` is what a later export needs to continue. A run
    without values gets no file.

    Attributes:
        name: The run's name: its directory below the log directory.
    """

    def __init__(
        self,
        name: str,
        stamp: int,
        logdir: LogDir,
        report: Report,
        options: ExportOptions,
        state: OutputState | None = None,
        *,
        is_evaluation: bool = False,
    ) -> None:
        """Begins a run, or continues one; its file is created with its first value.

        Args:
            name: The run's name.
            stamp: When its records were begun, in whole seconds; names a new event file.
            logdir: Where it goes.
            report: Counts what is exported and what is not.
            options: What is exported.
            state: What `state` returned at the end of an earlier export.
            is_evaluation: Whether its scalars are metrics of evaluations.
        """
        nothing = OutputState(
            FilePosition(stamp), BufferState(None, [], []), [], {}, {}, layout=0, restarts=0
        )
        nothing.best = {}
        state = state or nothing
        known = state.steps, state.tags, state.graphs, state.best
        super().__init__(name, report, Selection(options), *known, is_evaluation=is_evaluation)
        self._logdir = logdir
        self._has_tensor_files = options.tensors == "npy"
        self._most = options.max_points or 0  # of a series; 0 for all
        self._sampler = None if options.max_points is None else RunSampler(options.max_points)
        self._state = state
        self._file = EventFile(logdir, name, state.file)
        self._emptied: dict[str, Restart] = {}  # by the tags of images without any since then
        for kind in state.memories.keys() & dashboards.VALUES.keys():
            self._mapper(kind).memory.update(state.memories[kind])

    @property
    def restarts(self) -> int:
        """How often steps went back."""
        return self._state.restarts

    @property
    def begun(self) -> bool:
        """Whether anything has been written to the event file, now or earlier."""
        return self._file.begun

    def complete(self) -> None:
        """Writes what is made of all values so far, unless it is written already.

        That is the layout of the Custom Scalars page, and the best values.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._pass_on(self._buffer.flush())
        for found, points in self._new_best():
            for (step, wall_time, _), best in list(zip(found, points, strict=True))[-self._most :]:
                self._write(step, wall_time, BEST_KIND, [best])
        point = layout_point(self._tags.of("scalars"), evaluation=self.is_evaluation)
        if point is None or not self._wants(point.plugin):
            return
        checksum = zlib.crc32(point.value.tensor.string_val[0])
        if checksum != self._state.layout:
            self._state.layout = checksum
            # The page shows the last one. All have step 0, so a restart removes none.
            self._write(0, float(self._file.position.stamp), "layout", [point])

    def put(self, step: int, wall_time: float, kind: str, points: Iterable[Point]) -> None:
        """Writes points that were made of records of `kind`, after all values so far.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._pass_on(self._buffer.flush())
        self._write(step, wall_time, kind, points)

    def flush(self) -> None:
        """Hands all events to the operating system: from now on TensorBoard sees them.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._write_held()
        self._file.flush()

    def settle(self) -> None:
        """Flushes, and cuts off what an earlier export has written beyond.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._write_held()
        self._file.settle()

    def _write_held(self) -> None:
        """Writes what waits for the end of a step, or for the whole series."""
        self._pass_on(self._buffer.flush())
        if self._sampler is not None:
            for batch in self._sampler.drain():
                self._write_batch(batch)
        self._fill()

    def state(self) -> OutputState | None:
        """Flushes, and returns what a later export needs to continue; None without a file.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self.flush()
        if not self._file.position.size:
            return None
        self._state.steps = self._buffer.state()
        self._state.tags = self._tags.state()
        self._state.memories = {
            kind: sorted(each.memory) for kind, each in self._mappers.items() if each.memory
        }
        return self._state

    def discard(self) -> None:
        """Removes the event file, and with it the TensorBoard run.

        Raises:
            DestinationError: It cannot be removed.
        """
        self._file.discard()

    def close(self) -> None:
        """Closes the event file, and counts what was written; `flush` comes before it."""
        for mapper in self._mappers.values():
            if mapper.note is not None and mapper.note not in self._report.notes:
                self._report.note(mapper.note)
        self._file.close(self._report)

    def _pass_batch(self, batch: Batch) -> None:
        """Writes values, or passes them to the sampler."""
        if self._sampler is None:
            self._write_batch(batch)
        else:
            self._sampler.add(batch)

    def _restart(self, restart: Restart) -> None:
        if self._sampler is not None:
            self._sampler.restart(restart)
            return
        self._state.restarts += 1
        self._state.layout = 0  # one of the loaders forgets it, too
        if self.begun:
            self._file.write_restart(restart.step, restart.origin.wall_time)
            self._emptied = dict.fromkeys(self._tags.of(IMAGES.name), restart)
            for record in restart.again:
                self._write_record(record)
                self._report.exported.subtract(each.kind for each in record.values)

    def _fill(self) -> None:
        """Writes an image without content under each tag that may have none since a restart.

        The image page of TensorBoard's Python loader fails for all runs if there is a tag without
        any event. An event without a sample is shown on no page.
        """
        for tag, restart in self._emptied.items():
            step = max(restart.step, self._buffer.step or restart.step)
            self._file.write(step, restart.origin.wall_time, [no_image(tag)])
        self._emptied.clear()

    def _write_framed(self, batch: Batch) -> bool:
        frames = batch.frames()
        if frames is None:
            return False
        self._file.write_framed(frames)
        for _, tag in batch.series():
            self._emptied.pop(tag, None)
        return True

    def _points(self, record: Record, recorded: Recorded) -> list[Point]:
        points = super()._points(record, recorded)
        if recorded.kind == "tensor" and self._has_tensor_files:
            self._write_tensor(record.step, recorded)
        return points

    def _write_tensor(self, step: int, recorded: Recorded) -> None:
        """Writes a tensor to its file; of several with one tag and step, the last one stays."""
        array = from_tensor(recorded.value.tensor)
        path = f"{self.name}/{TENSOR_FOLDER}/{file_name(recorded.tag, step)}"
        with self._logdir.replacing(path) as file:
            save(file, array)

    def _write_points(self, record: Record, points: list[tuple[Recorded, Point]]) -> None:
        placed = [self._placed(point, recorded.kind) for recorded, point in points]
        self._file.write(record.step, record.wall_time, placed)

    def _write_graph(self, record: Record, serialized: bytes) -> None:
        self._file.write_graph(record.wall_time, serialized)

    def _write_tagged_graph(self, record: Record, kind: str, tag: str, graph: Any) -> None:
        self._write(0, record.wall_time, kind, [tagged_graph(tag, graph)])

    def _write(self, step: int, wall_time: float, kind: str, points: Iterable[Point]) -> None:
        placed = [self._placed(point, kind) for point in points if self._wants(point.plugin)]
        if placed:
            self._file.write(step, wall_time, placed)

    def _placed(self, point: Point, kind: str) -> Any:
        value = self._tags.place(point, kind)
        self._emptied.pop(value.tag, None)
        return value
