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
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final

from rec_summary.records.files import create_plain, sync_directory
from rec_summary.records.format.names import parse_name, replaced_name
from rec_summary.records.liveness import is_held
from rec_summary.records.locks import file_lock
from rec_summary.records.reading.compacted import compaction_of
from rec_summary.records.reading.reader import hidden_path
from rec_summary.records.reading.runs import RecordFile

GRACE_SECS: Final = 60.0
_PERMISSIONS: Final = 0o777


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


def replace(
    files: Sequence[RecordFile], name: str, rank: int, write: Callable[[IO[bytes]], object]
) -> None:
    """Puts a new file in the place of others; hold the lock.

    Args:
        files: The files that are replaced, of one directory.
        name: The name of the new file.
        rank: The rank.
        write: Writes the file, and its head with the names of `files`.

    Raises:
        OSError: It cannot be written; the old files stay.
    """
    directory = os.path.dirname(files[0].path)
    temporary = _temporary(directory, rank)
    newest = os.lstat(files[-1].path)
    try:
        with create_plain(temporary, newest.st_mode & _PERMISSIONS) as out:
            write(out)
            out.flush()
            os.utime(out.fileno(), ns=(newest.st_atime_ns, newest.st_mtime_ns))
            os.fsync(out.fileno())
        os.rename(temporary, os.path.join(directory, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(directory)
    for file in files:
        _hide(file.path)


def recover(directory: str, rank: int) -> None:
    """Completes what a process has begun that was killed; hold the lock.

    Raises:
        OSError: The directory cannot be read or written to.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_temporary(directory, rank))
    for name in os.listdir(directory):
        parsed = parse_name(name)
        if parsed is None or parsed.rank != rank or parsed.last is None:
            continue
        compaction = compaction_of(RecordFile(os.path.join(directory, name), parsed))
        for each in compaction.superseded if compaction is not None else ():
            replaced = parse_name(each)
            # The names come from a file that anybody may have written.
            if os.path.basename(each) == each and replaced and parsed.covers(replaced):
                path = os.path.join(directory, each)
                if os.path.isfile(path) and not is_held(path):
                    _hide(path)


def sweep(directory: str, rank: int, grace: float = GRACE_SECS) -> None:
    """Removes the files that were replaced at least `grace` seconds ago."""
    for name in os.listdir(directory):
        replaced = replaced_name(name)
        if replaced is None or replaced.rank != rank:
            continue
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            # A rename changes this time.
            if os.lstat(path).st_ctime <= time.time() - grace:
                os.unlink(path)


def _hide(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, hidden_path(path))


def _temporary(directory: str, rank: int) -> str:
    return os.path.join(directory, f".rec_summary-compacting-{rank}.tmp")
