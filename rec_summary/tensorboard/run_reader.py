"""Reading one run: its ranks, its lineage, its evaluations, to its TensorBoard runs."""

from __future__ import annotations

import contextlib
import heapq
import math
import operator
import os
from collections import ChainMap
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, field

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, Batch, Record
from rec_summary.series.limits import Rank, Seconds, Step
from rec_summary.series.lineage import EVALUATION, LINEAGE, Lineage, metrics_of, numeric, take
from rec_summary.series.new_records import NewRecords, ReadPosition, behind
from rec_summary.series.options import EVERYTHING, Selection
from rec_summary.series.ranks.merging import KIND, Merging, MergingState
from rec_summary.series.ranks.summary import RankSummary
from rec_summary.series.runs.writers import Writers
from rec_summary.series.text import printable, reason
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.outputs import COMPUTATION, EVALUATION_RUN, RunOutput, RunOutputs

_VERSION: Final = "version"


class ReadingState(Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a run has been read; at the beginning, not at all.

    An unknown field is refused: it may be a damaged name of one that would then be missing.

    Attributes:
        files: How far each record file was read.
        writers: Who wrote which file.
        began: The time of the first record, in seconds since the epoch.
        merging: What is known of the states of metrics.
        reached: The highest step of a summary.
        furthest: The step that is furthest from zero.
        evaluating_rank: The rank whose evaluations are shown.
        ranks: What is known of all ranks together; None if that is not known.
    """

    files: dict[str, ReadPosition] = {}
    writers: Writers = field(default_factory=Writers)
    began: Seconds | None = None
    merging: MergingState = field(default_factory=MergingState)
    reached: Step = 0
    furthest: Step = 0
    evaluating_rank: Rank | None = None
    ranks: RankSummary | None = None


def continues(run: Run, state: ReadingState, records: NewRecords) -> bool:
    """Whether the files of a run go on from what was read of them."""
    known = state.files.keys() & {os.path.basename(file.path) for file in run.files}
    # The oldest summary files may be gone, to make room on the disk. A lineage file is
    # never removed alone: if one is gone, these are the records of another training.
    known |= compacted(run, state)  # compaction has kept what counts of them
    gone = state.files.keys() - known
    if not known or any(name.endswith(Kind.LINEAGE.value) for name in gone):
        return False
    if gone and _has_older(run, state):
        return False
    return not is_replaced(run, state, records)


def compacted(run: Run, state: ReadingState) -> set[str]:
    """Returns the names of files that were read and that compacted files have replaced."""
    made = [file.name for file in run.files if file.name.last is not None]
    return {
        name
        for name in state.files.keys() - {os.path.basename(file.path) for file in run.files}
        if (parsed := parse_name(name)) is not None and any(new.covers(parsed) for new in made)
    }


def _has_older(run: Run, state: ReadingState) -> bool:
    """Whether there are new files older than some that were read, and not made of them."""
    latest: dict[tuple[Kind, int], tuple[Any, ...]] = {}
    names = list(filter(None, map(parse_name, state.files)))
    for name in names:
        key = name.kind, name.rank
        latest[key] = max(latest.get(key, name.order), name.order)
    return any(
        os.path.basename(file.path) not in state.files
        and (file.name.kind, file.name.rank) in latest
        and file.name.order <= latest[file.name.kind, file.name.rank]
        and not any(map(file.name.covers, names))
        for file in run.files
    )


def is_replaced(run: Run, state: ReadingState, records: NewRecords) -> bool:
    """Whether record files have other bytes than those that were read, as far as is known."""
    places = {
        file: state.files[name]
        for file in run.files
        if (name := os.path.basename(file.path)) in state.files
    }
    if any(file.nbytes < place.offset for file, place in places.items()):
        return True
    # Other bytes are worth reading all again only if nothing is lost by it.
    return len(places) == len(state.files) and any(
        records.is_replaced(file, place) for file, place in places.items()
    )


class DerivedRecord(Record):
    """Values that are in no file as they are: they were made of the records of several ranks."""

    @classmethod
    def at(
        cls, step: int, wall_time: float, path: str, offset: int, values: list[Summary.Value]
    ) -> DerivedRecord:
        """Returns values of a step as if they had been recorded at a place."""
        event = Event(step=step, wall_time=wall_time, summary=Summary(value=values))
        return cls(path, offset, event.ByteSize(), wall_time, event)


class RunReader:
    """Reads what is new in the records of a run, and passes it to its TensorBoard runs.

    Take each batch of `new`, then `join` what all ranks have in common.

    Attributes:
        state: How far the run has been read.
        lineages: What is known of each rank.
        outputs: The TensorBoard runs of the run.
    """

    def __init__(
        self,
        state: ReadingState,
        lineages: dict[int, Lineage],
        outputs: RunOutputs[Any],
        records: NewRecords,
        selection: Selection = EVERYTHING,
    ) -> None:
        """Begins, or continues where an earlier reader stopped; opens nothing yet.

        Args:
            state: How far the run was read; kept up to date.
            lineages: What is known of each rank; kept up to date.
            outputs: Its TensorBoard runs.
            records: Reads the files.
            selection: Files without values of the selected times are not opened, apart from the
                first one of each rank.
        """
        self.state, self.lineages, self.outputs = state, lineages, outputs
        self._records = records
        self._report = records.report
        self._selection = selection
        self._merging = Merging(outputs.run.name, self._report, state.merging)
        state.ranks = (state.ranks or RankSummary()) if outputs.targets.several else None

    @property
    def directions(self) -> dict[str, str]:
        """Which values of metrics are better, as the run states it; the lowest rank counts."""
        return dict(ChainMap(*(each.directions for _, each in sorted(self.lineages.items()))))

    def new(self, run: Run, *, final: bool) -> Iterator[tuple[RecordFile, Batch]]:
        """Yields what is new, rank after rank; it counts as read when it has been taken.

        Args:
            run: The run, with its files.
            final: Whether an unfinished record is reported; if not, files that have not grown are
                not opened.
        """
        self.outputs.run = run
        for rank in run.ranks:
            for kind in (Kind.SUMMARY, Kind.LINEAGE):
                files = run.files_of(kind, rank)
                for file in files:
                    # The graph is in the first summary file.
                    is_read = kind is Kind.LINEAGE or file is files[0]
                    if is_read or self._selection.may_hold(file):
                        yield from self._new_in(file, newest=file is files[-1], final=final)

    def _new_in(
        self, file: RecordFile, *, newest: bool, final: bool
    ) -> Iterator[tuple[RecordFile, Batch]]:
        name, state = os.path.basename(file.path), self.state
        place = state.files.get(name)
        if place is None:
            # If it is a compacted file, it may be made of files that were read.
            place = ReadPosition(behind(file, self._last_time(file)))
            if place.offset:
                state.files[name] = place
        if (0 < place.offset == file.nbytes) or (not final and file.nbytes <= place.offset):
            return
        again = place.ended
        with contextlib.closing(
            self._records.read(file, place, newest=newest, final=final)
        ) as batches:
            for batch in batches:
                if state.began is None:
                    state.began = float(batch.wall_times[0])
                state.files[name] = place  # this batch is not passed on yet
                yield file, batch
        state.files[name] = place
        self._report.files += not (again and place.ended)

    def _last_time(self, file: RecordFile) -> float:
        """Returns the time of the last record that was read of those that a file is made of."""
        if file.name.kind is Kind.SUMMARY:
            writer = self.state.writers.continued(file)
            return writer.last if writer is not None else -math.inf
        lineage, names = self.lineages.get(file.name.rank), map(parse_name, self.state.files)
        if lineage is not None and any(joined and file.name.covers(joined) for joined in names):
            return lineage.last_time
        return -math.inf

    def take(self, file: RecordFile, batch: Batch) -> None:
        """Passes on a batch of a file."""
        if batch.kind == SUMMARY:
            self._take_values(file, batch)
        elif file.name.kind is Kind.LINEAGE:
            for record in batch.records():
                self._take_lineage(file.name.rank, record)
        else:
            self.state.writers.begins(file, batch)
            for record in batch.records():
                if record.kind == dashboards.COMPUTATION_GRAPH:
                    self._take_graph(self.output_of(file, record), record, COMPUTATION)
                elif record.kind != _VERSION:
                    self._report.unknown[record.kind] += 1
        self.state.files[os.path.basename(file.path)].offset = batch.end_offset

    def output_of(self, file: RecordFile, batch: Batch) -> RunOutput | None:
        """Returns where values of a summary file go; None if its rank is not shown by itself."""
        writer = self.state.writers.of(file, batch)
        output: RunOutput | None = self.outputs.writer(writer.rank, writer.number)
        return output

    def join(self) -> None:
        """Passes on what is known of all ranks together now, and was not before."""
        # It is the run's own: the values of its ranks are in sub-runs. Not by step: states are
        # recorded so seldom that they may not show a restart that other values do.
        merged = (
            DerivedRecord.at(p.step, p.origin.wall_time, p.origin.path, p.origin.offset, p.values)
            for p in self._merging.points(self.outputs.run.files)
        )
        by_time = operator.attrgetter("wall_time")
        for record in heapq.merge(merged, self._in_common(), key=by_time):
            self.outputs.session().take(record)

    def _in_common(self) -> Iterator[DerivedRecord]:
        """Yields what can be said of all ranks now and could not before, in that order."""
        if self.state.ranks is None:
            return
        run, stated = self.outputs.run, [each.state.rank_size for each in self.lineages.values()]
        for point in self.state.ranks.points(max(len(run.ranks), *stated, 2)):
            values = [Summary.Value(tag=tag, scalar_value=v) for tag, v in point.values.items()]
            yield DerivedRecord.at(point.step, point.wall_time, run.path, 0, values)

    def _take_values(self, file: RecordFile, batch: Batch) -> None:
        state, steps = self.state, batch.steps
        output, writer = self.output_of(file, batch), state.writers.known(file)
        highest = int(steps[-1])
        state.reached = max(state.reached, highest)
        state.furthest = max(state.furthest, highest, key=abs)
        series = batch.series().keys()
        if states := {each for each in series if each[0] == KIND}:
            if writer.number == 1:
                for record in batch.only(states).records():
                    self._merging.take(writer.rank, record)
            batch = batch.only(series - states)
        if state.ranks is not None and writer.number == 1:
            state.ranks.take(writer.rank, batch)
        if output is not None:
            output.take(batch)
            return
        self._report.left_out += batch.count
        run = self.outputs.run
        self._report.note(
            f"run {printable(run.name)}: only some of its {len(run.ranks)} ranks are "
            "shown separately; --ranks chooses them"
        )

    def _take_lineage(self, rank: int, record: Record) -> None:
        kind = record.kind
        if kind == _VERSION:
            return
        lineage = self.lineages.setdefault(rank, Lineage())
        if kind == dashboards.DATASET_GRAPH:
            self._take_graph(self.outputs.writer(rank), record, kind)
        elif kind == EVALUATION:
            self._take_evaluation(rank, record, lineage)
        elif kind not in LINEAGE:
            self._report.unknown[kind] += 1
        elif take(lineage, record, self._report):
            self._report.exported[kind] += 1

    def _take_graph(self, output: RunOutput | None, record: Record, name: str) -> None:
        if output is None:
            return
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
        step = evaluation.train_step or max(self.state.reached, self.state.furthest)
        self.state.furthest = max(self.state.furthest, step, key=abs)
        lineage.take_evaluation(evaluation, step, record.wall_time)
        if self.state.evaluating_rank is None:
            self.state.evaluating_rank = rank
        if self.state.evaluating_rank == rank:
            own = self.outputs.writer(rank)
            values = [
                Summary.Value(tag=name, scalar_value=number)
                for name, value in metrics_of(evaluation)
                # Our collector records metrics as scalars too: they are not exported twice.
                if (number := numeric(value)) is not None
                and not (own is not None and own.shows(f"{EVALUATION_RUN}/{name}"))
            ]
            origin = record.wall_time, record.path, record.offset
            self.outputs.evaluation().take(DerivedRecord.at(step, *origin, values))
        self._report.exported[record.kind] += 1
