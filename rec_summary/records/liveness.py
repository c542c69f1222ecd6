"""Signs of life: whether the process that writes a record file still exists.

A writer holds a lock on each of its record files while the file is open. The operating system
releases the lock when the process dies, whatever kills it. The lock is `flock`, which is shared
between the containers of a host, and between hosts on most network file systems.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Container
from typing import Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.files import open_plain
from rec_summary.records.format.names import Kind, parse_name, this_host

_TRIES: Final = 5
_WAIT_SECS: Final = 0.002
_ENDED: Final = (b"Z", b"X")  # a zombie, and dead
_HELD: Final = (errno.EWOULDBLOCK, errno.EACCES)

Flock = Callable[[int, int], object]


def hold(fd: int, flock: Flock = fcntl.flock) -> None:
    """Locks a new record file until its descriptor is closed.

    Does nothing on a file system without locks: the file can be written all the same.
    """
    for _ in range(_TRIES):
        try:
            flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(_WAIT_SECS)  # a reader asks `is_held` at this moment


def is_held(path: str, flock: Flock = fcntl.flock) -> bool:
    """Returns whether a writer has a record file open; False if the file cannot be opened."""
    try:
        fd = open_plain(path)
    except OSError:
        return False
    try:
        flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _HELD
    finally:
        os.close(fd)
    return False


def open_record_files(directory: str, rank: int) -> list[str]:
    """Returns the paths of the lineage files that writers of a rank have open.

    Every writer has one: `RunWriter` creates it with the first summary file. The list is empty
    if the directory cannot be read.

    Args:
        directory: A local record directory.
        rank: The rank of the writers.
    """
    paths: list[str] = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(directory)):
            parsed = parse_name(name)
            if parsed is not None and parsed.kind is Kind.LINEAGE and parsed.rank == rank:
                paths.append(os.path.join(directory, name))
    return [path for path in paths if is_held(path)]


def writer_is_alive(
    directory: str | os.PathLike[str], state: RunState, names: Container[str] | None = None
) -> bool | None:
    """Returns whether the process that wrote a train lineage still records in its directory.

    Ask it for a run whose status is RUNNING: a process that was killed leaves this status. It
    costs one call of the operating system for each lineage file of the rank.

    Args:
        directory: The record directory, a local path. For a URL nothing can be known.
        state: The `run_state` of the last train lineage; of it, `rank`, `host` and `pid`.
        names: The names of the writer's lineage files, if another process may record as the same
            rank; None for all of the rank.

    Returns:
        True if a process has one of these files open. False if none has, and the process
        `pid` on this host does not exist, or has ended and its parent has not asked for that. None
        if it cannot be known: the records come from another host or from another recorder, or
        another process may have the number `pid`. Then only the time of the last record says
        something.
    """
    held = map(os.path.basename, open_record_files(os.fspath(directory), state.rank))
    if any(names is None or name in names for name in held):
        return True
    if state.pid <= 0 or state.host != this_host():
        return None
    return False if _has_ended(state.pid) else None


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists, and belongs to another user
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # the state is behind the name
            return file.read().rpartition(b") ")[2][:1] in _ENDED
    except OSError:  # Linux alone has it
        return False
