"""The values of runs as a stream of plain rows, for everything that is no TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.blocks.block import Block
from rec_summary.series.blocks.mixed import SCALAR
from rec_summary.series.event_reader import Decoded, EventReader, read_events
from rec_summary.series.limits import LONGEST_TAG
from rec_summary.series.lineage import metrics_of, numeric
from rec_summary.series.options import Selection
from rec_summary.series.report import Tally
from rec_summary.series.runs import EVALUATION, lineage_events
from rec_summary.series.step_buffer import Origin, Recorded, StepBuffer, too_long
from rec_summary.series.words import valid


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
    run: Run,
    kinds: Iterable[str],
    selection: Selection,
    tally: Tally,
    advance: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[Value]:
    """Yields the values of some kinds, rank after rank.

    Of a value that was recorded several times for a step, the last is yielded. Memory is
    bounded by what is recorded for one step.

    Args:
        run: The run.
        kinds: Fields of `Summary.Value`, such as `scalar_value`.
        selection: Which tags and steps.
        tally: Told of what cannot be read.
        advance: Called with the number of bytes after each record that was read.
    """
    wanted = frozenset(kinds)
    name = valid(run.name)
    for rank in run.ranks:
        ready: list[Value] = []

        def emit(
            step: int, values: list[Recorded], rank: int = rank, ready: list[Value] = ready
        ) -> None:
            ready.extend(Value(name, rank, step, recorded) for recorded in values)

        buffer = StepBuffer(run.name, tally, emit, lambda step, origin: None)
        for file in run.of(Kind.SUMMARY, rank):
            for decoded in read_events(file, tally, advance):
                event = decoded.event
                if not event.summary.value or not selection.step(event.step):
                    continue
                origin = Origin(decoded.path, decoded.offset, decoded.wall_time)
                values = [
                    Recorded(kind, tag, value, origin)
                    for value in event.summary.value
                    if (kind := value.WhichOneof("value")) in wanted
                    and selection.tag(tag := valid(value.tag))
                ]
                if values:
                    buffer.add(event.step, decoded.nbytes, values)
                    yield from ready
                    ready.clear()
        buffer.pause()
        yield from ready


class ScalarColumns(NamedTuple):
    """Recorded scalars of one rank, as columns, each of shape [n].

    Attributes:
        run: The run's name.
        rank: The rank that recorded them.
        tags: Their tags, each once.
        codes: The number of each value's tag in `tags`.
        steps: The training steps.
        wall_times: Seconds since the epoch.
        numbers: The values.
    """

    run: str
    rank: int
    tags: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    wall_times: npt.NDArray[np.float64]
    numbers: npt.NDArray[np.float64]


def scalar_columns(run: Run, selection: Selection, tally: Tally) -> Iterator[ScalarColumns]:
    """Yields all scalars of a run in the order of the records, rank after rank.

    What comes again is yielded again: the last value of a tag and step counts.

    Args:
        run: The run.
        selection: Which tags and steps.
        tally: Told of what cannot be read.
    """
    name = valid(run.name)
    for rank in run.ranks:
        for file in run.of(Kind.SUMMARY, rank):
            tally.files += 1
            with EventReader(file, tally) as reader:
                while True:
                    while (found := reader.block()) is not None:
                        block, first = found
                        last = block.end(first + 1)
                        yield from _of_block(name, rank, block, first, last, selection)
                        reader.step_over(block, first, last)
                    decoded = reader.next_event()
                    if decoded is None:
                        break
                    if decoded.event.summary.value and selection.step(decoded.event.step):
                        yield from _of_event(name, rank, decoded, selection, tally)
                if reader.unfinished is not None:
                    tally.problem(file.path, reader.offset, reader.unfinished)


def _of_block(
    run: str, rank: int, block: Block, first: int, last: int, selection: Selection
) -> Iterator[ScalarColumns]:
    parts = []
    tags: list[str] = []
    for series, places, numbers in zip(block.series, block.places, block.values, strict=True):
        start, end = np.searchsorted(places, (first, last))
        columns = [
            (column, tag)
            for column, (kind, tag) in enumerate(each for each in series if each[0] == SCALAR)
            if selection.tag(tag)
        ]
        if start == end or not columns:
            continue
        chosen = selection.steps(block.steps[places[start:end]])
        within = places[start:end][chosen]
        if not len(within):
            continue
        for column, tag in columns:
            parts.append((within, len(tags), numbers[start:end][chosen, column].astype(np.float64)))
            tags.append(tag)
    if not parts:
        return
    where = np.concatenate([within for within, _, _ in parts])
    codes = np.concatenate([np.full(len(within), code) for within, code, _ in parts])
    values = np.concatenate([numbers for _, _, numbers in parts])
    order = np.argsort(where, kind="stable")
    where = where[order]
    yield ScalarColumns(
        *(run, rank, tuple(tags), codes[order]),
        *(block.steps[where], block.wall_times[where], values[order]),
    )


def _of_event(
    run: str, rank: int, decoded: Decoded, selection: Selection, tally: Tally
) -> Iterator[ScalarColumns]:
    found = []
    for value in decoded.event.summary.value:
        if value.WhichOneof("value") != SCALAR:
            continue
        tag = valid(value.tag)
        if len(tag) > LONGEST_TAG:
            tally.problem(decoded.path, decoded.offset, too_long(tag))
        elif selection.tag(tag):
            found.append((tag, value.scalar_value))
    if found:
        step, count = decoded.event.step, len(found)
        yield ScalarColumns(
            *(run, rank, tuple(tag for tag, _ in found), np.arange(count)),
            *(np.full(count, step), np.full(count, decoded.wall_time)),
            np.array([number for _, number in found], np.float64),
        )


def evaluations(run: Run, tally: Tally) -> Iterator[Evaluation]:
    """Yields the metrics of all evaluations of a run."""
    name = valid(run.name)
    for rank in run.ranks:
        for decoded in lineage_events(run, rank, tally):
            event: Any = decoded.event
            if event.WhichOneof("what") != EVALUATION:
                continue
            evaluation = event.evaluation_lineage
            step = evaluation.train_step if evaluation.HasField("train_step") else None
            for metric, value in metrics_of(evaluation):
                yield Evaluation(name, rank, step, decoded.wall_time, metric, numeric(value))
