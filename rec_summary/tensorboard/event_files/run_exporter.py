"""Exporting one run: its ranks, its lineage, its evaluations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, Batch, Record
from rec_summary.series.lineage import EVALUATION, LINEAGE, Lineage, metrics_of, numeric, take
from rec_summary.series.new_records import FilePlace, NewRecords
from rec_summary.series.ranks import KIND, Merging, MergingState
from rec_summary.series.text import printable, reason
from rec_summary.series.values import Writers
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.graphs.computation import graph_def
from rec_summary.tensorboard.dashboards.graphs.dataset import dataset_graph_def
from rec_summary.tensorboard.event_files.cursor import (
    Cursor,
    load_cursor,
    remove_cursor,
    save_cursor,
)
from rec_summary.tensorboard.event_files.description import Description, DescriptionState
from rec_summary.tensorboard.event_files.event_file import is_intact
from rec_summary.tensorboard.event_files.run_writer import COMPUTATION, TensorBoardRun
from rec_summary.tensorboard.event_files.targets import (
    EVALUATION_RUN,
    Destination,
    TargetNames,
    TensorBoardRuns,
    is_parallel,
)

_VERSION: Final = "version"
_COMPUTATION_GRAPH: Final = "graph_def"
_COMMIT_BYTES: Final = 1 << 26


class RunExporter:
    """Exports one run to a log directory, and keeps it up to date there.

    `update` exports what is new since the last update, by this process or by an earlier one:
    the cursor in the log directory states where that update stopped. The run is exported from
    the beginning if the event files have changed since then, if the options differ, or if the
    records are those of another training.
    """

    def __init__(self, run: Run, destination: Destination) -> None:
        """Reads the cursor and checks the places; nothing is written yet.

        Args:
            run: The run.
            destination: Where and how it is exported.

        Raises:
            DestinationError: The log directory cannot be read, or there are event files of
                another writer in the run's place.
        """
        self._run = run
        self._destination = destination
        self._logdir = destination.logdir
        self._report = destination.report
        self._options = destination.options
        self._records = NewRecords(self._report, frames=True)
        cursor = load_cursor(self._logdir, run.name)
        self._stale = list(cursor.outputs) if cursor else []  # its TensorBoard runs
        self._begin(cursor if cursor and self._is_in_force(cursor) else None)

    @property
    def has_records(self) -> bool:
        """Whether any record has ever been read."""
        return self._cursor.began is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the last update stopped at damage that is soon to be tried again."""
        return self._records.is_waiting(self._run.files)

    def update(self, run: Run, *, final: bool = True) -> Iterator[None]:
        """Exports what is new; TensorBoard can read it when the update ends.

        The session of the HParams dashboard, and the table beside it, are those of the
        lowest rank with a lineage; the tables of other ranks are in their own sub-runs.
        Evaluations are those of the lowest rank that has made any, because all ranks
        usually report the same.

        Args:
            run: The run with all its files, which may be more than before.
            final: Whether this is the last update for now; if not, an unfinished record
                or an unfinished lineage is not reported.

        Yields:
            Nothing, after each part. The update can be stopped there; a later export completes it.

        Raises:
            DestinationError: Something cannot be written.
        """
        self._run = self._outputs.run = run
        if self._is_replaced(self._cursor) and self._can_begin_again():
            self._begin_again()
        yield from self._read_all(final=final)
        if not self._describe(final=final):
            if self._can_begin_again():
                self._begin_again()
                yield from self._read_all(final=final)
                self._describe(final=final)
            else:
                self._report.note(
                    f"run {printable(run.name)}: what its hyper-parameters or its status are "
                    "now is in its text only; the HParams dashboard keeps the first ones"
                )
        self._outputs.settle()

    def commit(self) -> None:
        """Saves the cursor, for the next export.

        Raises:
            DestinationError: Something cannot be written.
        """
        if not self.has_records:
            return
        written = self._outputs.states()
        for name in (*self._stale, *self._outputs.names()):
            if name not in written and self._logdir.remove(name):
                self._report.replaced.append(name)
        self._stale = []
        if not written:
            return
        self._cursor.outputs = written
        save_cursor(self._logdir, self._run.name, self._cursor)

    def close(self) -> None:
        """Closes all files, also after an error."""
        self._outputs.close()

    def _begin(self, cursor: Cursor | None) -> None:
        """Begins, or continues where an earlier export stopped."""
        run = self._run
        if cursor is None:
            cursor = Cursor(
                format=2,
                options=self._options.fingerprint(),
                # One rank's values are the run's own; several get a sub-run each.
                targets=TargetNames(is_parallel(run), {}),
                files={},
                outputs={},
                writers=Writers([], {}),
                merging=MergingState({}, 0, (0, -1)),
                description=DescriptionState(),
                began=None,
                reached=0,
                furthest=0,
                evaluating_rank=None,
            )
        self._cursor = cursor
        self._outputs = TensorBoardRuns(run, self._destination, cursor.targets, cursor.outputs)
        self._merging = Merging(run.name, self._report, cursor.merging)
        self._description = Description(self._outputs, self._report, cursor.description)
        self._uncommitted = 0

    def _begin_again(self) -> None:
        self._stale = self._outputs.give_up()
        remove_cursor(self._logdir, self._run.name)
        self._begin(None)

    def _is_in_force(self, cursor: Cursor) -> bool:
        """Whether a cursor describes these records, these options and these event files."""
        run = self._run
        if not self._options.resumable or cursor.options != self._options.fingerprint():
            return False
        if not self._destination.names.fit(run, cursor.targets):
            return False
        known = cursor.files.keys() & {os.path.basename(file.path) for file in run.files}
        # The oldest summary files may be gone, to make room on the disk. A lineage file is
        # never removed alone: if one is gone, these are the records of another training.
        gone = cursor.files.keys() - known
        if not known or any(name.endswith(Kind.LINEAGE.value) for name in gone):
            return False
        if self._is_replaced(cursor):
            return False
        return all(
            is_intact(self._logdir, name, output.file) for name, output in cursor.outputs.items()
        )

    def _is_replaced(self, cursor: Cursor) -> bool:
        """Whether record files have other bytes than those that were read, as far as is known."""
        places = {
            file: cursor.files[name]
            for file in self._run.files
            if (name := os.path.basename(file.path)) in cursor.files
        }
        if any(file.nbytes < place.offset for file, place in places.items()):
            return True
        # Other bytes are worth another export only if nothing is lost by it.
        return len(places) == len(cursor.files) and any(
            self._records.is_replaced(file, place) for file, place in places.items()
        )

    def _can_begin_again(self) -> bool:
        """Whether all that was ever exported of this run can still be read."""
        return self._cursor.files.keys() <= {
            os.path.basename(file.path) for file in self._run.files
        }

    def _read_all(self, *, final: bool) -> Iterator[None]:
        for rank in self._run.ranks:
            for kind in (Kind.SUMMARY, Kind.LINEAGE):
                files = self._run.of(kind, rank)
                for file in files:
                    yield from self._read(file, newest=file is files[-1], final=final)
        for point in self._merging.points(self._run.files):
            # They are the run's own: the values of its ranks are in sub-runs.
            self._outputs.session().take(
                _values_at(point.step, point.values, point.origin, point.nbytes)
            )

    def _read(self, file: RecordFile, *, newest: bool, final: bool) -> Iterator[None]:
        name = os.path.basename(file.path)
        place = self._cursor.files.get(name) or FilePlace()
        if (0 < place.offset == file.nbytes) or (not final and file.nbytes <= place.offset):
            return
        again = place.ended
        for batch in self._records.read(file, place, newest=newest, final=final):
            if self._cursor.began is None:
                self._cursor.began = float(batch.wall_times[0])
                # Before anything changes that an old cursor describes.
                remove_cursor(self._logdir, self._run.name)
            self._cursor.files[name] = place  # this batch is not exported yet
            self._uncommitted += batch.end_offset - batch.offset
            self._take(file, batch)
            place.offset = batch.end_offset
            yield
        self._records.note_tail(file, place)
        self._cursor.files[name] = place
        self._report.files += not (again and place.ended)
        yield

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
                writer = self._cursor.writers.of(file, record)
                output = self._outputs.writer(writer.rank, writer.number)
                self._take_graph(output, record, COMPUTATION)
            else:
                self._report.unknown[record.kind] += 1

    def _take_values(self, file: RecordFile, batch: Batch) -> None:
        steps, writer = batch.steps, self._cursor.writers.of(file, batch)
        output = self._outputs.writer(writer.rank, writer.number)
        # A long export may be killed. Its cursor is saved between two steps.
        is_due = self._uncommitted >= _COMMIT_BYTES and self._options.resumable
        if is_due and steps[0] != output.step:
            self._uncommitted = 0
            self.commit()
        highest = int(steps[-1])
        self._cursor.reached = max(self._cursor.reached, highest)
        self._cursor.furthest = max(self._cursor.furthest, highest, key=abs)
        if isinstance(batch, Record) and any(each.kind == KIND for each in batch.values):
            if writer.number == 1:
                self._merging.take(writer.rank, batch)
            batch = batch.of([each for each in batch.values if each.kind != KIND])
        output.take(batch)

    def _take_lineage(self, rank: int, record: Record) -> None:
        kind = record.kind
        lineage = self._description.lineage(rank)
        if kind == dashboards.DATASET_GRAPH:
            self._take_graph(self._outputs.writer(rank), record, kind)
        elif kind == EVALUATION:
            self._take_evaluation(rank, record, lineage)
        elif kind not in LINEAGE:
            self._report.unknown[kind] += 1
        elif take(lineage, record, self._report):
            self._report.exported[kind] += 1

    def _take_graph(self, output: TensorBoardRun, record: Record, name: str) -> None:
        make = graph_def if name == COMPUTATION else dataset_graph_def
        try:
            graph = make(getattr(record.event, record.kind))
        except (ValueError, ArithmeticError, MemoryError) as error:
            what = f"this {record.kind} cannot be shown: {reason(error)}; skipped"
            self._report.problem(record.path, record.offset, what)
            return
        output.put_graph(record.wall_time, graph, name)
        self._report.exported[record.kind] += 1

    def _take_evaluation(self, rank: int, record: Record, lineage: Lineage) -> None:
        evaluation = record.event.evaluation_lineage
        # MindSpore does not state the step of an evaluation: the last one so far is taken.
        step = evaluation.train_step if evaluation.HasField("train_step") else self._cursor.reached
        self._cursor.furthest = max(self._cursor.furthest, step, key=abs)
        lineage.take_evaluation(evaluation, step, record.wall_time)
        if self._cursor.evaluating_rank is None:
            self._cursor.evaluating_rank = rank
        if self._cursor.evaluating_rank == rank:
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

    def _describe(self, *, final: bool) -> bool:
        """Writes the texts and the session of the run; returns whether the event file is right."""
        description = self._description
        if not description.state.lineages:
            return True
        description.write_texts(self._cursor.reached, final=final)
        return description.write_session(self._cursor.began, self._cursor.furthest, final=final)


def _values_at(step: int, values: list[Summary.Value], origin: Record, nbytes: int) -> Record:
    """Returns values of a step as if they had been recorded where `origin` was."""
    event = Event(step=step, wall_time=origin.wall_time, summary=Summary(value=values))
    return Record(origin.path, origin.offset, nbytes, origin.wall_time, event)
