"""Summaries of runs: tags, steps, sizes, times and status of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.format import wire
from rec_summary.records.format.limits import LONGEST_TAG
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, SUMMARY, Batch, Columns, Series, by_tag, concatenated
from rec_summary.series.event_reader import read_batches
from rec_summary.series.limits import MOST_SERIES
from rec_summary.series.lineage import Lineage, take
from rec_summary.series.options import EVERYTHING, Selection
from rec_summary.series.overview.rows import shows_life
from rec_summary.series.overview.statistics import HEALTH, TagSummary
from rec_summary.series.report import Problem, Report
from rec_summary.series.runs.history import History
from rec_summary.series.text import shown, valid

_NAMES: Final = {SCALAR: "scalar", "graph_def": "computation graph"}
_COUNTERS: Final = ("records", "bytes", "dropped", "errors", "queue_length", "snapshot_ms")
_GREATEST: Final = ("queue_length", "snapshot_ms")
_SCALARS_AT_ONCE: Final = 16_384


@dataclass
class RunSummary:
    """A run in short.

    Attributes:
        run: The run's name.
        path: The run's directory.
        status: `RUNNING`, `FINISHED`, `STOPPED`, `FAILED` or `UNKNOWN`.
        reason: Why the run ended, if that is recorded.
        ranks: The ranks that recorded.
        files: The number of record files.
        nbytes: The size of the record files.
        first_time: The earliest time of a record, in seconds since the epoch.
        last_time: The latest time of a record.
        first_step: The lowest step of a value that no restart supersedes.
        last_step: The highest one.
        records: The number of records by kind.
        tags: The tags, by kind and name.
        silent_since: The time of the last record of a run that should be running and gives no sign
            of life.
        samples: How many samples training has seen, if that is recorded for the last step.
        host: The host of the training, if that is recorded.
        pid: The number of the training's process.
        troubles: How often telemetry has failed, by kind.
        health: The last values of the collector's own counters, by name: the sum of the ranks, or
            the greatest of the queue length and the snapshot time.
        problems: What could not be read; at most a thousand problems.
        problem_count: How many problems there were.
        notes: What people have written about it, at most a hundred notes.
    """

    run: str
    path: str
    status: str = "UNKNOWN"
    reason: str = ""
    ranks: tuple[int, ...] = ()
    files: int = 0
    nbytes: int = 0
    first_time: float | None = None
    last_time: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    records: dict[str, int] = field(default_factory=dict)
    tags: list[TagSummary] = field(default_factory=list)
    silent_since: float | None = None
    samples: int | None = None
    host: str = ""
    pid: int | None = None
    troubles: dict[str, int] = field(default_factory=dict)
    health: dict[str, float] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    notes: list[Mapping[str, Any]] = field(default_factory=list)


def inspect_run(
    run: Run,
    report: Report | None = None,
    selection: Selection = EVERYTHING,
    most_series: int = MOST_SERIES,
) -> Iterator[RunSummary]:
    """Yields a run in short, and each further writer; memory is bounded by the number of tags.

    Tags have the values that count: none that a restart supersedes. Scalars come first, and the
    telemetry's counters of itself last.

    Args:
        run: The run.
        report: Counts what is read; its problems are those of the last writer.
        selection: Which recorded values are counted; the lineage is read in any case.
        most_series: How many tags are listed.
    """
    report = report or Report()
    for part, history in History(selection.narrowed(run, newest=True)).writers():
        yield _inspect(part, history, report, selection, most_series)


def _inspect(
    run: Run, history: History, report: Report, selection: Selection, most_series: int
) -> RunSummary:
    summary = RunSummary(valid(run.name), run.path, ranks=run.ranks, files=len(run.files))
    summary.nbytes = run.nbytes
    report.problems, report.problem_count = [], 0  # each writer has its own
    tags = _Tags(report, most_series)
    records: Counter[str] = Counter()
    lineages: dict[int, Lineage] = {}
    for file in run.files:
        for batch in read_batches(file, report):
            times = batch.wall_times
            if batch.kind == SUMMARY:
                wanted = selection.among(batch.steps, times)
                if not wanted.any():
                    continue
                times = times[wanted]
            records[batch.kind] += len(times)
            summary.first_time = _least(summary.first_time, float(times.min()))
            summary.last_time = _greatest(summary.last_time, float(times.max()))
            if file.name.kind is Kind.LINEAGE:
                for record in batch.records():
                    take(lineages.setdefault(file.name.rank, Lineage()), record, report)
            elif batch.kind == SUMMARY:
                tags.take(file.name.rank, history.in_force(batch).select(selection))
    tags.release()
    summary.records = dict(sorted(records.items()))
    summary.tags = sorted(
        tags.found.values(),
        key=lambda tag: (tag.tag.startswith(HEALTH), tag.kind != "scalar", tag.kind, tag.tag),
    )
    summary.first_step, summary.last_step = tags.first_step, tags.last_step
    _add_lineages(
        summary, run, lineages, max((writer.last for writer, _ in history.files), default=0.0)
    )
    for counters in tags.health.values():
        for name, number in counters.items():
            before = summary.health.get(name, 0.0)
            summary.health[name] = max(before, number) if name in _GREATEST else before + number
    summary.problems, summary.problem_count = report.problems, report.problem_count
    return summary


def _least(before: Any, new: Any) -> Any:
    return new if before is None or new < before else before


def _greatest(before: Any, new: Any) -> Any:
    return new if before is None or new > before else before


class _Tags:
    """The tags of a run.

    Attributes:
        found: Each tag in short, by kind and tag.
        first_step: The lowest step, also of tags that there is no room for.
        last_step: The highest one.
        health: The collector's own counters, by rank.
    """

    def __init__(self, report: Report, most_series: int) -> None:
        self._most = most_series
        self.found: dict[Series, TagSummary] = {}
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.health: dict[int, dict[str, float]] = {}
        self._report = report
        self._rank = 0
        self._scalars: list[Columns] = []  # of that rank: small parts are added together
        self._held = 0

    def take(self, rank: int, batch: Batch) -> None:
        """Adds a batch, with as many new tags as there is room for."""
        if rank != self._rank or self._held >= _SCALARS_AT_ONCE:
            self.release()
            self._rank = rank
        has_room, has_others = True, False
        for (kind, tag), span in batch.series().items():
            self.first_step = _least(self.first_step, span.first_step)
            self.last_step = _greatest(self.last_step, span.last_step)
            has_others |= kind != SCALAR
            known = self.found.get((kind, _short(tag)))
            if known is not None:
                known.add(span)
            elif len(self.found) < self._most:
                short, steps = _short(tag), (span.first_step, span.last_step)
                name = _NAMES.get(kind, kind)
                self.found[kind, short] = TagSummary(short, name, span.values, *steps)
            else:
                has_room = False
        if not has_room:
            what = f"tags beyond the first {self._most:,} of the run are not listed"
            self._report.problem(batch.path, batch.offset, what)
        scalars = batch.scalars()
        self._held += len(scalars.codes)
        self._scalars.append(scalars)
        if not has_others:
            return
        for record in batch.records():
            for kind, tag, value, _ in record.values:
                if kind != SCALAR and (known := self.found.get((kind, _short(tag)))) is not None:
                    known.nbytes += value.ByteSize()

    def release(self) -> None:
        """Adds the scalars that are held."""
        for tag, columns in by_tag(concatenated(self._scalars)):
            known = self.found.get((SCALAR, _short(tag)))
            if known is not None:
                known.extend(columns, _scalar_bytes(tag))
            name = tag.removeprefix(HEALTH)
            if name != tag and name in _COUNTERS:
                self.health.setdefault(self._rank, {})[name] = float(columns.values[-1])
        self._scalars, self._held = [], 0


def _short(tag: str) -> str:
    return tag if len(tag) <= LONGEST_TAG else tag[: LONGEST_TAG - 1] + "…"


def _scalar_bytes(tag: str) -> int:
    """Returns the size of a `Summary.Value` that holds a scalar."""
    size = len(tag.encode())
    return 1 + len(wire.varint(size)) + size + 1 + 4


def _add_lineages(
    summary: RunSummary, run: Run, lineages: Mapping[int, Lineage], last_value: float
) -> None:
    for _, lineage in sorted(lineages.items(), reverse=True):  # that of the lowest rank counts
        if lineage.train is None:
            continue
        state = lineage.train.run_state
        summary.status = RunState.Status.Name(lineage.status)
        summary.reason = shown(state.reason)
        summary.host = shown(state.host)
        is_late = last_value > lineage.train_time and state.step != summary.last_step
        summary.samples = state.samples if state.HasField("samples") and not is_late else None
        summary.pid = state.pid if state.HasField("pid") else None
        last = max(last_value, lineage.last_time)
        summary.silent_since = None if shows_life(run, state, last) else last
        summary.notes = [note._asdict() for note in lineage.own_words]
        for kind, count in state.troubles.items():
            summary.troubles[kind] = summary.troubles.get(kind, 0) + count
