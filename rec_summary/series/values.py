"""The values of whole runs that count, as batches, as columns of scalars, or one by one.

Processes write the files of a rank one after another: a process begins the next file, or is started
again. Two processes may also record as the same rank at the same time. Their times tell them apart,
and the second one gets a name of its own, because a curve that zigzags between two trainings is of
no use.
"""

from __future__ import annotations

import bisect
import copy
import functools
import heapq
import itertools
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from rec_summary.records.format.names import Kind, RecordName, parse_name
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SCALAR, SUMMARY, Batch, Columns, Recorded, gathered, rows_of
from rec_summary.series.event_reader import EventReader, read_batches
from rec_summary.series.limits import Count, Rank, Seconds
from rec_summary.series.lineage import EVALUATION, lineage_events, metrics_of, numeric
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.step_buffer import Finished, Restart, StepBuffer
from rec_summary.series.text import valid

# Two processes that record at the same time for longer than this are two: clocks differ by less.
_OVERLAP_SECS: Final = 5.0
_OVERLAP_SECS_ON_A_HOST: Final = 1.0


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


class Writer(Struct, array_like=True):
    """A process, or several one after another.

    Attributes:
        rank: Its rank.
        number: Which writer of that rank it is, from 1 on.
        last: When its last record was written, in seconds since the epoch.
    """

    rank: Rank
    number: Count
    last: Seconds

    def name(self, run: str) -> str:
        """Returns the name of a run, or that of a further writer of its rank."""
        return run if self.number == 1 else f"{run}/writer_{self.number}"


class Writers(Struct, dict=True):
    """Knows the writer of each summary file of one run; can be stored as it is.

    Attributes:
        writers: All writers, in the order of their first records.
        homes: By the name of a file, the place of its writer in that list.
    """

    writers: list[Writer]
    homes: dict[str, Count]

    def __post_init__(self) -> None:
        if any(index >= len(self.writers) for index in self.homes.values()):
            raise ValueError("no such writer")

    def of(self, file: RecordFile, batch: Batch) -> Writer:
        """Returns the writer of a file, of which a batch was read."""
        return self.at(file, float(batch.wall_times[0]), float(batch.wall_times.max()))

    def at(self, file: RecordFile, first: float, last: float) -> Writer:
        """Returns the writer of a file, of which records were read from one time to another."""
        name = os.path.basename(file.path)
        if name not in self.homes:
            chosen = self._choose(file.name, first)
            self.homes[name] = chosen
            self._hosts[chosen] = file.name.host
        writer = self.known(file)
        writer.last = max(writer.last, last)
        return writer

    def known(self, file: RecordFile) -> Writer:
        """Returns the writer of a file of which a batch was read before."""
        return self.writers[self.homes[os.path.basename(file.path)]]

    def continued(self, file: RecordFile) -> Writer | None:
        """Returns the writer of the files that a compacted file is made of; None if none is known.

        The compacted file is this writer's from now on.
        """
        same = [
            (compaction.stamp != file.name.stamp, index)
            for name, index in self.homes.items()
            if (compaction := parse_name(name)) is not None and file.name.covers(compaction)
        ]
        if not same:
            return None
        self.homes[os.path.basename(file.path)] = home = min(same)[1]
        return self.writers[home]

    def _choose(self, name: RecordName, wall_time: float) -> int:
        same = self._by_rank.setdefault(name.rank, [])
        before = []
        for index in same:
            on_a_host = self._hosts.get(index) == name.host
            overlap = self.writers[index].last - wall_time
            if overlap <= (_OVERLAP_SECS_ON_A_HOST if on_a_host else _OVERLAP_SECS):
                before.append(index)
        if before:
            return max(before, key=lambda index: self.writers[index].last)
        same.append(len(self.writers))
        self.writers.append(Writer(name.rank, len(same), wall_time))
        return same[-1]

    @functools.cached_property
    def _hosts(self) -> dict[int, str]:
        """The host of each writer, by its place: that of its latest file."""
        names = ((index, parse_name(name)) for name, index in self.homes.items())
        return {index: name.host for index, name in names if name is not None}

    @functools.cached_property
    def _by_rank(self) -> dict[int, list[int]]:
        """The places of the writers of each rank: there may be thousands of ranks."""
        indices: dict[int, list[int]] = {}
        for index, writer in enumerate(self.writers):
            indices.setdefault(writer.rank, []).append(index)
        return indices


