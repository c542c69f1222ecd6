"""Writing one TensorBoard run: batches of records in, events of one event file out."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from rec_summary.series.batch import Batch, Record, Recorded
from rec_summary.series.limits import MOST_GRAPHS, Checksum, Count
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.sampling import RunSampler
from rec_summary.series.step_buffer import BufferState, Finished, Restart, StepBuffer
from rec_summary.series.text import check_unicode, printable, reason
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs.graph_def import tagged_graph
from rec_summary.tensorboard.dashboards.groups import grouped
from rec_summary.tensorboard.dashboards.images import IMAGES, no_image
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.points import Plugin, Point
from rec_summary.tensorboard.event_files.event_file import EventFile, FilePosition
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.values.npy import file_name, save
from rec_summary.values.tensor import from_tensor

TENSOR_FOLDER: Final = "tensors"
COMPUTATION: Final = "graph"
# TensorBoard gives a meaning to tags that begin so: no recorded series may have one.
_RESERVED: Final = "_hparams_/"


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
    """

    file: FilePosition
    steps: BufferState
    tags: list[tuple[str, str, str, str]]
    memories: dict[str, list[str]]
    graphs: dict[str, list[Checksum]]
    layout: Checksum
    restarts: Count

    def __post_init__(self) -> None:
        check_unicode(self.tags)


class Tags:
    """Gives tags to the series of one TensorBoard run.

    TensorBoard distinguishes the series of a run by tag alone, and takes the plugin of a tag from
    its first value. One tag for two kinds of value breaks the scalar page. So a series is known
    by the recorded tag, the plugin, and the kind of record. The first series with a tag keeps
    it. A later one gets the name of its plugin added, `loss` becomes `loss/histograms`, and
    underscores if that tag exists too. Tags that few people look at are in groups of their own.
    """

    def __init__(
        self, run: str, report: Report, state: Iterable[tuple[str, str, str, str]] = ()
    ) -> None:
        """Begins with the series of an earlier export; their metadata is written already.

        Args:
            run: The name of the TensorBoard run.
            report: Takes notes of tags that had to be changed.
            state: Recorded tag, plugin, kind, and the tag that is shown, of each series.
        """
        self._run = run
        self._report = report
        self._shown = {(tag, plugin, kind): shown for tag, plugin, kind, shown in state}
        self._taken = set(self._shown.values())
        self._recorded = {tag for tag, _, _ in self._shown}

    def knows(self, tag: str) -> bool:
        """Whether a series that was recorded under `tag` has a tag."""
        return tag in self._recorded

    def keeps(self, tag: str, plugin: str, kind: str) -> bool:
        """Whether a series has the tag that was recorded."""
        return self._shown.get((tag, plugin, kind)) == tag

    def of(self, plugin: str) -> list[str]:
        """Returns the tags of all series of a plugin, as they are shown, in order."""
        return sorted(shown for (_, name, _), shown in self._shown.items() if name == plugin)

    def state(self) -> list[tuple[str, str, str, str]]:
        """Returns what a later export begins with."""
        return [(*series, shown) for series, shown in self._shown.items()]

    def place(self, point: Point, kind: str) -> Any:
        """Returns the point's value with its tag, and with metadata if it is the series' first.

        Args:
            point: The value; it is changed in place.
            kind: The kind of record that it comes from.
        """
        value = point.value
        key = (point.tag, point.plugin.name, kind)
        shown = self._shown.get(key)
        if shown is None:
            shown = self._shown[key] = self._choose(point)
            self._recorded.add(point.tag)
            value.metadata.CopyFrom(point.plugin.metadata)
        value.tag = shown
        return value

    def _choose(self, point: Point) -> str:
        name = grouped(point.tag)
        if name in self._taken or (name.startswith(_RESERVED) and not point.plugin.reserved):
            name = f"{name}/{point.plugin.name}"
            while name in self._taken:
                name += "_"
            self._report.note(
                f"run {printable(self._run)}: tag {printable(point.tag)!r} is used for more than "
                f"one kind of value; what is for {point.plugin.name} is shown as "
                f"{printable(name)!r}"
            )
        self._taken.add(name)
        return name


