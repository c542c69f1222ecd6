"""Compacted files: which files each of them replaces.

Compaction writes one file in place of several, coarser than they are. The first record of that
file names them (`Compaction` in `summary.proto`). The moment at which the new file gets its name is
the moment at which it replaces them: from then on, readers leave them out of their lists. They
exist for a little longer under hidden names, for readers that have a list from before.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rec_summary._pb.summary_pb2 import Compaction, Event
from rec_summary.errors import RecordError
from rec_summary.records.format.bounds import UNDECODABLE
from rec_summary.records.reading.reader import RecordReader

if TYPE_CHECKING:
    from rec_summary.records.reading.runs import RecordFile


def compaction_of(file: RecordFile) -> Compaction | None:
    """Returns what a compacted file is made of; None if it is not one, or cannot be read."""
    head = Event() if file.name.last is None else head_of(file)
    return head.compaction if head.HasField("compaction") else None


def head_of(file: RecordFile) -> Event:
    """Returns the first record of a file; one without any field if it cannot be read."""
    try:
        with RecordReader(file.path) as reader:
            first = reader.read()
            # The fields are those of a lineage event as well.
            return Event.FromString(first.payload) if first is not None else Event()
    except (OSError, RecordError, *UNDECODABLE):
        return Event()


def in_force(files: Iterable[RecordFile]) -> list[RecordFile]:
    """Returns the files that no other file of the list replaces."""
    files = sorted(files, key=_stamp)
    gone: set[str] = set()
    for compacted in files:
        if compacted.name.last is None:
            continue
        # Usually none is left, and nothing has to be read.
        first = bisect.bisect_left(files, compacted.name.stamp, key=_stamp)
        last = bisect.bisect_right(files, compacted.name.end, key=_stamp)
        covered = [file for file in files[first:last] if compacted.name.covers(file.name)]
        compaction = compaction_of(compacted) if covered else None
        if compaction is not None:
            names = set(compaction.superseded)
            gone.update(file.path for file in covered if os.path.basename(file.path) in names)
    return [file for file in files if file.path not in gone]


def _stamp(file: RecordFile) -> int:
    return file.name.stamp
