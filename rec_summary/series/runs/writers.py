"""Who wrote the summary files of a run.

Processes write the files of a rank one after another: a process begins the next file, or is
started again. Two processes may also record as the same rank at the same time. The second one gets
a name of its own, because a curve that zigzags between two trainings is of no use.

The first record of a file says which process wrote it. A file of another process continues the
writer that it can continue by its time, or by its steps: MindSpore and earlier versions state no
process, and a clock may step back.
"""

from __future__ import annotations

import functools
import os
from typing import Final, NamedTuple

from msgspec import Struct

from rec_summary.records.format.names import RecordName, parse_name
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import Batch
from rec_summary.series.limits import Count, Rank, Seconds, Step

# Two processes that record at the same time for longer than this are two: clocks differ by less.
_OVERLAP_SECS: Final = 5.0
_OVERLAP_SECS_ON_A_HOST: Final = 1.0

_MOST_STEPS: Final = 1 << 62  # that can be stored


class Span(NamedTuple):
    """Where records of a file are in time and steps.

    Attributes:
        first: The time of the first one, in seconds since the epoch.
        last: The latest time.
        first_step: The step of the first one.
        last_step: The step of the last one.
        spacing: The steps between the last two; 0 for records of one step.
        process: Which process wrote them, as the first record of the file says; 0 if it is unknown.
    """

    first: float
    last: float
    first_step: int
    last_step: int
    spacing: int
    process: int = 0

    @classmethod
    def of(cls, batch: Batch) -> Span:
        """Returns that of a batch."""
        steps, times = batch.steps, batch.wall_times
        before = int(steps.searchsorted(steps[-1]))  # records of earlier steps
        spacing = int(steps[-1]) - int(steps[before - 1]) if before else 0
        return cls(float(times[0]), float(times.max()), int(steps[0]), int(steps[-1]), spacing)

    def followed_by(self, other: Span) -> Span:
        """Returns that of these records and the next ones."""
        spacing = other.spacing or max(other.last_step - self.last_step, 0) or self.spacing
        last = max(self.last, other.last)
        return self._replace(last=last, last_step=other.last_step, spacing=spacing)


class Writer(Struct, array_like=True):
    """A process, or several one after another.

    Attributes:
        rank: Its rank.
        number: Which writer of that rank it is, from 1 on.
        last: When its last record was written, in seconds since the epoch.
        step: The step of its last record.
        spacing: The steps between its last two records.
    """

    rank: Rank
    number: Count
    last: Seconds
    step: Step = 0
    spacing: Count = 0

    def name(self, run: str) -> str:
        """Returns the name of a run, or that of a further writer of its rank."""
        return run if self.number == 1 else f"{run}/writer_{self.number}"


class Writers(Struct, dict=True, forbid_unknown_fields=True):
    """Knows the writer of each summary file of one run; can be stored as it is.

    Attributes:
        writers: All writers, in the order of their first records.
        homes: By the name of a file, the place of its writer in that list.
        processes: By the name of a file, the process that wrote it, as far as it is stated.
    """

    writers: list[Writer] = []
    homes: dict[str, Count] = {}
    processes: dict[str, Step] = {}

    def __post_init__(self) -> None:
        if any(index >= len(self.writers) for index in self.homes.values()):
            raise ValueError("no such writer")

    def begins(self, file: RecordFile, batch: Batch) -> None:
        """Takes a batch without values of a summary file: the first one says who wrote it."""
        for record in batch.records():
            if record.event.writer:
                self.processes[os.path.basename(file.path)] = record.event.writer

    def of(self, file: RecordFile, batch: Batch) -> Writer:
        """Returns the writer of a file, of which a batch was read."""
        return self.at(file, Span.of(batch))

    def at(self, file: RecordFile, span: Span) -> Writer:
        """Returns the writer of a file, of which records were read."""
        name = os.path.basename(file.path)
        if name not in self.homes:
            process = (file.name.rank, span.process or self.processes.get(name, 0))
            chosen = self._by_process.get(process)
            if chosen is None:
                chosen = self._choose(file.name, span)
            if process[1]:
                self.processes[name], self._by_process[process] = process[1], chosen
            self.homes[name] = chosen
            self._hosts[chosen] = file.name.host
        writer = self.known(file)
        writer.last = max(writer.last, span.last)
        if span.last_step:  # a landscape has step 0, and is computed after the training
            gone_on = max(span.last_step - writer.step, 0) if writer.step else 0
            writer.spacing = min(span.spacing or gone_on or writer.spacing, _MOST_STEPS)
            writer.step = span.last_step
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

    def _choose(self, name: RecordName, span: Span) -> int:
        """Returns the place of the writer that a file continues, or of a new one."""
        same = self._by_rank.setdefault(name.rank, [])
        before: list[tuple[tuple[bool, bool, float], int]] = []
        for index in same:
            writer, on_a_host = self.writers[index], self._hosts.get(index) == name.host
            overlap = writer.last - span.first
            goes_on = on_a_host and 0 < span.first_step - writer.step <= writer.spacing
            if goes_on or overlap <= (_OVERLAP_SECS_ON_A_HOST if on_a_host else _OVERLAP_SECS):
                before.append(((goes_on, goes_on and overlap <= 0, writer.last), index))
        if before:
            return max(before)[1]
        same.append(len(self.writers))
        self.writers.append(Writer(name.rank, len(same), span.first))
        return same[-1]

    @functools.cached_property
    def _by_process(self) -> dict[tuple[int, int], int]:
        """The places of the writers that processes of a rank belong to."""
        places = {}
        for name, process in self.processes.items():
            parsed = parse_name(name)
            if parsed is not None and name in self.homes:
                places[parsed.rank, process] = self.homes[name]
        return places

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
