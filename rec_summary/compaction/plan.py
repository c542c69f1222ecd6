"""Which files are compacted next: old ones that are small for their age.

The records of a writer are a row of files. Those next to each other become one file, a quarter of
their size at the least, where what they cover is short in comparison with how long ago it was. So
the files cover longer and longer parts the older they are, and a few dozen cover any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from rec_summary.records.reading.runs import RecordFile
from rec_summary.records.writing.retention import (
    MOST_FILES,
    MOST_SMALL,
    begin_bytes,
    segment_bytes,
    small_bytes,
)

REDUCTION: Final = 4
"""Files become one of at least a quarter of their size."""
_MOST_JOINED: Final = 256


class Segment(NamedTuple):
    """A complete file.

    Attributes:
        file: The file.
        nbytes: Its size.
        weight: The size of its records when they were recorded.
    """

    file: RecordFile
    nbytes: int
    weight: int


class FileGroup(NamedTuple):
    """Files that become one.

    Attributes:
        segments: The files, in order.
        target: The size of the new file, in bytes.
        newer: The size of what was recorded after them.
    """

    segments: tuple[Segment, ...]
    target: int
    newer: int


def next_group(
    rows: Sequence[Sequence[Segment]], total_bytes: int, present: int
) -> FileGroup | None:
    """Returns the files to compact next; None if there is no need, or nothing helps.

    Args:
        rows: Complete files next to each other of one writer, in order.
        total_bytes: The budget.
        present: The size of all files of the rank, in bytes.
    """
    full = segment_bytes(total_bytes)
    groups = [group for _, group in sorted(_groups(rows, full), key=itemgetter(0))]
    if present > begin_bytes(total_bytes):
        # Joining small files gives no room.
        for group in groups:
            if _size(group.segments) > group.target * 3 // 2:
                return group
    small = [group for group in groups if _size(group.segments) <= full]
    least = small_bytes(total_bytes)
    if small and sum(segment.nbytes <= least for row in rows for segment in row) > MOST_SMALL:
        return small[0]
    if groups and sum(map(len, rows)) > MOST_FILES:
        return (small or groups)[0]
    return None


def _groups(rows: Sequence[Sequence[Segment]], full: int) -> Iterator[tuple[float, FileGroup]]:
    """Yields what could become one file; of little cost is what is short for its age."""
    for row in rows:
        newer = [0]
        for segment in reversed(row):
            newer.append(newer[-1] + segment.weight)
        newer.reverse()
        for first in range(len(row) - 1):
            last, size = first, 0
            while last < len(row) and last - first < _MOST_JOINED:
                size += row[last].nbytes
                if last - first >= REDUCTION and size > full:
                    break
                last += 1
            part = tuple(row[first:last])
            weight = newer[first] - newer[last]
            cost = weight / (newer[last] + weight / 2 + 1) / (last - first)
            target = max(full, _size(part) // REDUCTION)
            yield cost, FileGroup(part, target, newer[last])


def _size(segments: Sequence[Segment]) -> int:
    return sum(segment.nbytes for segment in segments)
