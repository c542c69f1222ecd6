"""Exporting one run: its ranks, its lineage, its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.export import dashboards
from rec_summary.export.dashboards.hparams import session_points
from rec_summary.export.dashboards.text import lineage_point
from rec_summary.export.events import Decoded, read_events
from rec_summary.export.lineage import Lineage, metrics_of, numeric
from rec_summary.export.logdir import LogDir
from rec_summary.export.output import UNKNOWN_KIND, TensorBoardRun
from rec_summary.export.report import Tally
from rec_summary.export.words import printable
from rec_summary.records.directory import RecordFile, Run
from rec_summary.records.names import Kind

EVALUATION_RUN: Final = "eval"
_VERSION: Final = "version"
_LINEAGE_KIND: Final = "lineage"
_LAST_HPARAMS_STEP: Final = 2**31 - 1  # `MetricValue.training_step` of its API is an int32


@dataclass(frozen=True)
class RunPlan:
    """Which TensorBoard runs a run becomes.

    Attributes:
        run: The run.
        ranks: Each rank, and where its values go: to the run itself if there is one only.
        evaluation: Where the results of evaluations go.
    """

    run: Run
    ranks: tuple[tuple[int, str], ...]
    evaluation: str

    @property
    def targets(self) -> tuple[str, ...]:
        """All TensorBoard runs that may be written."""
        return (self.run.name, *(name for _, name in self.ranks), self.evaluation)


def plan_runs(runs: Sequence[Run]) -> list[RunPlan]:
    """Decides which TensorBoard runs the runs become; no two ever share one.

    Several ranks get the sub-runs `rank_<n>`, evaluations the sub-run `eval`. Where a
    recorded run has such a name already, underscores are added to ours.
    """
    taken = {run.name for run in runs}
    plans = []
    for run in runs:
        several = len(run.ranks) > 1
        ranks = tuple(
            (rank, _free(f"{run.name}/rank_{rank}", taken) if several else run.name)
            for rank in run.ranks
        )
        plans.append(RunPlan(run, ranks, _free(f"{run.name}/{EVALUATION_RUN}", taken)))
    return plans


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class RunExport:
    """Exports one run into a log directory."""

    def __init__(
        self,
        plan: RunPlan,
        logdir: LogDir,
        tally: Tally,
        *,
        wanted: Callable[[str], object] | None,
        advance: Callable[[int], None],
    ) -> None:
        """Prepares; `export` does it.

        Args:
            plan: The run, and where it goes.
            logdir: The log directory, entered.
            tally: Told of everything.
            wanted: Says by the tag which values are exported; None means all.
            advance: Called with the number of bytes after each record that was read.
        """
        self._plan = plan
        self._logdir = logdir
        self._tally = tally
        self._wanted = wanted
        self._advance = advance
        self._session = self._output(plan.run.name, plan.run.files)
        self._evaluation = self._output(plan.evaluation, plan.run.files)
        self._began: float | None = None  # the wall time of the first record
        self._reached = 0  # the highest step of a summary so far
        self._furthest = 0  # the furthest from zero that any step is
        self._evaluating_rank: int | None = None
        self._has_text = False
        self._session_lineage: Lineage | None = None

    def export(self) -> None:
        """Exports the run: each event file gets its name when everything in it is complete.

        The session of the HParams dashboard, and the table beside it, are those of the
        lowest rank with a lineage; the tables of other ranks are in their own sub-runs.
        Evaluations are those of the lowest rank that has made any, because all ranks
        usually report the same.

        Raises:
            DestinationError: Something cannot be written.
        """
        with self._session, self._evaluation:
            for rank, name in self._plan.ranks:
                if name == self._plan.run.name:
                    self._export_rank(rank, self._session)
                else:
                    files = [file for file in self._plan.run.files if file.name.rank == rank]
                    with self._output(name, files) as own:
                        self._export_rank(rank, own)
            if self._session_lineage is not None:
                self._export_session(self._session_lineage)

    def _output(self, name: str, files: Sequence[RecordFile]) -> TensorBoardRun:
        stamp = min(file.name.stamp for file in files)
        return TensorBoardRun(name, stamp, self._logdir, self._tally, self._wanted)

    def _export_rank(self, rank: int, own: TensorBoardRun) -> None:
        before = self._tally.records.total()
        run, lineage = self._plan.run, Lineage()
        for file in run.of(Kind.SUMMARY, rank):
            for decoded in self._read(file):
                self._take_event(decoded, own)
        for file in run.of(Kind.LINEAGE, rank):
            for decoded in self._read(file):
                self._take_lineage(file, decoded, lineage, own)
        if self._tally.records.total() > before:
            for output in (own, self._session, self._evaluation):
                output.supersedes = True
        if not lineage.empty:
            self._describe(lineage, own)

    def _read(self, file: RecordFile) -> Iterator[Decoded]:
        for decoded in read_events(file, self._tally, self._advance):
            if self._began is None:
                self._began = decoded.wall_time
            yield decoded

    def _take_event(self, decoded: Decoded, own: TensorBoardRun) -> None:
        event = decoded.event
        kind = event.WhichOneof("what")
        if kind == "summary":
            self._reached = max(self._reached, event.step)
            self._furthest = max(self._furthest, abs(event.step))
            own.record(event.step, decoded.wall_time, decoded.nbytes, event.summary.value)
        elif kind != _VERSION:
            self._tally.unknown[kind or UNKNOWN_KIND] += 1

    def _take_lineage(
        self, file: RecordFile, decoded: Decoded, lineage: Lineage, own: TensorBoardRun
    ) -> None:
        event = decoded.event
        kind = event.WhichOneof("what")
        if kind == _VERSION:
            return
        if kind == dashboards.EVALUATION:
            self._take_evaluation(file.name.rank, decoded, lineage, own)
        elif kind in dashboards.LINEAGE:
            try:
                dashboards.LINEAGE[kind](lineage, event, decoded.wall_time)
            except ValueError:
                what = f"a name in this {kind} is not UTF-8; skipped"
                self._tally.problem(file.path, decoded.offset, what)
                return
        else:
            self._tally.unknown[kind or UNKNOWN_KIND] += 1
            return
        self._tally.exported[kind] += 1

    def _take_evaluation(
        self, rank: int, decoded: Decoded, lineage: Lineage, own: TensorBoardRun
    ) -> None:
        evaluation = decoded.event.evaluation_lineage
        # MindSpore does not say at which step it evaluated: where training had got to, then.
        step = evaluation.train_step if evaluation.HasField("train_step") else self._reached
        self._furthest = max(self._furthest, abs(step))
        lineage.take_evaluation(evaluation, step, decoded.wall_time)
        if self._evaluating_rank is None:
            self._evaluating_rank = rank
        if self._evaluating_rank == rank:
            values = [
                Summary.Value(tag=name, scalar_value=number)
                for name, value in metrics_of(evaluation)
                # our collector records metrics as scalars too; once is enough
                if (number := numeric(value)) is not None
                and not own.shows(f"{EVALUATION_RUN}/{name}")
            ]
            self._evaluation.record(step, decoded.wall_time, decoded.nbytes, values)

    def _describe(self, lineage: Lineage, own: TensorBoardRun) -> None:
        wall_time = lineage.last_time
        text_home = own if self._has_text else self._session
        text_home.put(self._reached, wall_time, _LINEAGE_KIND, [lineage_point(lineage)])
        self._has_text = True
        if lineage.describes_training and self._session_lineage is None:
            self._session_lineage = lineage

    def _export_session(self, lineage: Lineage) -> None:
        if self._furthest > _LAST_HPARAMS_STEP:
            # Its page would fail for all runs, not only for this one.
            self._tally.note(
                f"run {printable(self._plan.run.name)}: not in the HParams dashboard, which "
                f"cannot bear steps beyond {_LAST_HPARAMS_STEP} (it has {self._furthest}); "
                "the text has its hyper-parameters"
            )
            return
        began = self._began if self._began is not None else lineage.last_time
        points = session_points(self._plan.run.name, lineage, began)
        self._session.put(0, lineage.last_time, _LINEAGE_KIND, points)
