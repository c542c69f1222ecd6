"""Which exporter writes which runs in a directory: several may work on one.

Each exporter has a file with the names of its runs, and holds a lock on another file as long as it
lives. It holds the lock of the directory for moments only: to claim runs, and to describe all of
them. The next exporter removes the files of one that was killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Final

import filelock

from rec_summary.errors import DestinationError, os_errors_as, three_part, verbatim
from rec_summary.records.files import FILE_MODE, open_plain, read_plain, write_atomically
from rec_summary.records.locks import file_lock
from rec_summary.series.text import printable

LOCK_NAME: Final = ".rec_summary-export.lock"
_NAME: Final = re.compile(
    r"\.rec_summary-export\.(?P<token>[0-9a-f]{16})\.(?:runs|tmp|lock|lock\.soft)"
)
_WAIT_SECS: Final = 60.0  # for an exporter that describes many runs
_POLL_SECS: Final = 0.05
_MOST_BYTES: Final = 1 << 28


class Claims:
    """The runs that an exporter has claimed.

    Attributes:
        mark: A file that exists as long as this exporter lives, or nobody else claims runs.
    """

    def __init__(self, what: str, path: str, fd: int) -> None:
        """Claims nothing yet.

        Args:
            what: What the directory is called in messages.
            path: Its path.
            fd: Its descriptor.
        """
        token = secrets.token_hex(8)
        self._what, self._path, self._fd, self._token = what, path, fd, token
        self.mark = self._path_of(token, "runs")
        self._names: set[str] = set()
        self._lock: filelock.BaseFileLock | None = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the lock of the directory.

        Raises:
            DestinationError: It cannot be made, or another process has it for long.
        """
        path = os.path.join(self._path, LOCK_NAME)
        with unusable(f"the lock of {self._what}", path):
            lock = file_lock(path, timeout=_WAIT_SECS)
            try:
                locked = lock.acquire()
            except filelock.Timeout as error:
                raise self._in_use(f"its lock is {printable(path)}") from error
        with locked:
            yield

    def claim(self, names: Iterable[str]) -> None:
        """Claims runs.

        Raises:
            DestinationError: The directory cannot be written, or another exporter has one of them;
                the others are claimed then.
        """
        names = set(names) - self._names
        if not names:
            return
        with self.alone(), unusable(self._what, self._path):
            if self._lock is None:
                lock = file_lock(self._path_of(self._token, "lock"), timeout=0)
                lock.acquire()
                self._lock = lock
            taken = {
                name: place for place, claimed in self._other_claims() for name in names & claimed
            }
            claimed = self._names | (names - taken.keys())
            mark, temporary = map(os.path.basename, (self.mark, self._path_of(self._token, "tmp")))
            with write_atomically(mark, FILE_MODE, dir_fd=self._fd, temporary=temporary) as file:
                file.writelines(f"{json.dumps(name)}\n".encode() for name in sorted(claimed))
            self._names = claimed
        if taken:
            name, place = min(taken.items())
            more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
            raise self._in_use(f"the run {printable(name)}{more}; {printable(place)} says so")

    def release(self) -> None:
        """Gives all runs up."""
        if self._lock is not None:
            self._remove(self._token)
            self._lock.release()

    def _other_claims(self) -> Iterator[tuple[str, set[str]]]:
        """Yields what other exporters have claimed; removes the files of those that are gone."""
        matches = (_NAME.fullmatch(name) for name in os.listdir(self._fd))
        for token in sorted({match["token"] for match in matches if match} - {self._token}):
            lock = file_lock(self._path_of(token, "lock"), timeout=0)
            try:
                with lock:
                    self._await_workers(token)
            except filelock.Timeout:
                name = f".rec_summary-export.{token}.runs"
                # It may end at this moment; and a stranger may have written the file.
                with contextlib.suppress(FileNotFoundError, ValueError, TypeError, RecursionError):
                    lines = read_plain(name, _MOST_BYTES, dir_fd=self._fd).splitlines()
                    yield os.path.join(self._path, name), {str(json.loads(line)) for line in lines}

    def _await_workers(self, token: str) -> None:
        """Returns when the workers of an exporter that is gone have ended; removes its files.

        They write until they find its `mark` gone, and hold a lock on it (see `held`). Until they
        have ended it stays under another name, for the next exporter if this one waits in vain.
        """
        mark, kept = (os.path.basename(self._path_of(token, end)) for end in ("runs", "tmp"))
        with contextlib.suppress(OSError):
            os.rename(mark, kept, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        try:
            fd = open_plain(kept, dir_fd=self._fd)
        except OSError:  # it had no runs
            self._remove(token)
            return
        try:
            end = time.monotonic() + _WAIT_SECS
            while not _flock(fd, fcntl.LOCK_EX):
                if time.monotonic() > end:
                    raise self._in_use("workers of one that was killed go on")
                time.sleep(_POLL_SECS)
            self._remove(token)
        finally:
            os.close(fd)

    def _remove(self, token: str) -> None:
        for end in ("runs", "tmp", "lock"):
            with contextlib.suppress(OSError):
                os.unlink(f".rec_summary-export.{token}.{end}", dir_fd=self._fd)

    def _in_use(self, by: str) -> DestinationError:
        received = verbatim(f"one that another export writes to: {by}")
        expected = (
            "runs that no other export writes: choose others with --runs, or wait for it to end"
        )
        return DestinationError(three_part(self._what, received, expected))

    def _path_of(self, token: str, end: str) -> str:
        return os.path.join(self._path, f".rec_summary-export.{token}.{end}")


@contextlib.contextmanager
def held(mark: str) -> Iterator[None]:
    """Makes the next exporter wait for this worker, if the one with this mark is killed.

    Raises:
        OSError: The mark is gone.
    """
    fd = open_plain(mark)
    try:
        _flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def _flock(fd: int, kind: int) -> bool:
    """Locks a file; returns False if another process holds its lock."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:  # a file system without locks has nobody to wait for
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def unusable(what: str, path: str) -> contextlib.AbstractContextManager[None]:
    """Turns an OSError of the block into one that says what is unusable."""
    expected = "a directory that can be written to"
    return os_errors_as(DestinationError, what, printable(path), expected)
