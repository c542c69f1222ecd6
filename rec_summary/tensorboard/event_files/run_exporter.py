"""Exporting one run: its ranks, its lineage, its evaluations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, UNKNOWN, Batch, Record
from rec_summary.series.event_reader import EventReader
from rec_summary.series.lineage import Lineage, metrics_of, numeric
from rec_summary.series.merging import KIND, Merging
from rec_summary.series.options import ExportOptions
from rec_summary.series.ranks import Writer, Writers
from rec_summary.series.report import Tally
from rec_summary.series.words import printable, reason
from rec_summary.tensorboard import dashboards
from rec_summary.tensorboard.dashboards.computation_graph import graph_def
from rec_summary.tensorboard.dashboards.dataset_graph import dataset_graph_def
from rec_summary.tensorboard.event_files.cursor import load_cursor, remove_cursor, save_cursor
from rec_summary.tensorboard.event_files.cursor_check import is_sound
from rec_summary.tensorboard.event_files.description import Description
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.output import TensorBoardRun
from rec_summary.tensorboard.event_files.outputs import Outputs
from rec_summary.tensorboard.event_files.resume import is_in_force
from rec_summary.tensorboard.event_files.targets import EVALUATION_RUN, Names, Targets

_VERSION: Final = "version"
_COMMIT_BYTES: Final = 1 << 26


class RunExport:
    """Brings one run to a log directory, and keeps it up to date there.

    `update` exports what is new since the last time, be it a moment ago or in an earlier
    process: the cursor in the log directory says where that one stopped. If the event
    files are not what they were then, if other options were in force, or if the records
    are others, the run is exported anew.
    """

    def __init__(
        self,
        run: Run,
        names: Names,
        logdir: LogDir,
        tally: Tally,
        options: ExportOptions,
        advance: Callable[[int], None],
    ) -> None:
        """Looks at what there is; nothing is written yet.

        Args:
            run: The run.
            names: Gives out names of TensorBoard runs.
            logdir: The log directory, entered.
            tally: Told of everything.
            options: What is exported.
            advance: Called with the number of bytes after each record that was read.

        Raises:
            DestinationError: The log directory cannot be read, or there are event files of
                another writer in the run's place.
        """
        self._run = run
        self._names = names
        self._logdir = logdir
        self._tally = tally
        self._options = options
        self._advance = advance
        state = load_cursor(logdir, run.name)
        if state is not None and not is_sound(state, run.name):
            state = None
        self._stale = [] if state is None else list(state["outputs"])  # TensorBoard runs of before
        if state is not None and not is_in_force(state, run, names, logdir, options):
            state = None
        self._begin(state)
        for rank in run.ranks:
            logdir.check(self._targets.rank(rank))
        logdir.check(run.name)
        logdir.check(self._targets.evaluation())

    @property
    def has_records(self) -> bool:
        """Whether any record has ever been read."""
        return self._began is not None

    def update(self, run: Run, *, final: bool = True) -> None:
        """Exports what is new; afterwards TensorBoard sees it.

        The session of the HParams dashboard, and the table beside it, are those of the
        lowest rank with a lineage; the tables of other ranks are in their own sub-runs.
        Evaluations are those of the lowest rank that has made any, because all ranks
        usually report the same.

        Args:
            run: The run with all its files, which may be more than before.
            final: Whether this is the last update for now; if not, an unfinished record
                or an unfinished lineage is no trouble yet.

        Raises:
            DestinationError: Something cannot be written.
        """
        self._run = run
        self._read_all(final=final)
        if not self._describe(final=final):
            if self._can_begin_anew():
                self._begin_anew()
                self._read_all(final=final)
                self._describe(final=final)
            else:
                self._tally.note(
                    f"run {printable(run.name)}: what its hyper-parameters or its status are "
                    "now is in its text only; the HParams dashboard keeps the first ones"
                )
        self._outputs.settle()

    def commit(self) -> None:
        """Notes down how far the export has come, for the next one.

        Raises:
            DestinationError: That cannot be written.
        """
        if not self.has_records:
            return
        written = self._outputs.states()
        state = {
            "options": self._options.fingerprint(),
            "targets": self._targets.state(),
            "files": self._places,
            "outputs": written,
            "writers": self._writers.state(),
            "merging": self._merging.state(),
            "description": self._description.state(),
            "began": self._began,
            "reached": self._reached,
            "furthest": self._furthest,
            "evaluating_rank": self._evaluating_rank,
        }
        for name in (*self._stale, *self._targets.names(), self._run.name):
            if name not in written and self._logdir.remove(name):
                self._tally.replaced.append(name)
        self._stale = []
        if written:
            save_cursor(self._logdir, self._run.name, state)

    def close(self) -> None:
        """Closes all files, whatever has happened."""
        self._outputs.close()

    # What is known

    def _begin(self, state: Mapping[str, Any] | None) -> None:
        known = None if state is None else state["targets"]
        self._targets = Targets(self._run, self._names, known)
        self._outputs = Outputs(
            lambda: self._run,
            self._targets,
            self._logdir,
            self._tally,
            self._options,
            {} if state is None else state["outputs"],
        )
        self._writers = Writers()
        self._merging = Merging(self._run.name, self._tally)
        self._description = Description(self._run.name, self._tally)
        self._places: dict[str, tuple[int, bool]] = {}  # by file: offset, nothing more to read
        self._began: float | None = None  # the wall time of the first record
        self._reached = 0  # the highest step of a summary so far
        self._furthest = 0  # the furthest from zero that any step is
        self._evaluating_rank: int | None = None
        self._uncommitted = 0
        if state is not None:
            self._places = {name: (at, ended) for name, (at, ended) in state["files"].items()}
            self._began, self._reached = state["began"], state["reached"]
            self._furthest = state["furthest"]
            self._evaluating_rank = state["evaluating_rank"]
            self._writers.restore(state["writers"])
            self._merging.restore(state["merging"])
            self._description.restore(state["description"], self._outputs.running)

    def _can_begin_anew(self) -> bool:
        """Whether all that was ever exported of this run can still be read."""
        present = {os.path.basename(file.path) for file in self._run.files}
        return set(self._places) <= present

    def _begin_anew(self) -> None:
        self.close()
        self._stale = list(self._outputs)
        self._names.release(self._targets.names())
        remove_cursor(self._logdir, self._run.name)
        self._begin(None)

    # Reading

    def _read_all(self, *, final: bool) -> None:
        for rank in self._run.ranks:
            for file in self._run.of(Kind.SUMMARY, rank):
                for batch in self._read(file, final=final):
                    if batch.kind == SUMMARY:
                        self._take_values(file, batch)
                    else:
                        for record in batch.records():
                            self._take_event(file, record)
            for file in self._run.of(Kind.LINEAGE, rank):
                for batch in self._read(file, final=final):
                    for record in batch.records():
                        self._take_lineage(rank, record)
        for point in self._merging.points(self._run.files):
            # The run's own: those of its ranks are in sub-runs.
            self._outputs.session().record(
                point.origin.with_values(point.step, point.nbytes, point.values)
            )

    def _read(self, file: RecordFile, *, final: bool) -> Iterator[Batch]:
        name = os.path.basename(file.path)
        start, ended = self._places.get(name, (0, False))
        if ended or (0 < start == file.nbytes) or (not final and file.nbytes <= start):
            return
        self._tally.files += 1
        with EventReader(file, self._tally, start) as reader:
            reached = start
            for batch in reader:
                self._advance(reader.offset - reached)
                self._uncommitted += reader.offset - reached
                reached = reader.offset
                if self._began is None:
                    self._began = float(batch.wall_times[0])
                    self._clear_the_place()
                self._places[name] = (batch.offset, False)  # this one is not exported yet
                yield batch
            self._advance(reader.offset - reached)
            self._places[name] = (reader.offset, reader.ended)
            if final and reader.unfinished is not None:
                self._tally.problem(file.path, reader.offset, reader.unfinished)

    def _clear_the_place(self) -> None:
        """Takes away a cursor that is not in force, before anything that it speaks of changes."""
        remove_cursor(self._logdir, self._run.name)

    def _take_values(self, file: RecordFile, batch: Batch) -> None:
        times = batch.wall_times
        writer = self._writers.of(file, float(times[0]))
        writer.last = max(writer.last, float(times.max()))
        output = self._output(writer)
        steps = batch.steps
        self._commit_now_and_then(output, int(steps[0]))
        self._reached = max(self._reached, int(steps[-1]))
        self._furthest = max(self._furthest, int(steps[0]), int(steps[-1]), key=abs)
        output.record(batch)
        if writer.number == 1 and any(kind == KIND for kind, _ in batch.series()):
            for record in batch.records():
                self._merging.take(writer.rank, record)

    def _output(self, writer: Writer) -> TensorBoardRun:
        return self._outputs.writer(writer.rank, writer.number)

    def _take_event(self, file: RecordFile, record: Record) -> None:
        if record.kind == "graph_def":
            writer = self._writers.of(file, record.wall_time)
            self._take_graph(self._output(writer), record, record.kind)
        elif record.kind != _VERSION:
            self._tally.unknown[record.kind] += 1

    def _commit_now_and_then(self, output: TensorBoardRun, step: int) -> None:
        """Notes down a long export's place between two steps, for the case that it is killed."""
        if self._uncommitted >= _COMMIT_BYTES and self._options.resumable and step != output.step:
            self._uncommitted = 0
            self.commit()

    def _take_lineage(self, rank: int, decoded: Record) -> None:
        event = decoded.event
        kind = event.WhichOneof("what")
        lineage = self._description.lineage(rank)
        if kind == _VERSION:
            return
        if kind == dashboards.EVALUATION:
            self._take_evaluation(rank, decoded, lineage)
        elif kind == dashboards.DATASET_GRAPH:
            self._take_graph(self._outputs.rank(rank), decoded, kind)
            return
        elif kind in dashboards.LINEAGE:
            try:
                dashboards.LINEAGE[kind](lineage, event, decoded.wall_time)
            except ValueError as error:
                what = f"this {kind} cannot be shown: {reason(error)}; skipped"
                self._tally.problem(decoded.path, decoded.offset, what)
                return
        else:
            self._tally.unknown[kind or UNKNOWN] += 1
            return
        self._tally.exported[kind] += 1

    def _take_graph(self, output: TensorBoardRun, decoded: Record, kind: str) -> None:
        make = dataset_graph_def if kind == dashboards.DATASET_GRAPH else graph_def
        try:
            graph = make(getattr(decoded.event, kind))
        except (ValueError, ArithmeticError, MemoryError) as error:
            what = f"this {kind} cannot be shown: {reason(error)}; skipped"
            self._tally.problem(decoded.path, decoded.offset, what)
            return
        if kind == dashboards.DATASET_GRAPH:
            output.put_graph(decoded.wall_time, graph, kind)
        else:
            output.put_graph(decoded.wall_time, graph)
        self._tally.exported[kind] += 1

    def _take_evaluation(self, rank: int, decoded: Record, lineage: Lineage) -> None:
        evaluation = decoded.event.evaluation_lineage
        # MindSpore does not say at which step it evaluated: where training had got to, then.
        step = evaluation.train_step if evaluation.HasField("train_step") else self._reached
        self._furthest = max(self._furthest, step, key=abs)
        lineage.take_evaluation(evaluation, step, decoded.wall_time)
        if self._evaluating_rank is None:
            self._evaluating_rank = rank
        if self._evaluating_rank == rank:
            own = self._outputs.rank(rank)
            values = [
                Summary.Value(tag=name, scalar_value=number)
                for name, value in metrics_of(evaluation)
                # our collector records metrics as scalars too; once is enough
                if (number := numeric(value)) is not None
                and not own.shows(f"{EVALUATION_RUN}/{name}")
            ]
            self._outputs.evaluation().record(decoded.with_values(step, decoded.nbytes, values))

    def _describe(self, *, final: bool) -> bool:
        """Writes what is known of the run as a whole; tells whether the result is right."""
        description = self._description
        if not description.lineages:
            return True
        session = self._outputs.session()
        description.write_texts(session, self._outputs.rank, self._reached, final=final)
        return description.write_session(
            session, self._outputs.running, self._began, self._furthest, final=final
        )
