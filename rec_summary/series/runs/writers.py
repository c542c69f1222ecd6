"""Who wrote the summary files of a run.

Processes write the files of a rank one after another: a process begins the next file, or is started
again. Two processes may also record as the same rank at the same time. Their times tell them apart,
and the second one gets a name of its own, because a curve that zigzags between two trainings is of
no use.
"""

from __future__ import annotations

import functools
import os
from typing import Final

from msgspec import Struct

from rec_summary.records.format.names import RecordName, parse_name
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import Batch
from rec_summary.series.limits import Count, Rank, Seconds

# Two processes that record at the same time for longer than this are two: clocks differ by less.
_OVERLAP_SECS: Final = 5.0
_OVERLAP_SECS_ON_A_HOST: Final = 1.0


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


class Writers(Struct, dict=True, forbid_unknown_fields=True):
    """Knows the writer of each summary file of one run; can be stored as it is.

    Attributes:
        writers: All writers, in the order of their first records.
        homes: By the name of a file, the place of its writer in that list.
    """

    writers: list[Writer] = []
    homes: dict[str, Count] = {}

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
