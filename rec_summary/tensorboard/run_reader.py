"""Reading one run: its ranks, its lineage, its evaluations, to its TensorBoard runs."""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Iterator
from typing import Any, Final

from msgspec import field

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import SUMMARY, Batch, Record
from rec_summary.series.exports.reading import FileReader, FilesRead
from rec_summary.series.limits import Rank, Step
from rec_summary.series.lineage import EVALUATION, LINEAGE, Lineage, metrics_of, numeric, take
from rec_summary.series.ranks.merging import KIND, Merging, MergingState
from rec_summary.series.ranks.summary import RankSummary
from rec_summary.series.text import printable, reason
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.ranks import heat_map, overview
from rec_summary.tensorboard.outputs import COMPUTATION, EVALUATION_RUN, RunOutput, RunOutputs

_VERSION: Final = "version"
_RANKS: Final = "ranks"


class ReadingState(FilesRead, kw_only=True):
    """How far a run has been read.

    Attributes:
        merging: What is known of the states of metrics.
        reached: The highest step of a summary.
        furthest: The step that is furthest from zero.
        evaluating_rank: The rank whose evaluations are shown.
        ranks: What is known of all ranks together; None if that is not known.
    """

    merging: MergingState = field(default_factory=MergingState)
    reached: Step = 0
    furthest: Step = 0
    evaluating_rank: Rank | None = None
    ranks: RankSummary | None = None


class DerivedRecord(Record):
    """Values that are in no file as they are: they were made of the records of several ranks."""

    @classmethod
    def at(
        cls, step: int, wall_time: float, path: str, offset: int, values: list[Summary.Value]
    ) -> DerivedRecord:
        """Returns values of a step as if they had been recorded at a place."""
        event = Event(step=step, wall_time=wall_time, summary=Summary(value=values))
        return cls(path, offset, event.ByteSize(), wall_time, event)


