"""The values of whole runs that count, as batches, as columns of scalars, or one by one."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, SUMMARY, Batch, Columns, Recorded, gathered, rows_of
from rec_summary.series.cuts import Cuts
from rec_summary.series.event_reader import read_batches
from rec_summary.series.options import Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.history import History, summary_files
from rec_summary.series.runs.writers import Writer, Writers
from rec_summary.series.step_buffer import StepBuffer
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
        values = WriterValues(run.name, report, selection, wanted)
        for file in files:
            for batch in read_batches(file, report):
                if batch.kind == SUMMARY:
                    yield from ((writer, history.in_force(part)) for part in values.take(batch))
        yield from ((writer, history.in_force(part)) for part in values.buffer.end())


class WriterValues:
    """The values of a writer, before it is known which ones a restart supersedes.

    Of a value that was recorded several times for a step, only the last one is passed on.

    Attributes:
        cuts: The cuts.
        buffer: Has the values of the current step.
    """

    def __init__(
        self, run: str, report: Report, selection: Selection, kinds: Collection[str] | None = None
    ) -> None:
        """Holds nothing yet.

        Args:
            run: The run's name, for notes.
            report: Takes values that are left out.
            selection: Which tags and steps are passed on.
            kinds: Which kinds; None means all.
        """
        self.cuts = Cuts(run, report)
        self.buffer = StepBuffer(report)
        self._selection, self._kinds = selection, kinds

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Takes values; yields those of finished steps."""
        for item in self.cuts.take(batch):
            if isinstance(item, Batch):
                yield from self.buffer.add(item.select(self._selection, self._kinds))


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
    held: dict[tuple[int, int], _Held] = {}  # by rank and number of the writer
    for _, file in summary_files(selection.narrowed(run)):
        for batch in read_batches(file, report):
            if batch.kind != SUMMARY:
                writers.begins(file, batch)
                continue
            writer = writers.of(file, batch)
            key = (writer.rank, writer.number)
            if key not in held:
                values = WriterValues(run.name, report, selection, (SCALAR,))
                held[key] = _Held(writer, values, [])
            held[key].keep(held[key].values.take(batch))
    for each in held.values():
        each.keep(each.values.buffer.end())
    return [(each.writer, part) for each in held.values() for part in each.in_force()]


class _Held(NamedTuple):
    """The scalars of a writer; parts have the file and the end of the batch that they are of."""

    writer: Writer
    values: WriterValues
    parts: list[tuple[str, int, Columns]]

    def keep(self, batches: Iterable[Batch]) -> None:
        self.parts.extend((each.path, each.end_offset, each.scalars()) for each in batches)

    def in_force(self) -> Iterator[Columns]:
        for path, end, part in self.parts:
            last = self.values.cuts.below(path, end) - 1
            # Within a part, steps never go back.
            count = int(part.steps.searchsorted(last, "right"))
            if count:
                yield part if count == len(part.steps) else rows_of(part, slice(count))
