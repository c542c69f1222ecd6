"""Asks of a recorded run why a metric moved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rec_summary.answers.scalars import KINDS, RANKS, Kind, Scalars
from rec_summary.answers.why import Answer, Event, why
from rec_summary.errors import ArgumentError, three_part
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import by_tag
from rec_summary.series.lineage import lineage_events, lineage_of
from rec_summary.series.options import ExportOptions, Moment, Selection, Since
from rec_summary.series.report import Report
from rec_summary.series.runs.slices import SliceHistory, histories, numbers_without_curve
from rec_summary.series.runs.values import scalars_in_memory
from rec_summary.series.text import valid


def why_of(
    run: Run,
    report: Report,
    *,
    metric: str | None = None,
    task: str | None = None,
    since: Moment = None,
    at: int | None = None,
    read: Moment = None,
) -> Answer:
    """Returns what moved a metric of a run, the likeliest culprit first.

    Of several processes that have recorded as the same rank at the same time, the first counts.

    Args:
        run: The run.
        report: Counts what is read, and takes problems.
        metric: One of `METRICS`; None for all.
        task: Only this task; None for all.
        since: Only what began then or later.
        at: Only what began around this step.
        read: What was recorded before that is not read; the past begins there.

    Raises:
        ArgumentError: There is no such task.
    """
    evidence = evidence_of(run, report, read)
    beginning = ExportOptions(since=since).beginning
    tasks = [history.task for history in evidence.slices if not history.column]
    if task is not None and task not in tasks:
        expected = f"one of {', '.join(tasks)}" if any(tasks) else "none: tasks have no names here"
        raise ArgumentError(three_part("the task", task, expected))
    step = _step_of(beginning, evidence.slices, evidence.series)
    return why(*evidence, metric=metric, task=task, since=step, at=at)


class Evidence(NamedTuple):
    """What is read of a run to say what moved.

    Attributes:
        slices: The sums of all columns of all tasks.
        series: Scalars that can be a cause.
        events: What was done to the run, by step.
    """

    slices: list[SliceHistory]
    series: list[Scalars]
    events: list[Event]


def evidence_of(run: Run, report: Report, read: Moment = None) -> Evidence:
    """Reads what `why` compares.

    Args:
        run: The run.
        report: Counts what is read, and takes problems.
        read: What was recorded before that is not read.
    """
    reports = Report(), Report(), Report()
    options = ExportOptions(since=read)
    slices = histories(run, Selection(options), reports[0]).get(valid(run.name), [])
    series = [*_scalars(run, read, reports[1])]
    events = sorted(_events(run, reports[2]), key=lambda event: (event.step, event.wall_time))
    for each in reports:
        report.add_again(each)
    return Evidence(slices, series, events)


def _scalars(run: Run, read: Moment, report: Report) -> Iterator[Scalars]:
    """Yields the scalars that can be a cause."""
    kinds = [*KINDS, *RANKS] if len(run.ranks) > 1 else KINDS
    selection = Selection(ExportOptions(tags=_tags(kinds), since=read))
    parts = sorted(
        (
            (tag, writer.rank, columns)
            for writer, every in scalars_in_memory(run, selection, report)
            if writer.number == 1
            for tag, columns in by_tag(every)
        ),
        key=lambda part: part[:2],
    )
    for (tag, rank), group in itertools.groupby(parts, key=lambda part: part[:2]):
        own = [columns for _, _, columns in group]
        steps, times, values = (
            np.concatenate([getattr(columns, name) for columns in own])
            for name in ("steps", "wall_times", "values")
        )
        steps, last = np.unique(steps[::-1], return_index=True)
        rows = len(values) - 1 - last
        yield Scalars(tag, rank, steps, times[rows], values[rows])
    quiet = numbers_without_curve(run, Selection(ExportOptions(since=read)), Report())
    for (tag, rank), points in quiet.items():
        steps_of, *rest = map(np.array, zip(*points, strict=True))
        yield Scalars(tag, rank, steps_of, *rest)


def _tags(kinds: Sequence[Kind]) -> str:
    """Returns a regular expression of the tags of kinds; names of groups would come twice."""
    patterns = (kind.pattern.pattern for kind in kinds)
    plain = (each.replace("?P<name>", "?:").replace("?P<metric>", "?:") for each in patterns)
    return "|".join(f"^(?:{each})$" for each in plain)


def _step_of(
    since: Since, slices: Sequence[SliceHistory], series: Sequence[Scalars]
) -> float | None:
    """Returns the first step of a time; None if all count."""
    if since.step is not None:
        return since.step
    if since.wall_time == -np.inf:
        return None
    places = [(each.wall_times, each.steps) for each in slices]
    for times, steps in places or [(each.wall_times, each.steps) for each in series]:
        at = int(np.searchsorted(times, since.wall_time))
        return float(steps[at]) if at < len(steps) else np.inf
    return None


def _events(run: Run, report: Report) -> Iterator[Event]:
    """Yields later starts, other data, notes, alerts, incidents, and what was done from outside."""
    for note in lineage_of(run, report).notes:
        words = f"{note.author}: {note.text}" if note.author else note.text
        kind = note.kind if note.kind in ("note", "incident", "alert") else "control"
        yield Event(kind, note.step, note.wall_time, words)
    if not run.ranks:
        return
    started, data = 0.0, ""
    for record in lineage_events(run, run.ranks[0], report):
        event = record.event
        if event.WhichOneof("what") != "train_lineage":
            continue
        lineage = event.train_lineage
        state, path = lineage.run_state, valid(lineage.train_dataset.train_dataset_path)
        step = event.step if event.HasField("step") else state.step
        if started and state.start_time != started:
            yield Event("restart", step, record.wall_time, "training started again")
        if data and path and path != data:
            yield Event("data", step, record.wall_time, f"training data {path}")
        started, data = state.start_time, path or data