class RunReader(FileReader):
    """Reads what is new in the records of a run, and passes it to its TensorBoard runs."""

    _state: ReadingState

    def _continue_from(
        self, state: ReadingState, outputs: RunOutputs[Any], lineages: dict[int, Lineage]
    ) -> None:
        """Begins, or continues where an earlier reader stopped.

        Args:
            state: How far the run was read; kept up to date.
            outputs: Its TensorBoard runs.
            lineages: What is known of each rank; kept up to date.
        """
        self._state = state
        self._outputs = outputs
        self._lineages = lineages
        self._merging = Merging(self._run.name, self._report, state.merging)
        state.ranks = (state.ranks or RankSummary()) if outputs.targets.several else None
        self._ranks = state.ranks

    def _reaches(self, step: int, output: RunOutput | None, nbytes: int) -> None:
        """Called before values are passed on.

        Args:
            step: Their first step.
            output: Where they go; None if their rank is not shown by itself.
            nbytes: The bytes that were read for them.
        """

    def _read_all(self, *, final: bool) -> Iterator[None]:
        """Reads what is new.

        Args:
            final: Whether an unfinished record is reported; if not, files that have not grown are
                not opened.

        Yields:
            Nothing, after each part. Reading can be stopped there.
        """
        yield from self._read_files(final=final)
        # They are the run's own: the values of its ranks are in sub-runs. Not by step: states are
        # recorded so seldom that they may not show a restart that other values do.
        for record in heapq.merge(
            self._merged(), self._in_common(), key=operator.attrgetter("wall_time")
        ):
            self._outputs.session().take(record)

    def _show_ranks(self, *, final: bool) -> None:
        """Shows pictures of all ranks, and their overview, if there is more to see.

        Args:
            final: Whether a few more points are enough.
        """
        if self._ranks is None or not self._ranks.is_due(final=final):
            return
        histories = self._ranks.histories()
        points = [overview(histories, self._ranks.reached), *map(heat_map, histories)]
        wall_time = max(history.wall_time for history in histories)
        step = max(int(history.steps[-1]) for history in histories)
        self._outputs.session().put(step, wall_time, _RANKS, points)

    def _merged(self) -> Iterator[DerivedRecord]:
        """Yields what merged states of metrics are now, in the order of training."""
        for point in self._merging.points(self._run.files):
            origin = point.origin.wall_time, point.origin.path, point.origin.offset
            yield DerivedRecord.at(point.step, *origin, point.values)

    def _in_common(self) -> Iterator[DerivedRecord]:
        """Yields what can be said of all ranks now and could not before, in that order."""
        if self._ranks is None:
            return
        stated = [each.state.rank_size for each in self._lineages.values()]
        for point in self._ranks.points(max(len(self._run.ranks), *stated, 2)):
            values = [Summary.Value(tag=tag, scalar_value=v) for tag, v in point.values.items()]
            origin = point.wall_time, self._run.path, 0
            yield DerivedRecord.at(point.step, *origin, values)

    def _last_time(self, file: RecordFile) -> float:
        if file.name.kind is not Kind.LINEAGE:
            return super()._last_time(file)
        names = map(parse_name, self._state.files)
        lineage = self._lineages.get(file.name.rank)
        if lineage is not None and any(joined and file.name.covers(joined) for joined in names):
            return lineage.last_time
        return -math.inf

    def _take(self, file: RecordFile, batch: Batch) -> None:
        if batch.kind == SUMMARY:
            self._take_values(file, batch)
            return
        if file.name.kind is Kind.SUMMARY:
            self._state.writers.begins(file, batch)
        for record in batch.records():
            if record.kind == _VERSION:
                continue
            if file.name.kind is Kind.LINEAGE:
                self._take_lineage(file.name.rank, record)
            elif record.kind == dashboards.COMPUTATION_GRAPH:
                writer = self._state.writers.of(file, record)
                if self._outputs.shows(writer.rank):
                    output = self._outputs.writer(writer.rank, writer.number)
                    self._take_graph(output, record, COMPUTATION)
            else:
                self._report.unknown[record.kind] += 1

    def _take_values(self, file: RecordFile, batch: Batch) -> None:
        steps, writer = batch.steps, self._state.writers.of(file, batch)
        output = None
        if self._outputs.shows(writer.rank):
            output = self._outputs.writer(writer.rank, writer.number)
        self._reaches(int(steps[0]), output, batch.end_offset - batch.offset)
        highest = int(steps[-1])
        self._state.reached = max(self._state.reached, highest)
        self._state.furthest = max(self._state.furthest, highest, key=abs)
        series = batch.series().keys()
        if states := {each for each in series if each[0] == KIND}:
            if writer.number == 1:
                for record in batch.only(states).records():
                    self._merging.take(writer.rank, record)
            batch = batch.only(series - states)
        if self._ranks is not None and writer.number == 1:
            self._ranks.take(writer.rank, batch)
        if output is not None:
            output.take(batch)
            return
        self._report.left_out += batch.count
        self._report.note(
            f"run {printable(self._run.name)}: only some of its {len(self._run.ranks)} ranks are "
            "shown separately; --ranks chooses them"
        )

    def _take_lineage(self, rank: int, record: Record) -> None:
        kind = record.kind
        lineage = self._lineages.setdefault(rank, Lineage())
        if kind == dashboards.DATASET_GRAPH:
            if self._outputs.shows(rank):
                self._take_graph(self._outputs.writer(rank), record, kind)
        elif kind == EVALUATION:
            self._take_evaluation(rank, record, lineage)
        elif kind not in LINEAGE:
            self._report.unknown[kind] += 1
        elif take(lineage, record, self._report):
            self._report.exported[kind] += 1

    def _take_graph(self, output: RunOutput, record: Record, name: str) -> None:
        try:
            graph = dashboards.GRAPHS[record.kind](getattr(record.event, record.kind))
        except (ValueError, ArithmeticError, MemoryError) as error:
            what = f"this {record.kind} cannot be shown: {reason(error)}; skipped"
            self._report.problem(record.path, record.offset, what)
            return
        output.put_graph(record, graph, name)
        self._report.exported[record.kind] += 1

    def _take_evaluation(self, rank: int, record: Record, lineage: Lineage) -> None:
        evaluation = record.event.evaluation_lineage
        # MindSpore states no step, and a process that trained nothing may state 0: the last one so
        # far is taken.
        step = evaluation.train_step or max(self._state.reached, self._state.furthest)
        self._state.furthest = max(self._state.furthest, step, key=abs)
        lineage.take_evaluation(evaluation, step, record.wall_time)
        if self._state.evaluating_rank is None:
            self._state.evaluating_rank = rank
        if self._state.evaluating_rank == rank:
            own = self._outputs.writer(rank) if self._outputs.shows(rank) else None
            values = [
                Summary.Value(tag=name, scalar_value=number)
                for name, value in metrics_of(evaluation)
                # Our collector records metrics as scalars too: they are not exported twice.
                if (number := numeric(value)) is not None
                and not (own is not None and own.shows(f"{EVALUATION_RUN}/{name}"))
            ]
            origin = record.wall_time, record.path, record.offset
            self._outputs.evaluation().take(DerivedRecord.at(step, *origin, values))
        self._report.exported[record.kind] += 1
