"""Putting a compacted file in the place of others, so that a crash loses nothing.

1. The new file is written under a hidden name, and forced to the disk.
2. It gets its name. From this moment on it counts, and the files that it names do not.
3. These get hidden names, and are removed a little later: readers may have a list from before.

After a crash between two steps, `recover` completes what was begun. A lock makes sure that one
process at a time compacts the files of a rank.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import IO, Final

from rec_summary.records.files import write_atomically
from rec_summary.records.format.names import hidden_path, replaced_name
from rec_summary.records.liveness import is_held
from rec_summary.records.locks import file_lock
from rec_summary.records.reading.runs import RecordFile, in_force, list_directory, present_files

_TEMPORARY: Final = ".rec_summary-compacting-{}.tmp"


@contextlib.contextmanager
def locked(directory: str, rank: int, kind: str | None = None) -> Iterator[None]:
    """Holds the lock on the compaction of a rank's files, and completes what was begun before.

    Args:
        directory: A local record directory.
        rank: The rank.
        kind: The kind of lock (see `records.locks`).

    Raises:
        OSError: Another process compacts these files (a `filelock.Timeout`), or the directory
            cannot be written to.
    """
    path = os.path.join(directory, f".rec_summary.compaction-{rank}.lock")
    with file_lock(path, timeout=0, kind=kind):
        recover(directory, rank)
        yield


@contextlib.contextmanager
def replacing(
    files: Sequence[RecordFile], name: str, output: str | None = None
) -> Iterator[IO[bytes]]:
    """Opens a file that takes the place of others when the block ends without an error.

    Args:
        files: The files that are replaced, of one directory and rank.
        name: The name of the new file. Its head names `files`.
        output: A directory for the new file, where `files` stay; None for their own, of which the
            lock is held.

    Raises:
        OSError: It cannot be written; the old files stay.
    """
    newest = files[-1]
    directory = os.path.dirname(newest.path) if output is None else output
    path = os.path.join(directory, name)
    temporary = _TEMPORARY.format(newest.name.rank)
    with write_atomically(path, temporary=temporary, like=newest.path, sync=True) as out:
        yield out
    if output is None:
        for file in files:
            _hide(file.path)


def recover(directory: str, rank: int) -> None:
    """Completes the replacement that a killed process has begun; the caller holds the lock.

    Raises:
        OSError: The directory cannot be read or written to.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, _TEMPORARY.format(rank)))
    present = present_files(list_directory(directory))
    files = [file for file in present if file.name.rank == rank]
    for file in set(files).difference(in_force(files)):
        if not is_held(file.path):  # anybody may have written the names of replaced files
            _hide(file.path)


def sweep(directory: str, rank: int) -> None:
    """Removes the files that were replaced."""
    for name in os.listdir(directory):
        replaced = replaced_name(name)
        if replaced is None or replaced.rank != rank:
            continue
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, name))


def _hide(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, hidden_path(path))