class TensorBoardRun:
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
    ) -> None:
        """Begins a run, or continues one; its file is created with its first value.

        Args:
            name: The run's name.
            stamp: When its records were begun, in whole seconds; names a new event file.
            logdir: Where it goes.
            report: Counts what is exported and what is not.
            options: What is exported.
            state: What `state` returned at the end of an earlier export.
        """
        self.name = name
        self._logdir = logdir
        self._report = report
        self._selection = Selection(options)
        self._has_tensor_files = options.tensors == "npy"
        self._mappers = {kind: make() for kind, make in dashboards.VALUES.items()}
        self._sampler = None if options.max_points is None else RunSampler(options.max_points)
        state = state or OutputState(
            FilePosition(stamp), BufferState(None, [], []), [], {}, {}, layout=0, restarts=0
        )
        self._state = state
        self._buffer = StepBuffer(name, report, state.steps)
        self._tags = Tags(name, report, state.tags)
        self._file = EventFile(logdir, name, state.file)
        self._emptied: dict[str, Restart] = {}  # by the tags of images without any since then
        for kind in state.memories.keys() & self._mappers.keys():
            self._mappers[kind].memory.update(state.memories[kind])

    @property
    def restarts(self) -> int:
        """How often steps went back."""
        return self._state.restarts

    @property
    def begun(self) -> bool:
        """Whether anything has been written to the event file, now or earlier."""
        return self._file.begun

    @property
    def step(self) -> int | None:
        """The current step."""
        return self._buffer.step

    def take(self, batch: Batch) -> None:
        """Takes recorded values.

        Values of kinds without a dashboard are counted only.

        Raises:
            DestinationError: The event file cannot be written.
        """
        chosen = batch.select(self._selection, self._mappers)
        left_out = batch.count - chosen.count
        if left_out:
            for (kind, _), span in batch.series().items():
                if kind not in self._mappers:
                    self._report.unknown[kind] += span.values
                    left_out -= span.values
            self._report.left_out += left_out
        self._pass_on(self._buffer.add(chosen))

    def shows(self, tag: str) -> bool:
        """Whether there is a value with this recorded tag."""
        self._pass_on(self._buffer.flush())
        return self._tags.knows(tag)

    def lay_out(self, *, evaluation: bool = False) -> None:
        """Writes the layout of the Custom Scalars page, unless it is written already.

        Args:
            evaluation: Whether the scalars are metrics of evaluations.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._pass_on(self._buffer.flush())
        point = layout_point(self._tags.of("scalars"), evaluation=evaluation)
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

    def put_graph(self, wall_time: float, graph: Any, kind: str = COMPUTATION) -> None:
        """Writes a graph, unless the same graph is written already.

        A TensorBoard run has one computation graph. Further ones (training was started
        again with another network) are shown beside it as `graph_2` and so on, and so are graphs
        of another kind under the name of that kind.

        Args:
            wall_time: Seconds since the epoch.
            graph: A `GraphDef`.
            kind: What it is a graph of.

        Raises:
            DestinationError: The event file cannot be written.
        """
        if not self._selection.plugin("graphs"):
            return
        serialized = graph.SerializeToString(deterministic=True)
        known = self._state.graphs.setdefault(kind, [])
        if zlib.crc32(serialized) in known:
            return
        if len(known) >= MOST_GRAPHS:
            self._report.note(
                f"run {printable(self.name)}: of its graphs, the first {MOST_GRAPHS} are shown"
            )
            return
        known.append(zlib.crc32(serialized))
        self._pass_on(self._buffer.flush())
        if kind == COMPUTATION and len(known) == 1:
            self._file.write_graph(wall_time, serialized)
        else:
            tag = kind if len(known) == 1 else f"{kind}_{len(known)}"
            self._write(0, wall_time, kind, [tagged_graph(tag, graph)])

    def flush(self) -> None:
        """Hands all events to the operating system: from now on TensorBoard sees them.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._pass_on(self._buffer.flush())
        if self._sampler is not None:
            for batch in self._sampler.drain():
                self._write_batch(batch)
        self._fill()
        self._file.flush()

    def settle(self) -> None:
        """Flushes, and cuts off what an earlier export has written beyond.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self.flush()
        self._file.settle()

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

    def _wants(self, plugin: Plugin) -> bool:
        return self._selection.plugin(plugin.dashboard)

    def _pass_on(self, finished: Iterable[Finished]) -> None:
        """Writes what is finished, or passes it to the sampler."""
        for each in finished:
            if isinstance(each, Restart):
                self._restart(each)
            elif self._sampler is not None:
                self._sampler.add(each)
            else:
                self._write_batch(each)

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

    def _write_batch(self, batch: Batch) -> None:
        """Writes records: as they are framed in the batch where possible, else one by one.

        Most series have to be converted at their first record only, some always. So each time
        that records have to be converted, twice as many are.
        """
        converted = 1
        while (count := len(batch)) > 1:
            places = [
                span.place for each, span in batch.series().items() if not self._is_framed(*each)
            ]
            framed = min(places, default=count)
            if framed:
                part = batch.part(0, framed)
                frames = part.frames()
                if frames is None:
                    break
                self._file.write_framed(frames)
                for (kind, tag), span in part.series().items():
                    self._report.exported[kind] += span.values
                    self._emptied.pop(tag, None)
            reached = min(framed + converted, count)
            for record in batch.part(framed, reached).records():
                self._write_record(record)
            batch = batch.part(reached, count)
            converted *= 2
        for record in batch.records():
            self._write_record(record)

    def _is_framed(self, kind: str, tag: str) -> bool:
        """Whether all that is shown of a series is its values, under the tag that was recorded."""
        mapper = self._mappers[kind]
        return (
            mapper.plugin is not None
            and self._wants(mapper.plugin)
            and self._tags.keeps(tag, mapper.plugin.name, kind)
            and not mapper.shows_more(tag)
        )

    def _write_record(self, record: Record) -> None:
        placed: list[Any] = []
        for recorded in record.values:
            try:
                points = list(self._mappers[recorded.kind](recorded.tag, recorded.value))
            except (ValueError, ArithmeticError, MemoryError) as error:
                what = f"{recorded.kind} {recorded.tag!r} cannot be shown: {reason(error)}"
                self._report.problem(record.path, record.offset, what)
                continue
            if recorded.kind == "tensor" and self._has_tensor_files:
                self._write_tensor(record.step, recorded)
            placed.extend(self._placed(points, recorded.kind))
            self._report.exported[recorded.kind] += 1
        if placed:
            self._file.write(record.step, record.wall_time, placed)

    def _write_tensor(self, step: int, recorded: Recorded) -> None:
        """Writes a tensor to its file; of several with one tag and step, the last one stays."""
        array = from_tensor(recorded.value.tensor)
        path = f"{self.name}/{TENSOR_FOLDER}/{file_name(recorded.tag, step)}"
        with self._logdir.replacing(path) as file:
            save(file, array)

    def _write(self, step: int, wall_time: float, kind: str, points: Iterable[Point]) -> None:
        placed = self._placed(points, kind)
        if placed:
            self._file.write(step, wall_time, placed)

    def _placed(self, points: Iterable[Point], kind: str) -> list[Any]:
        placed = [self._tags.place(point, kind) for point in points if self._wants(point.plugin)]
        for value in placed if self._emptied else ():
            self._emptied.pop(value.tag, None)
        return placed
