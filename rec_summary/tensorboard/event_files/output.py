"""One TensorBoard run: values in, events at the end of one event file out."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final

from rec_summary.series.batch import HISTOGRAM, IMAGE, SCALAR, Batch, Record
from rec_summary.series.limits import MOST_GRAPHS
from rec_summary.series.merging import KIND
from rec_summary.series.options import EVERYTHING, ExportOptions, Selection
from rec_summary.series.report import Tally
from rec_summary.series.sampling import Thinner
from rec_summary.series.step_buffer import Finished, Restart, State, StepBuffer
from rec_summary.series.words import printable, reason
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs import tagged_graph
from rec_summary.tensorboard.dashboards.images import IMAGES
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.points import HISTOGRAMS, SCALARS, Plugin, Point
from rec_summary.tensorboard.event_files.continued_file import ContinuedFile
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.tags import Tags
from rec_summary.tensorboard.event_files.tensor_files import TensorFiles

_COMPUTATION: Final = "graph"
_PLUGINS: Final = {SCALAR: SCALARS, HISTOGRAM: HISTOGRAMS, IMAGE: IMAGES}


class TensorBoardRun:
    """Takes the values of one TensorBoard run, and appends them to its event file.

    `flush` puts on disk what has come so far; `state` is what a later export needs to go
    on. A run without values gets no file.

    Attributes:
        name: The run's name: its directory below the log directory.
        restarts: How often steps went back.
    """

    def __init__(
        self,
        name: str,
        stamp: int,
        logdir: LogDir,
        tally: Tally,
        options: ExportOptions,
        state: State | None = None,
    ) -> None:
        """Begins a run, or goes on with it; nothing is on disk before its first value.

        Args:
            name: The run's name.
            stamp: When its records were begun, in whole seconds; names the file.
            logdir: Where it goes.
            tally: Told of what is exported and what is not.
            options: What is exported.
            state: What `state` returned at the end of an earlier export.
        """
        self.name = name
        self.restarts = 0
        self._tally = tally
        self._selection = Selection(options)
        self._files = TensorFiles(logdir, name) if options.tensors == "npy" else None
        self._mappers = {kind: make() for kind, make in dashboards.VALUES.items()}
        self._tags = Tags(name, tally)
        self._thinner = None if options.max_points is None else Thinner(options.max_points)
        self._buffer = StepBuffer(name, tally)
        self._graphs: dict[str, list[int]] = {}  # checksums of those that were written, by kind
        self._layout = 0  # the checksum of the one that was written
        self._stamp = stamp
        self._file = ContinuedFile(logdir, name, stamp)
        if state is not None:
            self._restore(state)

    @property
    def begun(self) -> bool:
        """Whether anything has been written to the event file, now or earlier."""
        return self._file.begun

    @property
    def step(self) -> int | None:
        """The step at hand."""
        return self._buffer.step

    def record(self, batch: Batch) -> None:
        """Takes recorded values.

        Args:
            batch: Values of any kind; those without a dashboard are counted only.

        Raises:
            DestinationError: The event file cannot be written.
        """
        for (kind, _), span in batch.series().items():
            if kind not in self._mappers and kind != KIND:
                self._tally.unknown[kind] += span.values
        known = batch.select(EVERYTHING, self._mappers)
        selected = known.select(self._selection)
        self._tally.left_out += known.count - selected.count
        self._take(self._buffer.add(selected))

    def _passes(self, kind: str, tag: str) -> bool:
        """Whether a series is shown under its own tag, and nothing else comes of it."""
        plugin = _PLUGINS.get(kind)
        if plugin is None or not self.wants(plugin) or not self._tags.keeps(tag, plugin.name, kind):
            return False
        more = getattr(self._mappers[kind], "shows_more", None)
        return more is None or not more(tag)

    def shows(self, tag: str) -> bool:
        """Whether a value with this recorded tag has been taken."""
        self._take(self._buffer.flush())
        return self._tags.knows(tag)

    def lay_out(self, *, evaluation: bool = False) -> None:
        """Puts the charts that matter on the Custom Scalars page, if there are others than before.

        Args:
            evaluation: Whether the scalars are metrics of evaluations.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._take(self._buffer.flush())
        point = layout_point(self._tags.of("scalars"), evaluation=evaluation)
        if point is None or not self.wants(point.plugin):
            return
        checksum = zlib.crc32(point.value.tensor.string_val[0])
        if checksum != self._layout:
            self._layout = checksum
            # The page takes the last one; all have step 0, so none is lost in a restart.
            self._write(0, float(self._stamp), "layout", [point])

    def put(self, step: int, wall_time: float, kind: str, points: Iterable[Point]) -> None:
        """Takes finished points that come from records of `kind`, after all recorded values.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._take(self._buffer.flush())
        self._write(step, wall_time, kind, points)

    def put_graph(self, wall_time: float, graph: Any, kind: str = _COMPUTATION) -> None:
        """Takes a graph; one that has been there before is not shown again.

        A TensorBoard run has one computation graph; further ones (training was started
        again with another network) stand beside it as `graph_2` and so on, and so do graphs
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
        known = self._graphs.setdefault(kind, [])
        if zlib.crc32(serialized) in known:
            return
        if len(known) >= MOST_GRAPHS:
            self._tally.note(
                f"run {printable(self.name)}: of its graphs, the first {MOST_GRAPHS} are shown"
            )
            return
        known.append(zlib.crc32(serialized))
        self._take(self._buffer.flush())
        if kind == _COMPUTATION and len(known) == 1:
            self._file.writer().write_graph(wall_time, serialized)
        else:
            tag = kind if len(known) == 1 else f"{kind}_{len(known)}"
            self._write(0, wall_time, kind, [tagged_graph(tag, graph)])

    def wants(self, plugin: Plugin) -> bool:
        """Whether values for this plugin are exported."""
        return self._selection.plugin(plugin.dashboard)

    def flush(self) -> None:
        """Hands all events to the operating system: from now on TensorBoard sees them.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._take(self._buffer.flush())
        if self._thinner is not None:
            for batch in self._thinner.drain():
                self._write_values(batch)
        self._file.flush()

    def settle(self) -> None:
        """Flushes, and cuts off what an earlier export has written beyond.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self.flush()
        self._file.settle()

    def state(self) -> State | None:
        """Flushes, and returns what another object needs to go on; None if nothing is there.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self.flush()
        file = self._file.state()
        if not file["size"]:
            return None
        memories = {kind: sorted(memory) for kind, memory in self._memories()}
        return {
            **file,
            "steps": self._buffer.state(),
            "tags": self._tags.state(),
            "memories": memories,
            "graphs": self._graphs,
            "layout": self._layout,
            "restarts": self.restarts,
        }

    def discard(self) -> None:
        """Removes the event file: there is no such TensorBoard run any more.

        Raises:
            DestinationError: It cannot be removed.
        """
        self._file.discard()

    def close(self) -> None:
        """Closes the event file, and counts what was written; `flush` comes before it."""
        for mapper in self._mappers.values():
            note = getattr(mapper, "note", None)
            if note is not None and note not in self._tally.notes:
                self._tally.note(note)
        self._file.close(self._tally)

    def _restore(self, state: State) -> None:
        self._stamp = state["stamp"]
        self._file.restore(state)
        self._buffer.restore(state["steps"])
        self._tags.restore(state["tags"])
        self._graphs = state["graphs"]
        self._layout = state["layout"]
        self.restarts = state["restarts"]
        for kind, memory in self._memories():
            memory.update(state["memories"].get(kind, ()))

    def _memories(self) -> Iterable[tuple[str, set[str]]]:
        for kind, mapper in self._mappers.items():
            memory = getattr(mapper, "memory", None)
            if memory is not None:
                yield kind, memory

    def _take(self, finished: Iterable[Finished]) -> None:
        for each in finished:
            if isinstance(each, Restart):
                if self._thinner is None:
                    self._restart(each)
                else:
                    self._thinner.restart(each)
            elif self._thinner is None:
                self._write_values(each)
            else:
                self._thinner.add(each)

    def _write_values(self, batch: Batch) -> None:
        """Writes values: as they are, as far as nothing about their series has to be changed."""
        while len(batch):
            series = batch.series()
            changed = {each: span.place for each, span in series.items() if not self._passes(*each)}
            ready = batch.part(0, min(changed.values(), default=len(batch)))
            pieces = ready.frames() if len(ready) else []
            if pieces is None:
                break
            if pieces:
                self._file.writer().write_framed(pieces)
                for (kind, _), span in ready.series().items():
                    self._tally.exported[kind] += span.values
            if not changed:
                return
            # The first value of a series gives it its place; then the others may be ready, too.
            place = len(ready)
            for record in batch.part(place, place + 1).records():
                self._write_record(record)
            batch = batch.part(place + 1, len(batch))
            if not all(self._passes(*each) for each, at in changed.items() if at == place):
                break
        for record in batch.records():
            self._write_record(record)

    def _write_record(self, record: Record) -> None:
        placed: list[Any] = []
        for recorded in record.values:
            try:
                points = list(self._mappers[recorded.kind](recorded.tag, recorded.value))
            except (ValueError, ArithmeticError, MemoryError) as error:
                what = f"{recorded.kind} {recorded.tag!r} cannot be shown: {reason(error)}"
                self._tally.problem(record.path, record.offset, what)
                continue
            if recorded.kind == "tensor" and self._files is not None:
                self._files.write(recorded.tag, record.step, recorded.value.tensor)
            placed.extend(self._placed(points, recorded.kind))
            self._tally.exported[recorded.kind] += 1
        if placed:
            self._file.writer().write(record.step, record.wall_time, placed)

    def _write(self, step: int, wall_time: float, kind: str, points: Iterable[Point]) -> None:
        placed = self._placed(points, kind)
        if placed:
            self._file.writer().write(step, wall_time, placed)

    def _placed(self, points: Iterable[Point], kind: str) -> list[Any]:
        return [self._tags.place(point, kind) for point in points if self.wants(point.plugin)]

    def _restart(self, restart: Restart) -> None:
        self.restarts += 1
        self._layout = 0  # one loader forgets it, too
        if self.begun:
            self._file.writer().write_restart(restart.step, restart.origin.wall_time)
