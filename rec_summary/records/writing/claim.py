"""Claiming names for new record files: two writers never share a file."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Final

from rec_summary.records.format.names import (
    DEFAULT_PREFIX,
    DEFAULT_SUFFIX,
    Kind,
    RecordName,
    parse_name,
    this_host,
)
from rec_summary.records.locks import file_lock
from rec_summary.records.writing.segment import SegmentWriter

LOCK_NAME: Final = ".rec_summary.lock"
_LOCK_SECS: Final = 10.0


def begin_segments(
    directory: str,
    rank: int,
    kinds: Sequence[Kind] = tuple(Kind),
    *,
    prefix: str = DEFAULT_PREFIX,
    suffix: str = DEFAULT_SUFFIX,
    lock: str | None = None,
) -> dict[Kind, SegmentWriter]:
    """Creates the next record files of a rank: one for each kind.

    All have the same stamp: the current second, or one more than the latest stamp of this
    rank in the directory, whatever the prefix. So names are unique within a second, and sort
    in the order of creation even if the clock steps back. A lock keeps two writers from
    choosing at the same time. Where the lock cannot be taken (a file system without locks, a
    holder that hangs), exclusive creation alone keeps their files apart.

    Args:
        directory: An existing record directory.
        rank: The rank of this process.
        kinds: Which kinds of file.
        prefix: What their names begin with (see `names.check_affixes`).
        suffix: What the name of a summary file ends with.
        lock: The kind of lock (see `records.locks`).

    Raises:
        OSError: The files cannot be created.
    """
    with contextlib.ExitStack() as stack:
        path = os.path.join(directory, LOCK_NAME)
        with contextlib.suppress(OSError, NotImplementedError):  # a timeout is an OSError
            stack.enter_context(file_lock(path, timeout=_LOCK_SECS, kind=lock))
        stamp = max(int(time.time()), _last_stamp(directory, rank) + 1)
        while True:
            try:
                names = [
                    RecordName(stamp, rank, this_host(), kind, prefix, suffix) for kind in kinds
                ]
                return _create(directory, names)
            except FileExistsError:
                stamp += 1


def _last_stamp(directory: str, rank: int) -> int:
    names = map(parse_name, os.listdir(directory))
    return max((name.end for name in names if name and name.rank == rank), default=-1)


def _create(directory: str, names: Sequence[RecordName]) -> dict[Kind, SegmentWriter]:
    created: dict[Kind, SegmentWriter] = {}
    try:
        for name in names:
            created[name.kind] = SegmentWriter(os.path.join(directory, str(name)))
    except OSError:
        for writer in created.values():  # readers would list an empty file
            writer.close()
            os.unlink(writer.path)
        raise
    return created
