"""What is in a record directory, at a glance."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.event_reader import read_events
from rec_summary.series.limits import LONGEST_TAG, MOST_SERIES
from rec_summary.series.lineage import Lineage
from rec_summary.series.report import Problem, Report
from rec_summary.series.runs import take
from rec_summary.series.words import shown, valid

NAMES = {"scalar_value": "scalar", "graph_def": "computation graph"}

_HEALTH = "rec_summary"
_COUNTERS = ("records", "bytes", "dropped", "errors", "queue_length", "snapshot_ms")
_GREATEST = ("queue_length", "snapshot_ms")


@dataclass
class TagSummary:
    """What was recorded under a tag.

    Attributes:
        tag: The tag.
        kind: `scalar`, `histogram`, `image`, `tensor` or `loss_landscape`.
        values: How many values there are.
        first_step: The lowest step.
        last_step: The highest step.
        nbytes: The size of the values.
        last: The last value, of a scalar.
        least: The least finite value, of a scalar.
        greatest: The greatest finite value, of a scalar.
        not_finite: How many values are NaN or infinite, of a scalar.
    """

    tag: str
    kind: str
    values: int = 0
    first_step: int = 0
    last_step: int = 0
    nbytes: int = 0
    last: float | None = None
    least: float | None = None
    greatest: float | None = None
    not_finite: int = 0


@dataclass
class RunSummary:
    """What is in a run.

    Attributes:
        run: The run's name.
        path: Where it is.
        status: How far it has come: `RUNNING`, `FINISHED`, `STOPPED`, `FAILED` or `UNKNOWN`.
        reason: Why it ended, if that is recorded.
        ranks: The ranks that recorded.
        files: The number of record files.
        nbytes: Their size.
        first_time: The first record's time, in seconds since the epoch.
        last_time: The last record's time.
        first_step: The lowest step.
        last_step: The highest step.
        records: The number of records by kind.
        tags: What was recorded under each tag, by tag.
        samples: How many samples training has seen, if that is recorded.
        host: Where training runs, if that is recorded.
        pid: Its process there.
        troubles: What telemetry could not do, by kind, with numbers.
        health: The last of the collector's own counters, by name; ranks added up, except
            where the greatest says more.
        problems: What could not be read; at most a thousand of them.
        problem_count: How many there were in truth.
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
    samples: int | None = None
    host: str = ""
    pid: int | None = None
    troubles: dict[str, int] = field(default_factory=dict)
    health: dict[str, float] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the same for JSON: numbers that are not finite are strings."""
        found: dict[str, Any] = _plain(dataclasses.asdict(self))
        return found


def inspect_run(run: Run, advance: Callable[[int], None] = lambda nbytes: None) -> RunSummary:
    """Reads a run once; memory is bounded by the number of its tags.

    Args:
        run: The run.
        advance: Called with the number of bytes after each record.
    """
    report = Report()
    summary = RunSummary(valid(run.name), run.path, ranks=run.ranks, files=len(run.files))
    summary.nbytes = run.nbytes
    tags: dict[tuple[str, str], TagSummary] = {}
    records: Counter[str] = Counter()
    lineages: dict[int, Lineage] = {}
    health: dict[int, dict[str, float]] = {}  # by rank
    for file in run.files:
        for decoded in read_events(file, report, advance):
            event = decoded.event
            kind = event.WhichOneof("what") or "unknown"
            records[kind] += 1
            _take_time(summary, decoded.wall_time)
            if file.name.kind is Kind.LINEAGE:
                take(lineages.setdefault(file.name.rank, Lineage()), decoded, report)
            elif kind == "summary":
                _take_step(summary, event.step)
                if not _take_values(tags, event.step, event.summary.value):
                    what = f"tags beyond the first {MOST_SERIES:,} of the run are not listed"
                    report.problem(decoded.path, decoded.offset, what)
                _take_health(health.setdefault(file.name.rank, {}), event.summary.value)
    summary.records = dict(sorted(records.items()))
    summary.tags = sorted(tags.values(), key=lambda each: (each.kind, each.tag))
    _take_lineages(summary, lineages)
    for counters in health.values():
        for name, number in counters.items():
            before = summary.health.get(name, 0.0)
            summary.health[name] = max(before, number) if name in _GREATEST else before + number
    summary.problems, summary.problem_count = report.problems, report.problem_count
    return summary


def _take_time(summary: RunSummary, wall_time: float) -> None:
    if summary.first_time is None or wall_time < summary.first_time:
        summary.first_time = wall_time
    if summary.last_time is None or wall_time > summary.last_time:
        summary.last_time = wall_time


def _take_step(summary: RunSummary, step: int) -> None:
    if summary.first_step is None or step < summary.first_step:
        summary.first_step = step
    if summary.last_step is None or step > summary.last_step:
        summary.last_step = step


def _take_values(tags: dict[tuple[str, str], TagSummary], step: int, values: Iterable[Any]) -> bool:
    """Takes the values of a record; tells whether there was room for all of their tags."""
    has_room = True
    for value in values:
        kind = value.WhichOneof("value") or "unknown"
        key = (kind, _short(valid(value.tag)))
        tag = tags.get(key)
        if tag is None and len(tags) >= MOST_SERIES:
            has_room = False
            continue
        if tag is None:
            tag = tags[key] = TagSummary(key[1], NAMES.get(kind, kind), 0, step, step)
        tag.values += 1
        tag.first_step = min(tag.first_step, step)
        tag.last_step = max(tag.last_step, step)
        tag.nbytes += value.ByteSize()
        if kind == "scalar_value":
            number = value.scalar_value
            tag.last = number
            if not math.isfinite(number):
                tag.not_finite += 1
                continue
            tag.least = number if tag.least is None else min(tag.least, number)
            tag.greatest = number if tag.greatest is None else max(tag.greatest, number)
    return has_room


def _short(tag: str) -> str:
    return tag if len(tag) <= LONGEST_TAG else tag[: LONGEST_TAG - 1] + "…"


def _take_health(counters: dict[str, float], values: Iterable[Any]) -> None:
    for value in values:
        prefix, _, name = valid(value.tag).partition("/")
        if prefix == _HEALTH and name in _COUNTERS and value.HasField("scalar_value"):
            counters[name] = value.scalar_value


def _take_lineages(summary: RunSummary, lineages: dict[int, Lineage]) -> None:
    for _, lineage in sorted(lineages.items(), reverse=True):  # the lowest rank's is in force
        if lineage.train is None:
            continue
        state = lineage.train.run_state
        summary.status = RunState.Status.Name(lineage.status)
        summary.reason = shown(state.reason)
        summary.host = shown(state.host)
        summary.samples = state.samples if state.HasField("samples") else None
        summary.pid = state.pid if state.HasField("pid") else None
        for kind, count in state.troubles.items():
            summary.troubles[kind] = summary.troubles.get(kind, 0) + count


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
