"""Writing the TensorBoard runs of a recorded run: each has an event file."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import Batch, Record, Recorded
from rec_summary.series.cuts import Cut
from rec_summary.series.limits import Checksum, Count
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.sampling import RunSampler
from rec_summary.tensorboard.dashboards.graphs import tagged_graph
from rec_summary.tensorboard.dashboards.images import IMAGES, no_image
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.points import Point
from rec_summary.tensorboard.dashboards.scalars import scalar
from rec_summary.tensorboard.event_files.event_file import EventFile, FilePosition
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.outputs import (
    BEST_KIND,
    EVALUATION_RUN,
    OutputState,
    RunOutput,
    RunOutputs,
)
from rec_summary.tensorboard.run_names import Names, TargetNames
from rec_summary.values.npy import file_name, save
from rec_summary.values.tensor import from_tensor

TENSOR_FOLDER: Final = "tensors"
_RUNNING_RUN: Final = "running"
_SUB_RUN: Final = re.compile(
    rf"(rank_\d+_*/)?writer_\d+_*|(rank_\d+|{EVALUATION_RUN}|{_RUNNING_RUN})_*"
)


class Destination(NamedTuple):
    """Where and how runs are exported: the same for all runs of an export.

    Attributes:
        names: Assigns names to TensorBoard runs.
        logdir: The log directory, entered.
        report: Counts what is exported and what is not.
        options: What is exported.
    """

    names: Names
    logdir: LogDir
    report: Report
    options: ExportOptions


class WriterState(OutputState, kw_only=True):
    """What a later `TensorBoardRun` needs to continue.

    Attributes:
        file: Its event file.
        layout: The checksum of the layout that was written.
        restarts: How often steps went back.
    """

    file: FilePosition
    layout: Checksum = 0
    restarts: Count = 0


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
        destination: Destination,
        state: WriterState,
        *,
        is_evaluation: bool,
        directions: Mapping[str, str],
    ) -> None:
        """Begins a run, or continues one; its file is created with its first value.

        Args:
            name: The run's name.
            destination: Where and how it is exported.
            state: What `state` returned at the end of an earlier export, or nothing but a file.
            is_evaluation: Whether its scalars are metrics of evaluations.
            directions: Which values of metrics are better, as the run states it.
        """
        _, self._logdir, report, options = destination
        selection = Selection(options)
        super().__init__(
            *(name, report, selection, state), is_evaluation=is_evaluation, directions=directions
        )
        self._has_tensor_files = options.tensors == "npy"
        self._most = options.max_points or 0  # of a series; 0 for all
        self._sampler = None if options.max_points is None else RunSampler(options.max_points)
        self._state = state
        self._file = EventFile(self._logdir, name, state.file)
        self._notes: set[str] = set()  # why pictures are not drawn
        self._emptied: dict[str, Cut] = {}  # by the tags of images without any since then

    @property
    def restarts(self) -> int:
        """How often steps went back."""
        return self._state.restarts

    @property
    def begun(self) -> bool:
        """Whether anything has been written to the event file, now or earlier."""
        return self._file.begun

    def settle(self) -> None:
        """Writes all values and what is made of them, and cuts off what follows in the file.

        That is the layout of the Custom Scalars page, and the best values, unless they are written
        already. Behind may be what an earlier export has written.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._pass_on(self._buffer.flush())
        for tag, points in self._new_best():
            for step, wall_time, value in points[-self._most :]:
                self._write(step, wall_time, BEST_KIND, [scalar(tag, value)])
        point = layout_point(self._tags.of("scalars"), evaluation=self.is_evaluation)
        if point is not None and self._wants(point.plugin):
            checksum = zlib.crc32(point.value.tensor.string_val[0])
            if checksum != self._state.layout:
                self._state.layout = checksum
                # The page shows the last one. All have step 0, so a restart removes none.
                self._write(0, float(self._file.position.stamp), "layout", [point])
        self._write_held()
        self._file.settle()

    def put(self, step: int, wall_time: float, kind: str, points: list[Point]) -> None:
        """Writes points that describe the run, after all values so far."""
        self._pass_on(self._buffer.flush())
        self._write(step, wall_time, kind, points)

    def flush(self) -> None:
        """Hands all events to the operating system: from now on TensorBoard sees them.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._write_held()
        self._file.flush()

    def _write_held(self) -> None:
        """Writes what waits for the end of a step, or for the whole series."""
        self._pass_on(self._buffer.flush())
        if self._sampler is not None:
            for batch in self._sampler.drain():
                self._write_batch(batch)
        self._fill()

    def state(self) -> WriterState | None:
        """Flushes, and returns what a later export needs to continue; None without a file.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self.flush()
        if not self._file.position.size:
            return None
        self._state.steps = self._buffer.state(self._cuts.last())
        self._state.tags = self._tags.state()
        self._state.memories = {
            kind: sorted(mapper.memory) for kind, mapper in self._mappers.items() if mapper.memory
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
        for note in (*(mapper.note for mapper in self._mappers.values()), *self._notes):
            if note is not None and note not in self._report.notes:
                self._report.note(note)
        self._file.close(self._report)

    def _pass_batch(self, batch: Batch) -> None:
        """Writes values, or passes them to the sampler."""
        if self._sampler is None:
            self._write_batch(batch)
        else:
            self._sampler.add(batch)

    def _restart(self, cut: Cut, again: list[Record]) -> None:
        if self._sampler is not None:
            self._sampler.restart(cut.step, again)
            return
        self._state.restarts += 1
        self._state.layout = 0  # one of TensorBoard's loaders forgets the layout too
        if self.begun:
            self._file.write_restart(cut.step, cut.wall_time)
            self._emptied = dict.fromkeys(self._tags.of(IMAGES.name), cut)
            for record in again:
                self._write_record(record)
                self._report.exported.subtract(value.kind for value in record.values)

    def _write_batch(self, batch: Batch) -> None:
        """Writes records: as they are framed in the batch where possible, else one by one.

        Most series have to be converted at their first record only, some always. So each time
        that records have to be converted, twice as many are.
        """
        converted = 1
        while (count := len(batch)) > 1:
            places = [
                span.first_row for key, span in batch.series().items() if not self._is_framed(*key)
            ]
            framed = min(places, default=count)
            if framed:
                part = batch.part(0, framed)
                if not self._write_framed(part):
                    break
                for (kind, _), span in part.series().items():
                    self._report.exported[kind] += span.values
            reached = min(framed + converted, count)
            for record in batch.part(framed, reached).records():
                self._write_record(record)
            batch = batch.part(reached, count)
            converted *= 2
        for record in batch.records():
            self._write_record(record)

    def _fill(self) -> None:
        """Writes an image without content under each tag that may have none since a restart.

        The image page of TensorBoard's Python loader fails for all runs if there is a tag without
        any event. Its other loader forgets the images of a tag from the step of a new event on. An
        event without a sample is shown on no page.
        """
        for tag, cut in self._emptied.items():
            self._file.write(cut.step, cut.wall_time, [no_image(tag)])
        self._emptied.clear()

    def _write_framed(self, batch: Batch) -> bool:
        frames = batch.frames()
        if frames is None:
            return False
        self._file.write_framed(frames)
        for _, tag in batch.series():
            self._emptied.pop(tag, None)
        return True

    def _ready(self, record: Record, recorded: Recorded, points: list[Point]) -> list[Point]:
        points_made = []
        for point in points:
            try:
                points_made.append(point.rendered())
            except ImportError as error:
                self._notes.add(str(error))
        if recorded.kind == "tensor" and self._has_tensor_files:
            self._write_tensor(record.step, recorded)
        return points_made

    def _write_tensor(self, step: int, recorded: Recorded) -> None:
        """Writes a tensor to its file; of several with one tag and step, the last one stays."""
        array = from_tensor(recorded.value.tensor)
        path = f"{self.name}/{TENSOR_FOLDER}/{file_name(recorded.tag, step)}"
        with self._logdir.replacing(path) as file:
            save(file, array)

    def _write_points(self, record: Record, points: list[tuple[Recorded, Point]]) -> None:
        placed = [self._placed(point, recorded.kind) for recorded, point in points]
        self._file.write(record.step, record.wall_time, placed)

    def _write_graph(self, record: Record, graph: Any, kind: str, tag: str | None) -> None:
        if tag is None:
            serialized = graph.SerializeToString(deterministic=True)
            self._file.write_graph(record.wall_time, serialized)
        else:
            self._write(0, record.wall_time, kind, [tagged_graph(tag, graph)])

    def _write(self, step: int, wall_time: float, kind: str, points: list[Point]) -> None:
        placed = [self._placed(point, kind) for point in points if self._wants(point.plugin)]
        if placed:
            self._file.write(step, wall_time, placed)

    def _placed(self, point: Point, kind: str) -> Any:
        value = self._tags.place(point, kind)
        self._emptied.pop(value.tag, None)
        return value


class TensorBoardRuns(RunOutputs[TensorBoardRun]):
    """The TensorBoard runs of one recorded run, each with its event file.

    Attributes:
        report: Counts what is exported, and takes notes.
    """

    def __init__(
        self,
        run: Run,
        destination: Destination,
        targets: TargetNames,
        outputs: Mapping[str, WriterState],
    ) -> None:
        """Begins, or continues with the runs of an earlier export.

        Args:
            run: The run.
            destination: Where and how it is exported.
            targets: The names that the earlier export used; more are added.
            outputs: The state of each TensorBoard run of the earlier export, by name.

        Raises:
            DestinationError: A run directory cannot be read, or has event files of another writer.
        """
        super().__init__(run, destination.names, targets)
        self._destination, self.report = destination, destination.report
        self._earlier = dict(outputs)
        for name in outputs:
            self._open(name)
        shown = map(self._writer_name, filter(self.shows, run.ranks))
        for name in dict.fromkeys((*shown, run.name, self._evaluation_name())):
            destination.logdir.check(name)

    def running(self) -> TensorBoardRun:
        """Returns the TensorBoard run that exists only while the run is running."""
        name = self._name("running", f"{self.run.name}/{_RUNNING_RUN}")
        if name in self._outputs and not self._outputs[name].begun:
            del self._outputs[name]  # it was discarded; this is a new one
        return self._open(name)

    def states(self) -> dict[str, WriterState]:
        """Flushes, and returns what a later export needs to continue the runs that have a file.

        Raises:
            DestinationError: Something cannot be written.
        """
        states = {name: output.state() for name, output in self._outputs.items()}
        return {name: state for name, state in states.items() if state is not None}

    def discard_all(self) -> list[str]:
        """Closes all files, releases the names, and returns the names of all opened runs."""
        self.close()
        self._destination.names.release(self.targets.names.values())
        return list(self._outputs)

    def close(self) -> None:
        """Closes all files."""
        for output in self._outputs.values():
            output.close()

    def _new(self, name: str, stamp: int, *, is_evaluation: bool) -> TensorBoardRun:
        self._destination.logdir.check(name)
        state = self._earlier.pop(name, None) or WriterState(file=FilePosition(stamp))
        return TensorBoardRun(
            *(name, self._destination, state),
            is_evaluation=is_evaluation,
            directions=self.targets.directions,
        )


def is_sub_run(name: str, run: str) -> bool:
    """Whether a name is one that `TensorBoardRuns` may give to a sub-run of a run."""
    return name.startswith(f"{run}/") and bool(_SUB_RUN.fullmatch(name, len(run) + 1))
