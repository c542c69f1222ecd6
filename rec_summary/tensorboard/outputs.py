"""The TensorBoard runs of a recorded run: what is shown where, whatever takes it.

`RunOutput` is one TensorBoard run: it takes recorded values, and maps them to points with tags.
`RunOutputs` has those of a recorded run, by their purpose. Event files and the
data provider are the two kinds of both.
"""

from __future__ import annotations

import abc
import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, field

from rec_summary.metrics.directions import stated_direction
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, Batch, Record, Recorded, by_tag
from rec_summary.series.best_values import BestPoint, BestSeries
from rec_summary.series.cuts import Cut, Cuts
from rec_summary.series.limits import MOST_GRAPHS, Checksum
from rec_summary.series.options import EVERYTHING, Selection
from rec_summary.series.report import Report
from rec_summary.series.step_buffer import BufferState, StepBuffer
from rec_summary.series.text import check_unicode, printable, reason
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.points import SCALARS, Plugin, Point, ValueMapper
from rec_summary.tensorboard.first_screen import has_best
from rec_summary.tensorboard.run_names import Names, TargetNames
from rec_summary.tensorboard.tag_groups import BEST
from rec_summary.tensorboard.tags import Tags
from rec_summary.values import slice_sums

COMPUTATION: Final = "graph"
BEST_KIND: Final = "best"
EVALUATION_RUN: Final = "eval"


