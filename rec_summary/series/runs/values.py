"""The values of whole runs that count, as batches, as columns of scalars, or one by one."""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, SUMMARY, Batch, Columns, Recorded, gathered, rows_of
from rec_summary.series.event_reader import read_batches
from rec_summary.series.options import Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.history import History, summary_files
from rec_summary.series.runs.writers import Writer, Writers
from rec_summary.series.step_buffer import Finished, Restart, StepBuffer
from rec_summary.series.text import valid


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


class RankScalars(NamedTuple):
    """Scalars of one rank, in the order of the records.

    Attributes:
        run: The run's name.
        rank: The rank that recorded them.
        columns: The values.
    """

    run: str
    rank: int
    columns: Columns


def recorded_values(
    run: Run, kinds: Iterable[str], selection: Selection, report: Report
) -> Iterator[Value]:
    """Yields the same values as `finished`, one by one.

    Args:
        run: The run.
        kinds: Fields of `Summary.Value`, such as `scalar_value`.
        selection: Which tags and steps.
        report: Takes what cannot be read.
    """
    for writer, batch in finished(run, kinds, selection, report):
        name = writer.name(valid(run.name))
        for record in batch.records():
            for recorded in record.values:
                yield Value(name, writer.rank, record.step, recorded)


def finished(
    run: Run,
    kinds: Iterable[str],
    selection: Selection,
    report: Report,
    history: History | None = None,
) -> Iterator[tuple[Writer, Batch]]:
    """Yields the values of some kinds that count, as batches, writer after writer.

    Of a value that was recorded several times for a step, only the last one is yielded, and
    none that a restart supersedes. Memory is bounded by what is recorded for one step.

    Args:
        run: The run.
        kinds: Fields of `Summary.Value`, such as `scalar_value`.
        selection: Which tags and steps.
        report: Counts what is read, and takes problems.
        history: The history of the run, if it is known.
    """
    wanted, history = frozenset(kinds), history or History(selection.narrowed(run))
    for writer, files in history.files:
        buffer = StepBuffer(run.name, report)
        for file in files:
            for batch in read_batches(file, report):
                if batch.kind == SUMMARY:
                    chosen = history.in_force(batch).select(selection, wanted)
                    yield from _batches(writer, buffer.add(chosen))
        yield from _batches(writer, buffer.end())


def _batches(writer: Writer, items: Iterable[Finished]) -> Iterator[tuple[Writer, Batch]]:
    for item in items:
        if not isinstance(item, Restart):  # the history knows them
            yield writer, item


def finished_scalars(
    run: Run, selection: Selection, report: Report
) -> Iterator[tuple[Writer, Columns]]:
    """Yields the scalars of `finished`, in columns of many values."""
    values = finished(run, (SCALAR,), selection, report)
    for writer, batches in itertools.groupby(values, key=operator.itemgetter(0)):
        for columns in gathered(batch.scalars() for _, batch in batches):
            yield writer, columns


def scalars_in_memory(
    run: Run, selection: Selection, report: Report
) -> list[tuple[Writer, Columns]]:
    """Returns the values of `finished_scalars`; each file is read once.

    Nothing is known of later restarts while a value is read, so all values are held.
    """
    writers = Writers()
    held: dict[tuple[int, int], BufferedScalars] = {}  # by rank and number of the writer
    for _, file in summary_files(selection.narrowed(run)):
        for batch in read_batches(file, report):
            if batch.kind == SUMMARY:
                writer = writers.of(file, batch)
                key = (writer.rank, writer.number)
                if key not in held:
                    held[key] = BufferedScalars(writer, StepBuffer(run.name, report), selection)
                held[key].take(held[key].buffer.add(batch))
            else:
                writers.begins(file, batch)
    for scalars in held.values():
        scalars.take(scalars.buffer.end())
    return [(scalars.writer, part) for scalars in held.values() for part in scalars.parts]


class BufferedScalars:
    """The scalars of a writer that count, as far as they have been read.

    Attributes:
        writer: The writer.
        buffer: The buffer that they come from.
    """

    def __init__(self, writer: Writer, buffer: StepBuffer, selection: Selection) -> None:
        """Holds nothing yet."""
        self.writer, self.buffer, self._selection = writer, buffer, selection
        self._parts: dict[int, Columns] = {}  # by number, in order
        self._highest: list[tuple[int, int]] = []  # a heap: step, negative, and number of each part
        self._count = 0

    @property
    def parts(self) -> Iterable[Columns]:
        """The scalars."""
        return self._parts.values()

    def take(self, items: Iterable[Finished]) -> None:
        """Takes what the buffer passes on."""
        for item in items:
            batches: Sequence[Batch] = (item,) if isinstance(item, Batch) else item.again
            if isinstance(item, Restart):
                self._forget(item.step)
            for batch in batches:
                self._keep(self._count, batch.select(self._selection, (SCALAR,)).scalars())
                self._count += 1

    def _keep(self, number: int, part: Columns) -> None:
        if len(part.steps):
            self._parts[number] = part
            heapq.heappush(self._highest, (-int(part.steps[-1]), number))

    def _forget(self, step: int) -> None:
        """Drops the values of a step and of later ones; within a part, steps never go back."""
        while self._highest and -self._highest[0][0] >= step:
            _, number = heapq.heappop(self._highest)
            part = self._parts[number]
            rest = int(np.searchsorted(part.steps, step))
            if rest:
                self._keep(number, rows_of(part, slice(rest)))
            else:
                del self._parts[number]
