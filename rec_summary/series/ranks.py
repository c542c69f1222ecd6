"""The writers of a run: who wrote which record file, and where the values go.

The files of one rank are those of one process after another: it went on to the next file,
or was started again. Two processes that record as the same rank at the same time are told
apart by their times, and the second one gets a TensorBoard run of its own: two curves
that zigzag through each other would be of no use to anybody.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.records.reading.runs import RecordFile

_OVERLAP_SECS: Final = 5.0  # more than a clock that is set right jumps, less than a training


@dataclass
class Writer:
    """A process, or several one after another.

    Attributes:
        rank: Its rank.
        number: Which writer of that rank it is, from 1 on.
        last: When its last record was written, in seconds since the epoch.
    """

    rank: int
    number: int
    last: float


class Writers:
    """Knows the writer of each summary file of one run."""

    def __init__(self) -> None:
        """Begins with none."""
        self._all: list[Writer] = []
        self._homes: dict[str, Writer] = {}  # by the names of files

    def of(self, file: RecordFile, wall_time: float) -> Writer:
        """Returns the writer of a file of which a record was written at `wall_time`."""
        name = os.path.basename(file.path)
        writer = self._homes.get(name)
        if writer is None:
            writer = self._homes[name] = self._choose(file.name.rank, wall_time)
        writer.last = max(writer.last, wall_time)
        return writer

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs; JSON can hold it."""
        writers = [[writer.rank, writer.number, writer.last] for writer in self._all]
        homes = {name: self._all.index(writer) for name, writer in self._homes.items()}
        return {"writers": writers, "homes": homes}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on with the writers of an earlier export."""
        for rank, number, last in state["writers"]:
            self._all.append(Writer(rank, number, last))
        self._homes = {name: self._all[index] for name, index in state["homes"].items()}

    def _choose(self, rank: int, wall_time: float) -> Writer:
        same = [writer for writer in self._all if writer.rank == rank]
        before = [writer for writer in same if writer.last <= wall_time + _OVERLAP_SECS]
        if before:
            return max(before, key=lambda writer: writer.last)
        writer = Writer(rank, len(same) + 1, wall_time)
        self._all.append(writer)
        return writer
