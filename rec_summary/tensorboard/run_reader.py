"""Reading one run: its ranks, its lineage, its evaluations, to its TensorBoard runs."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, Batch, Record
from rec_summary.series.limits import Rank, Seconds, Step
from rec_summary.series.lineage import EVALUATION, LINEAGE, Lineage, metrics_of, numeric, take
from rec_summary.series.new_records import FilePlace, NewRecords, behind
from rec_summary.series.ranks import KIND, Merging, MergingState
from rec_summary.series.report import Report
from rec_summary.series.text import reason
from rec_summary.series.values import Writers
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs.computation import graph_def
from rec_summary.tensorboard.dashboards.graphs.dataset import dataset_graph_def
from rec_summary.tensorboard.outputs import COMPUTATION, EVALUATION_RUN, RunOutput, RunOutputs

_VERSION: Final = "version"
_COMPUTATION_GRAPH: Final = "graph_def"


class ReadingState(Struct, kw_only=True):
    """How far a run has been read.

    Attributes:
        files: How far each record file was read.
        writers: Who wrote which file.
        merging: What is known of the states of metrics.
        began: The time of the first record, in seconds since the epoch.
        reached: The highest step of a summary.
        furthest: The step that is furthest from zero.
        evaluating_rank: The rank whose evaluations are shown.
    """

    files: dict[str, FilePlace]
    writers: Writers
    merging: MergingState
    began: Seconds | None
    reached: Step
    furthest: Step
    evaluating_rank: Rank | None


def nothing_read() -> ReadingState:
    """Returns the state of a run of which nothing has been read."""
    return ReadingState(
        files={},
        writers=Writers([], {}),
        merging=MergingState({}, 0, (0, -1)),
        began=None,
        reached=0,
        furthest=0,
        evaluating_rank=None,
    )


def continues(run: Run, state: ReadingState, records: NewRecords) -> bool:
    """Whether the files of a run go on from what was read of them."""
    known = state.files.keys() & {os.path.basename(file.path) for file in run.files}
    # The oldest summary files may be gone, to make room on the disk. A lineage file is
    # never removed alone: if one is gone, these are the records of another training.
    known |= compacted(run, state)  # what is left of them is there
    gone = state.files.keys() - known
    if not known or any(name.endswith(Kind.LINEAGE.value) for name in gone):
        return False
    if gone and _has_older(run, state):
        return False
    return not is_replaced(run, state, records)


def compacted(run: Run, state: ReadingState) -> set[str]:
    """Returns the names of files that were read and that compacted files have replaced."""
    made = [file.name for file in run.files if file.name.last is not None]
    names = state.files.keys() - {os.path.basename(file.path) for file in run.files if made}
    return {
        name
        for name in (names if made else ())
        if (parsed := parse_name(name)) is not None and any(each.covers(parsed) for each in made)
    }


def _has_older(run: Run, state: ReadingState) -> bool:
    """Whether there are new files in the place of some that were read, as compaction makes them."""
    latest: dict[tuple[Kind, int], tuple[Any, ...]] = {}
    for name in filter(None, map(parse_name, state.files)):
        key = name.kind, name.rank
        latest[key] = max(latest.get(key, name.order), name.order)
    return any(
        os.path.basename(file.path) not in state.files
        and (file.name.kind, file.name.rank) in latest
        and file.name.order <= latest[file.name.kind, file.name.rank]
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


class MadeRecord(Record):
    """Values that are in no file as they are: they were made of the records of several ranks."""


class RunReader:
    """Reads what is new in the records of a run, and passes it to its TensorBoard runs."""

    def __init__(
        self,
        run: Run,
        outputs: RunOutputs,
        report: Report,
        records: NewRecords,
        state: ReadingState,
        lineages: dict[int, Lineage],
        after: float = -math.inf,
    ) -> None:
        """Begins, or continues where an earlier reader stopped.

        Args:
            run: The run.
            outputs: Its TensorBoard runs.
            report: Counts what is read, and takes problems.
            records: Reads the files, with their frames.
            state: How far it was read; kept up to date.
            lineages: What is known of each rank; kept up to date.
            after: Files without values of this time or later are not opened, apart from the first
                one of each rank; in seconds since the epoch.
        """
        self._run = run
        self._outputs = outputs
        self._report = report
        self._records = records
        self._state = state
        self._lineages = lineages
        self._after = after
        self._merging = Merging(run.name, report, state.merging)

    @property
    def is_waiting(self) -> bool:
        """Whether reading stopped at damage that is soon to be tried again."""
        return self._records.is_waiting(self._run.files)

    def _begins(self) -> None:
        """Called before the first record is passed on."""

    def _reaches(self, step: int, output: RunOutput, nbytes: int) -> None:
        """Called before values are passed on.

        Args:
            step: Their first step.
            output: Where they go.
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
        for rank in self._run.ranks:
            for kind in (Kind.SUMMARY, Kind.LINEAGE):
                files = self._run.of(kind, rank)
                for file in files:
                    # The graph is in the first summary file.
                    is_read = kind is Kind.LINEAGE or file is files[0]
                    if not is_read and not file.may_hold(self._after):
                        continue
                    yield from self._read(file, newest=file is files[-1], final=final)
        for point in self._merging.points(self._run.files):
            # They are the run's own: the values of its ranks are in sub-runs.
            self._outputs.session().take(
                _values_at(point.step, point.values, point.origin, point.nbytes)
            )

    def _read(self, file: RecordFile, *, newest: bool, final: bool) -> Iterator[None]:
        name = os.path.basename(file.path)
        place = self._state.files.get(name)
        if place is None:
            place = self._begin_of(file)
            if place.offset:
                self._state.files[name] = place
        if (0 < place.offset == file.nbytes) or (not final and file.nbytes <= place.offset):
            return
        again = place.ended
        with contextlib.closing(
            self._records.read(file, place, newest=newest, final=final)
        ) as batches:
            for batch in batches:
                if self._state.began is None:
                    self._state.began = float(batch.wall_times[0])
                    self._begins()
                self._state.files[name] = place  # this batch is not passed on yet
                self._take(file, batch)
                place.offset = batch.end_offset
                yield
        self._state.files[name] = place
        self._report.files += not (again and place.ended)
        yield

    def _begin_of(self, file: RecordFile) -> FilePlace:
        """Returns where to begin in a new file: it may be made of files that were read."""
        if file.name.last is None:
            return FilePlace()
        after = -math.inf
        if file.name.kind is Kind.LINEAGE:
            names = map(parse_name, self._state.files)
            lineage = self._lineages.get(file.name.rank)
            if lineage is not None and any(each and file.name.covers(each) for each in names):
                after = lineage.last_time
        else:
            writer = self._state.writers.continued(file)
            after = writer.last if writer is not None else after
        return FilePlace(behind(file, after))

    def _take(self, file: RecordFile, batch: Batch) -> None:
        if batch.kind == SUMMARY:
            self._take_values(file, batch)
            return
        for record in batch.records():
            if record.kind == _VERSION:
                continue
            if file.name.kind is Kind.LINEAGE:
                self._take_lineage(file.name.rank, record)
            elif record.kind == _COMPUTATION_GRAPH:
                writer = self._state.writers.of(file, record)
                output = self._outputs.writer(writer.rank, writer.number)
                self._take_graph(output, record, COMPUTATION)
            else:
                self._report.unknown[record.kind] += 1

    def _take_values(self, file: RecordFile, batch: Batch) -> None:
        steps, writer = batch.steps, self._state.writers.of(file, batch)
        output = self._outputs.writer(writer.rank, writer.number)
        self._reaches(int(steps[0]), output, batch.end_offset - batch.offset)
        highest = int(steps[-1])
        self._state.reached = max(self._state.reached, highest)
        self._state.furthest = max(self._state.furthest, highest, key=abs)
        if isinstance(batch, Record) and any(each.kind == KIND for each in batch.values):
            if writer.number == 1:
                self._merging.take(writer.rank, batch)
            batch = batch.of([each for each in batch.values if each.kind != KIND])
        output.take(batch)

    def _take_lineage(self, rank: int, record: Record) -> None:
        kind = record.kind
        lineage = self._lineages.setdefault(rank, Lineage())
        if kind == dashboards.DATASET_GRAPH:
            self._take_graph(self._outputs.writer(rank), record, kind)
        elif kind == EVALUATION:
            self._take_evaluation(rank, record, lineage)
        elif kind not in LINEAGE:
            self._report.unknown[kind] += 1
        elif take(lineage, record, self._report):
            self._report.exported[kind] += 1

    def _take_graph(self, output: RunOutput, record: Record, name: str) -> None:
        make = graph_def if name == COMPUTATION else dataset_graph_def
        try:
            graph = make(getattr(record.event, record.kind))
        except (ValueError, ArithmeticError, MemoryError) as error:
            what = f"this {record.kind} cannot be shown: {reason(error)}; skipped"
            self._report.problem(record.path, record.offset, what)
            return
        output.put_graph(record, graph, name)
        self._report.exported[record.kind] += 1

    def _take_evaluation(self, rank: int, record: Record, lineage: Lineage) -> None:
        evaluation = record.event.evaluation_lineage
        # MindSpore does not state the step of an evaluation: the last one so far is taken.
        step = evaluation.train_step if evaluation.HasField("train_step") else self._state.reached
        self._state.furthest = max(self._state.furthest, step, key=abs)
        lineage.take_evaluation(evaluation, step, record.wall_time)
        if self._state.evaluating_rank is None:
            self._state.evaluating_rank = rank
        if self._state.evaluating_rank == rank:
            own = self._outputs.writer(rank)
            values = [
                Summary.Value(tag=name, scalar_value=number)
                for name, value in metrics_of(evaluation)
                # Our collector records metrics as scalars too: they are not exported twice.
                if (number := numeric(value)) is not None
                and not own.shows(f"{EVALUATION_RUN}/{name}")
            ]
            self._outputs.evaluation().take(_values_at(step, values, record, record.nbytes))
        self._report.exported[record.kind] += 1


def _values_at(step: int, values: list[Summary.Value], origin: Record, nbytes: int) -> MadeRecord:
    """Returns values of a step as if they had been recorded where `origin` was."""
    event = Event(step=step, wall_time=origin.wall_time, summary=Summary(value=values))
    return MadeRecord(origin.path, origin.offset, nbytes, origin.wall_time, event)
