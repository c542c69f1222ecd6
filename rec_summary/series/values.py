"""The values of whole runs, as batches, as columns of scalars, or one by one."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, Batch, Columns, Recorded, gathered, rows_of
from rec_summary.series.event_reader import read_batches
from rec_summary.series.limits import LONGEST_TAG
from rec_summary.series.lineage import EVALUATION, lineage_events, metrics_of, numeric
from rec_summary.series.options import Selection
from rec_summary.series.report import Report
from rec_summary.series.step_buffer import Finished, Restart, StepBuffer, too_long
from rec_summary.series.text import valid

_SCALARS: Final = frozenset((SCALAR,))


class Value(NamedTuple):
    """A recorded value.

    Attributes:
        run: The run's name.
        rank: The rank that recorded it.
        step: The training step.
        recorded: Its kind, tag, protobuf message, and the record it comes from.
    """

    run: str
    rank: int
    step: int
    recorded: Recorded


class Evaluation(NamedTuple):
    """A metric of an evaluation.

    Attributes:
        run: The run's name.
        rank: The rank that evaluated.
        step: The training step; None if it is not recorded.
        wall_time: Seconds since the epoch.
        metric: The metric's name.
        value: Its value, if that is a number.
    """

    run: str
    rank: int
    step: int | None
    wall_time: float
    metric: str
    value: float | None


def recorded_values(
    run: Run, kinds: Iterable[str], selection: Selection, report: Report
) -> Iterator[Value]:
    """Yields the values of some kinds, rank after rank.

    Of a value that was recorded several times for a step, the last is yielded. Memory is
    bounded by what is recorded for one step.

    Args:
        run: The run.
        kinds: Fields of `Summary.Value`, such as `scalar_value`.
        selection: Which tags and steps.
        report: Takes what cannot be read.
    """
    name = valid(run.name)
    for rank, batch in finished(run, kinds, selection, report):
        for record in batch.records():
            for recorded in record.values:
                yield Value(name, rank, record.step, recorded)


def finished(
    run: Run,
    kinds: Iterable[str],
    selection: Selection,
    report: Report,
    advance: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[tuple[int, Batch]]:
    """Yields ranks and batches of the values of some kinds, rank after rank.

    Of a value that was recorded several times for a step, only the last is in them.

    Args:
        run: The run.
        kinds: Fields of `Summary.Value`, such as `scalar_value`.
        selection: Which tags and steps.
        report: Takes what cannot be read.
        advance: Called with the number of bytes after each batch that was read.
    """
    for rank, item in finished_or_restarted(run, kinds, selection, report, advance):
        if not isinstance(item, Restart):
            yield rank, item


def finished_or_restarted(
    run: Run,
    kinds: Iterable[str],
    selection: Selection,
    report: Report,
    advance: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[tuple[int, Finished]]:
    """Yields the same as `finished`, and restarts where steps go back."""
    wanted = frozenset(kinds)
    for rank in run.ranks:
        buffer = StepBuffer(run.name, report)
        for file in run.of(Kind.SUMMARY, rank):
            for batch in read_batches(file, report, advance):
                for item in buffer.add(batch.select(selection, wanted)):
                    yield rank, item
        for item in buffer.flush():
            yield rank, item


def finished_scalars(
    run: Run,
    selection: Selection,
    report: Report,
    advance: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[tuple[int, Columns]]:
    """Yields ranks and scalars as `finished`, in columns of many values."""
    found = finished(run, (SCALAR,), selection, report, advance)
    for rank, batches in itertools.groupby(found, key=operator.itemgetter(0)):
        for columns in gathered(batch.scalars() for _, batch in batches):
            yield rank, columns


def scalar_columns(run: Run, selection: Selection, report: Report) -> Iterator[tuple[int, Columns]]:
    """Yields ranks and all scalars of a run in the order of the records, rank after rank.

    A value that comes again is yielded again: the last value of a tag and step counts.

    Args:
        run: The run.
        selection: Which tags and steps.
        report: Takes what cannot be read.
    """
    for rank in run.ranks:
        for file in run.of(Kind.SUMMARY, rank):
            for batch in read_batches(file, report):
                part = batch.select(selection, _SCALARS)
                if part.count:
                    yield rank, _short_tags(part, report)


def _short_tags(batch: Batch, report: Report) -> Columns:
    """Returns the scalars of a batch whose tags are not too long, and reports the others."""
    columns = batch.scalars()
    long = [code for code, tag in enumerate(columns.tags) if len(tag) > LONGEST_TAG]
    if not long:
        return columns
    for code in long:
        report.problem(batch.path, batch.offset, too_long(columns.tags[code]))
    return rows_of(columns, ~np.isin(columns.codes, long))


def evaluations(run: Run, report: Report) -> Iterator[Evaluation]:
    """Yields the metrics of all evaluations of a run."""
    name = valid(run.name)
    for rank in run.ranks:
        for decoded in lineage_events(run, rank, report):
            event: Any = decoded.event
            if event.WhichOneof("what") != EVALUATION:
                continue
            evaluation = event.evaluation_lineage
            step = evaluation.train_step if evaluation.HasField("train_step") else None
            for metric, value in metrics_of(evaluation):
                yield Evaluation(name, rank, step, decoded.wall_time, metric, numeric(value))