class OutputState(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a later `RunOutput` needs to continue.

    Attributes:
        steps: The state of its step buffer.
        tags: Recorded tag, plugin, kind, and the tag that is shown, of each series.
        memories: What dashboards remember, by kind of value.
        graphs: The checksums of graphs that are shown, by kind of graph.
        best: The best values, by the tags of metrics.
    """

    steps: BufferState = field(default_factory=BufferState)
    tags: list[tuple[str, str, str, str]] = []
    memories: dict[str, list[str]] = {}
    graphs: dict[str, list[Checksum]] = {}
    best: dict[str, BestSeries] = {}

    def __post_init__(self) -> None:
        check_unicode([self.tags, list(self.best)])


class RunOutput(abc.ABC):
    """Takes the values of one TensorBoard run, and passes on the points that it shows.

    Attributes:
        name: The run's name.
        is_evaluation: Whether its scalars are metrics of evaluations.
    """

    def __init__(
        self,
        name: str,
        report: Report,
        selection: Selection,
        state: OutputState,
        *,
        is_evaluation: bool = False,
        directions: Mapping[str, str],
        lock: contextlib.AbstractContextManager[Any] | None = None,
    ) -> None:
        """Begins a run, or continues one.

        Args:
            name: The run's name.
            report: Counts what is shown and what is not.
            selection: What is shown.
            state: What an earlier output knew; graphs and best values are kept up to date.
            is_evaluation: Whether its scalars are metrics of evaluations.
            directions: Which values of metrics are better, as the run states it.
            lock: Held while values are taken.
        """
        self.name = name
        self.is_evaluation = is_evaluation
        self._report = report
        self._selection = selection
        self._directions = directions
        self._lock = contextlib.nullcontext() if lock is None else lock
        self._mappers: dict[str, ValueMapper] = {}  # by kind, of kinds that there are
        self._cuts = Cuts(name, report, state.steps.last)
        self._is_cut = False
        self._buffer = StepBuffer(report, state.steps)
        self._tags = Tags(name, report, state.tags)
        self._graphs = state.graphs
        self._best = state.best  # by the recorded tags of metrics
        for kind in state.memories.keys() & dashboards.VALUES.keys():
            self._mapper(kind).memory.update(state.memories[kind])

    @property
    def step(self) -> int | None:
        """The current step."""
        return self._buffer.step

    def take(self, batch: Batch) -> None:
        """Takes recorded values.

        Values of kinds without a dashboard are counted only. Sums by slice need none: their
        metrics are recorded as well.

        Raises:
            DestinationError: They cannot be written.
        """
        known = batch.select(EVERYTHING, dashboards.VALUES)
        if known.count < batch.count:
            for (kind, _), span in batch.series().items():
                if kind not in dashboards.VALUES and kind != slice_sums.KIND:
                    self._report.unknown[kind] += span.values
        with self._lock:
            for item in self._cuts.take(known):
                if isinstance(item, Cut):
                    self._begin_again(item)
                else:
                    self._pass_on(self._buffer.add(item, self._cuts.new))
            if self._cuts.new is None:
                self._buffer.forget()

    def shows(self, tag: str) -> bool:
        """Whether there is a value with this recorded tag."""
        with self._lock:
            self._pass_on(self._buffer.flush())
            return self._tags.has(tag)

    @abc.abstractmethod
    def put(self, step: int, wall_time: float, kind: str, points: list[Point]) -> None:
        """Shows points that describe the run as a whole, of series with one point in force.

        Args:
            step: The step that they are shown at.
            wall_time: Seconds since the epoch.
            kind: The kind of record that they are made of.
            points: The points.

        Raises:
            DestinationError: They cannot be written.
        """

    def put_graph(self, record: Record, graph: Any, kind: str = COMPUTATION) -> None:
        """Shows a graph, unless the same graph is shown already.

        A TensorBoard run has one computation graph. Further ones (training was started
        again with another network) are shown beside it as `graph_2` and so on, and so are graphs
        of another kind under the name of that kind.

        Args:
            record: The record that it was made of.
            graph: A `GraphDef`.
            kind: What it is a graph of.

        Raises:
            DestinationError: It cannot be written.
        """
        if not self._selection.plugin("graphs"):
            return
        serialized = graph.SerializeToString(deterministic=True)
        checksums = self._graphs.setdefault(kind, [])
        if zlib.crc32(serialized) in checksums:
            return
        if len(checksums) >= MOST_GRAPHS:
            self._report.note(
                f"run {printable(self.name)}: of its graphs, the first {MOST_GRAPHS} are shown"
            )
            return
        checksums.append(zlib.crc32(serialized))
        tag = None
        if kind != COMPUTATION or len(checksums) > 1:
            tag = kind if len(checksums) == 1 else f"{kind}_{len(checksums)}"
        with self._lock:
            self._pass_on(self._buffer.flush())
            self._write_graph(record, graph, kind, tag)

    @abc.abstractmethod
    def settle(self) -> None:
        """Shows all values so far, the best ones, and their layout as custom scalars.

        Raises:
            DestinationError: They cannot be written.
        """

    @abc.abstractmethod
    def _restart(self, cut: Cut, again: list[Record]) -> None:
        """Forgets what a new start supersedes.

        Args:
            cut: The new start.
            again: Values of it that were passed on before it was recognised, such as images that
                were recorded before the first scalar.
        """

    @abc.abstractmethod
    def _pass_batch(self, batch: Batch) -> None:
        """Writes the values of whole steps, now or later."""

    @abc.abstractmethod
    def _write_points(self, record: Record, points: list[tuple[Recorded, Point]]) -> None:
        """Writes the points of a record, each with the value that it was made of."""

    @abc.abstractmethod
    def _write_graph(self, record: Record, graph: Any, kind: str, tag: str | None) -> None:
        """Writes a graph under a tag; None for the first computation graph of the run."""

    def _begin_again(self, cut: Cut) -> None:
        """Goes on from a cut."""
        if not self._is_cut:
            self._is_cut = True
            self._report.note(
                f"run {printable(self.name)}: steps go back (first from {cut.reached} to "
                f"{cut.step}); TensorBoard shows the later values from there on"
            )
        if self._buffer.step != cut.step:
            self._pass_on(self._buffer.end())
        passed = self._buffer.again(cut)
        for series in self._best.values():
            series.forget(cut.step)
        again = [record.select(self._selection) for record in passed]
        for record in again:
            self._take_best(record)
        self._restart(cut._replace(wall_time=passed[0].wall_time) if passed else cut, again)

    def _pass_on(self, finished: Iterable[Batch]) -> None:
        """Writes what is selected of what is finished: a series that is not may show a cut."""
        for batch in finished:
            chosen = batch if self._selection.everything else batch.select(self._selection)
            self._report.left_out += batch.count - chosen.count
            if chosen.count:
                self._take_best(chosen)
                self._pass_batch(chosen)

    def _take_best(self, batch: Batch) -> None:
        """Adds values of metrics to the best ones."""
        group = f"{EVALUATION_RUN}/" if self.is_evaluation else ""
        stated = tuple(self._directions)
        wanted = {
            (kind, tag)
            for kind, tag in batch.series()
            if kind == SCALAR and has_best(group + tag, stated)
        }
        if wanted:
            for tag, columns in by_tag(batch.only(wanted).scalars()):
                direction = stated_direction(tag, self._directions)
                self._best.setdefault(tag, BestSeries()).extend(tag, columns, direction)

    def _new_best(self) -> Iterator[tuple[str, list[BestPoint]]]:
        """Yields tags, and the best values since the last call."""
        for metric, series in self._best.items() if self._wants(SCALARS) else ():
            if points := series.new():
                yield BEST + metric, points

    def _wants(self, plugin: Plugin) -> bool:
        return self._selection.plugin(plugin.dashboard)

    def _is_framed(self, kind: str, tag: str) -> bool:
        """Whether all that is shown of a series is its values, under the tag that was recorded."""
        mapper = self._mapper(kind)
        return (
            mapper.plugin is not None
            and self._wants(mapper.plugin)
            and self._tags.shown(tag, mapper.plugin.name, kind) == tag
            and not mapper.shows_more(tag)
        )

    def _write_record(self, record: Record) -> None:
        shown_points: list[tuple[Recorded, Point]] = []
        for recorded in record.values:
            try:
                points = list(self._mapper(recorded.kind)(recorded.tag, recorded.value))
                if recorded.kind != SCALAR:  # of which there are very many
                    points = self._ready(record, recorded, points)
            except (ValueError, ArithmeticError, MemoryError) as error:
                what = f"{recorded.kind} {recorded.tag!r} cannot be shown: {reason(error)}"
                self._report.problem(record.path, record.offset, what)
                continue
            shown_points.extend((recorded, point) for point in points if self._wants(point.plugin))
            self._report.exported[recorded.kind] += 1
        if shown_points:
            self._write_points(record, shown_points)

    def _ready(self, record: Record, recorded: Recorded, points: list[Point]) -> list[Point]:
        """Returns the points of a recorded value, other than a scalar, that are written.

        Raises:
            ValueError: They cannot be shown.
        """
        return points

    def _mapper(self, kind: str) -> ValueMapper:
        mapper = self._mappers.get(kind)
        if mapper is None:
            mapper = self._mappers[kind] = dashboards.VALUES[kind]()
        return mapper


Output = TypeVar("Output", bound=RunOutput)


class RunOutputs(abc.ABC, Generic[Output]):
    """The TensorBoard runs of one recorded run: its own, and its sub-runs.

    Each is opened when it gets its first value.

    Attributes:
        run: The run, with its current files.
        targets: The names in use, by purpose.
    """

    def __init__(self, run: Run, names: Names, targets: TargetNames) -> None:
        """Begins, or continues with the runs of an earlier export.

        Args:
            run: The run.
            names: Assigns names to TensorBoard runs.
            targets: The names that are in use already; more are added.
        """
        self.run = run
        self.targets = targets
        self._assigned = names
        self._outputs: dict[str, Output] = {}  # by name
        names.add(self.names())

    def names(self) -> list[str]:
        """Returns all names in use."""
        return [*self.targets.names.values(), self.run.name]

    def session(self) -> Output:
        """Returns the TensorBoard run of the run itself; HParams shows it as a session."""
        return self._open(self.run.name)

    def evaluation(self) -> Output:
        """Returns the TensorBoard run of the metrics of evaluations."""
        return self._open(self._evaluation_name())

    def shows(self, rank: int) -> bool:
        """Whether a rank is shown by itself, beside what all ranks have in common."""
        return self._assigned.shows(self.run, rank)

    def writer(self, rank: int, number: int = 1) -> Output | None:
        """Returns the TensorBoard run of a rank; its further writers have numbers from 2 on.

        None if the rank is not shown by itself.
        """
        return self._open(self._writer_name(rank, number), rank) if self.shows(rank) else None

    def settle(self) -> None:
        """Shows all values so far.

        Raises:
            DestinationError: Something cannot be written.
        """
        for output in self._outputs.values():
            output.settle()

    @abc.abstractmethod
    def _new(self, name: str, stamp: int, *, is_evaluation: bool) -> Output:
        """Returns a new TensorBoard run.

        Args:
            name: Its name.
            stamp: When its records were begun, in whole seconds.
            is_evaluation: Whether its scalars are metrics of evaluations.
        """

    def _open(self, name: str, rank: int | None = None) -> Output:
        """Returns the TensorBoard run of a name; `rank` is given if it belongs to one rank."""
        if name not in self._outputs:
            files = self.run.files
            if rank is not None and name != self.run.name:
                files = tuple(file for kind in Kind for file in self.run.files_of(kind, rank))
            stamp = min((file.name.stamp for file in files), default=0)
            is_evaluation = name == self.targets.names.get("evaluation")
            self._outputs[name] = self._new(name, stamp, is_evaluation=is_evaluation)
        return self._outputs[name]

    def _writer_name(self, rank: int, number: int = 1) -> str:
        names, key = self.targets.names, f"rank {rank}"
        if number > 1:
            wanted = f"{self._writer_name(rank)}/writer_{number}"
            return self._name(f"{key} writer {number}", wanted)
        if not self.targets.several and not any(other.startswith("rank ") for other in names):
            names[key] = self.run.name
        return self._name(key, f"{self.run.name}/rank_{rank}")

    def _evaluation_name(self) -> str:
        return self._name("evaluation", f"{self.run.name}/{EVALUATION_RUN}")

    def _name(self, key: str, wanted: str) -> str:
        names = self.targets.names
        if key not in names:
            names[key] = self._assigned.claim(wanted)
        return names[key]