class History:
    """Who wrote the values of a run, and which of them count.

    When training is started again from a checkpoint, the values of the steps from there on are
    recorded again. Those that were recorded before do not count, whatever kind they are of. To know
    them from the first one on, all files are read before, but for their steps and times only.

    Attributes:
        files: The writers and their summary files, in order.
        last_steps: The step of the last record of each writer, by its rank and number.
    """

    def __init__(self, run: Run) -> None:
        """Reads the steps and times of a run; what cannot be read is not reported."""
        self.files: list[tuple[Writer, list[RecordFile]]] = []
        self.last_steps: dict[tuple[int, int], int] = {}
        self._run = run
        self._restarts: dict[str, tuple[int, list[_Place]]] = {}  # by path, with its number
        writers = Writers([], {})
        files: dict[tuple[int, int], list[RecordFile]] = {}  # by rank and number of the writer
        latest: dict[tuple[int, int], int] = {}
        restarted = set()
        for rank, file in _summary_files(run):
            writer = None
            with EventReader(file, Report(), steps_only=True) as reader:
                for batch in reader:
                    if batch.kind != SUMMARY:
                        continue
                    writer, steps = writers.of(file, batch), batch.steps
                    key = (rank, writer.number)
                    if steps[0] < latest.get(key, steps[0]):
                        restarted.add(key)
                    latest[key] = steps[-1]
                    # A landscape has step 0, and is computed after the training.
                    self.last_steps[key] = int(steps[-1]) or self.last_steps.get(key, 0)
            if writer is None:  # it has no values
                self.files.append((Writer(rank, 1, 0.0), [file]))
            else:
                files.setdefault((rank, writer.number), []).append(file)
        for writer in writers.writers:
            key = (writer.rank, writer.number)
            self.files.append((writer, files[key]))
            if key in restarted:
                restarts = _restarts(run, files[key])
                self._restarts |= {
                    file.path: (number, restarts) for number, file in enumerate(files[key])
                }

    def writers(self) -> list[tuple[Run, History]]:
        """Returns the run of the first writers of all ranks, and one for each further number.

        These have the names that the values of further writers have: `<run>/writer_2`. A lineage
        file belongs to the writer whose summary file has the same name otherwise.
        """
        if all(writer.number == 1 for writer, _ in self.files):
            return [(self._run, self)]
        numbers = {_pair(file): writer.number for writer, files in self.files for file in files}
        parts = []
        for number in sorted(set(numbers.values())):
            chosen = [file for file in self._run.files if numbers.get(_pair(file), 1) == number]
            name = Writer(0, number, 0.0).name(self._run.name)
            history = copy.copy(self)
            history.files = [file for file in self.files if file[0].number == number]
            history.last_steps = {
                writer: step for writer, step in self.last_steps.items() if writer[1] == number
            }
            parts.append((Run(name, self._run.path, tuple(chosen)), history))
        return parts

    def in_force(self, batch: Batch) -> Batch:
        """Returns the values of a batch that no later restart supersedes."""
        number, restarts = self._restarts.get(batch.path, (0, []))
        index = bisect.bisect_left(restarts, (number, batch.end_offset))
        if index == len(restarts):
            return batch
        return batch.select(Selection(ExportOptions(until=restarts[index].step - 1)))


def _pair(file: RecordFile) -> tuple[str, int, int, str]:
    """Returns what the names of a summary file and its lineage file have in common."""
    return file.name.prefix, file.name.stamp, file.name.rank, file.name.host


class _Place(NamedTuple):
    """Where training had begun again: the number of the file, the offset, and the step."""

    file: int
    offset: int
    step: int


def _summary_files(run: Run) -> Iterator[tuple[int, RecordFile]]:
    for rank in run.ranks:
        for file in run.files_of(Kind.SUMMARY, rank):
            yield rank, file


def _restarts(run: Run, files: Sequence[RecordFile]) -> list[_Place]:
    """Returns the restarts of a writer but those that a later one makes unimportant."""
    places: list[_Place] = []
    buffer = StepBuffer(run.name, Report())
    numbers = {file.path: number for number, file in enumerate(files)}
    for file in files:
        for batch in read_batches(file, Report()):
            for item in buffer.add(batch):
                if isinstance(item, Restart):
                    while places and places[-1].step >= item.step:
                        places.pop()
                    origin = item.origin
                    places.append(_Place(numbers[origin.path], origin.offset, item.step))
    return places


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
    writers = Writers([], {})
    held: dict[tuple[int, int], BufferedScalars] = {}  # by rank and number of the writer
    for _, file in _summary_files(selection.narrowed(run)):
        for batch in read_batches(file, report):
            if batch.kind == SUMMARY:
                writer = writers.of(file, batch)
                key = (writer.rank, writer.number)
                if key not in held:
                    held[key] = BufferedScalars(writer, StepBuffer(run.name, report), selection)
                held[key].take(held[key].buffer.add(batch))
    for scalars in held.values():
        scalars.take(scalars.buffer.end())
    return [
        (held[writer.rank, writer.number].writer, columns)
        for writer in writers.writers
        for columns in held[writer.rank, writer.number].parts
    ]


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

    def drain(self) -> list[Columns]:
        """Returns the scalars, and holds none from then on."""
        parts = list(self._parts.values())
        self._parts.clear()
        self._highest.clear()
        return parts

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


def evaluations(run: Run, report: Report) -> Iterator[dict[str, Any]]:
    """Yields a row for each metric of all evaluations of a run.

    The step is None if it is not recorded, and the value if it is not a number.
    """
    for rank in run.ranks:
        for decoded in lineage_events(run, rank, report):
            event: Any = decoded.event
            if event.WhichOneof("what") != EVALUATION:
                continue
            evaluation = event.evaluation_lineage
            step = evaluation.train_step if evaluation.HasField("train_step") else None
            place = {"run": valid(run.name), "rank": rank, "step": step}
            place["wall_time"] = decoded.wall_time
            for metric, value in metrics_of(evaluation):
                yield {**place, "metric": metric, "value": numeric(value)}
