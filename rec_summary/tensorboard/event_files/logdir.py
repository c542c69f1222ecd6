"""The log directory: run directories in it, each with one event file of this package.

One exporter at a time holds its lock; a file says which. Every path is opened from the directory's
descriptor, one name at a time. Links are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
from collections.abc import Iterator
from datetime import datetime
from typing import IO, TYPE_CHECKING, Final

import filelock

from rec_summary.errors import DestinationError, os_errors_as, three_part, verbatim
from rec_summary.records.files import FILE_MODE, read_plain, write_atomically
from rec_summary.records.locks import file_lock
from rec_summary.series.text import printable

if TYPE_CHECKING:
    from typing_extensions import Self

LOCK_NAME: Final = ".rec_summary-export.lock"
HOLDER_NAME: Final = ".rec_summary-export.holder"
"""The file that names the exporter, as long as it lives."""

WHAT: Final = "the log directory"
"""What it is called in messages."""

EVENTS: Final = "tfevents"
"""TensorBoard reads every file with this in its name."""

_OURS: Final = re.compile(r"events\.out\.tfevents\.\d{1,19}\.rec_summary")
_MOST_BYTES: Final = 1 << 10  # of that file
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY


class LogDir:
    """A log directory, which has one exporter at a time.

    Use it as a context: entering creates the directory if it is missing.

    Attributes:
        path: Its path.
        holder: Which process exports to it, and since when.
    """

    holder: str
    _fd: int

    def __init__(self, path: str, *, worker_of: str | None = None) -> None:
        """Names a directory.

        Args:
            path: Its path.
            worker_of: The holder whose worker enters; None for an exporter.
        """
        self.path = path
        self._worker_of = worker_of
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Makes the directory, and takes its lock.

        Raises:
            DestinationError: It is a URL, cannot be made or written to, or another process exports
                to it.
        """
        if "://" in self.path:
            expected = "a local directory; `rec-summary export` copies its output to a URL"
            raise DestinationError(three_part(WHAT, self.path, expected))
        with contextlib.ExitStack() as stack:
            with unusable(WHAT, self.path):
                os.makedirs(self.path, exist_ok=True)
                self._fd = os.open(self.path, _DIRECTORY)
            stack.callback(os.close, self._fd)
            if self._worker_of is None:
                self._take(stack)
            else:
                _flock(self._fd, fcntl.LOCK_SH)  # until it is closed
                self.holder = self._read_holder()
                if self.holder != self._worker_of:
                    raise self._in_use(self.holder)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _take(self, stack: contextlib.ExitStack) -> None:
        """Takes the lock, and says who has it; the stack releases it."""
        path = os.path.join(self.path, LOCK_NAME)
        with unusable(f"the lock of {WHAT}", path):
            try:
                stack.enter_context(file_lock(path, timeout=0))
            except filelock.Timeout as error:
                raise self._in_use(self._read_holder()) from error
        # Workers of an exporter that was killed go on for a moment; no new one begins afterwards.
        if not _flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB):
            raise self._in_use(f"workers of one that was killed, {self._read_holder()}")
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        self.holder = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
        with (
            unusable(WHAT, self.path),
            write_atomically(HOLDER_NAME, FILE_MODE, dir_fd=self._fd) as file,
        ):
            file.write(self.holder.encode())
        stack.callback(self._remove_holder)
        _flock(self._fd, fcntl.LOCK_UN)

    def _read_holder(self) -> str:
        try:
            text = read_plain(HOLDER_NAME, _MOST_BYTES, dir_fd=self._fd).decode(errors="replace")
        except OSError:
            text = ""
        return text or "a process that has not given its name"

    def _remove_holder(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(HOLDER_NAME, dir_fd=self._fd)

    def _in_use(self, holder: str) -> DestinationError:
        received = verbatim(
            f"{printable(self.path)}, which another export writes to: {printable(holder)}"
        )
        expected = "another directory, or wait until that export has ended"
        return DestinationError(three_part(WHAT, received, expected))

    @contextlib.contextmanager
    def made(self, run: str) -> Iterator[int]:
        """Yields the descriptor of a run's directory, which is created if it is missing.

        Raises:
            DestinationError: It cannot be made or reached, or the block
                raised an OSError. Directories that were created for it are removed then.
        """
        new: list[str] = []
        with unusable("the run directory", os.path.join(self.path, run)):
            try:
                with self._below(run, new) as fd:
                    assert fd is not None  # missing directories were made
                    yield fd
            except OSError:
                self.remove_empty(new)
                raise

    @contextlib.contextmanager
    def replacing(self, path: str) -> Iterator[IO[bytes]]:
        """Opens a file for writing that replaces `path` when the block ends without an error.

        Args:
            path: Its place below this one. Missing directories are made.

        Raises:
            DestinationError: It cannot be written; the old file stays.
        """
        run, _, name = path.rpartition("/")
        with self.made(run) as directory, write_atomically(name, dir_fd=directory) as file:
            yield file

    def remove_empty(self, runs: list[str]) -> None:
        """Removes directories, the last one first, as far as they are empty."""
        for run in reversed(runs):
            parent, _, name = run.rpartition("/")
            with contextlib.suppress(OSError), self._below(parent) as fd:
                if fd is not None:
                    os.rmdir(name, dir_fd=fd)

    @contextlib.contextmanager
    def opened(self, run: str) -> Iterator[int | None]:
        """Yields the descriptor of a run's directory; None if it does not exist.

        Raises:
            DestinationError: It cannot be reached, or the block raised an OSError.
        """
        path = os.path.join(self.path, run)
        with unusable("the run directory", path), self._below(run) as fd:
            yield fd

    def has(self, run: str) -> bool:
        """Whether there is a directory of a run.

        Raises:
            DestinationError: It cannot be reached.
        """
        with self.opened(run) as fd:
            return fd is not None

    def check(self, run: str) -> None:
        """Makes sure that no other program writes to a run's directory.

        Raises:
            DestinationError: There is an event file of another writer, or the directory
                cannot be reached without following a link.
        """
        with self.opened(run) as fd:
            if fd is None:
                return
            with os.scandir(fd) as entries:
                foreign = sorted(
                    entry.name
                    for entry in entries
                    if is_foreign(entry.name) and not entry.is_dir(follow_symlinks=False)
                )
        if foreign:
            raise DestinationError(
                three_part(
                    f"the run directory {printable(os.path.join(self.path, run))}",
                    verbatim(f"an event file of another writer, {printable(foreign[0])}"),
                    "one writer for each run directory: export to another log directory, or "
                    "move that file away",
                )
            )

    def directories(self, run: str = "") -> Iterator[tuple[str, list[str], int]]:
        """Yields each directory below: its path from here, the names of its files, its descriptor.

        Args:
            run: Only directories below that of this run.

        Raises:
            DestinationError: One cannot be read.
        """
        with unusable(WHAT, self.path), self._below(run) as above:
            for path, _, names, fd in os.fwalk(".", dir_fd=above) if above is not None else ():
                if path != ".":
                    yield os.path.join(run, path.removeprefix("./")), names, fd

    def remove(self, run: str) -> bool:
        """Removes our event file from a run's directory; returns whether there was one.

        Raises:
            DestinationError: It cannot be removed.
        """
        with self.opened(run) as fd:
            if fd is None:
                return False
            names = ours(fd)
            for name in names:
                os.unlink(name, dir_fd=fd)
        self.remove_empty([run])
        return bool(names)

    @contextlib.contextmanager
    def _below(self, run: str, made: list[str] | None = None) -> Iterator[int | None]:
        """Opens a run's directory, never through a link; yields None if it does not exist.

        Args:
            run: Names with `/` between them; an empty one means this directory itself.
            made: If given, missing directories are made, and added to it.
        """
        names = run.split("/") if run else []
        if any(name in ("", ".", "..") for name in names):
            raise OSError(errno.EINVAL, f"it is not below {WHAT}")
        fd: int | None = self._fd
        with contextlib.ExitStack() as stack:
            for depth, name in enumerate(names, start=1):
                above = fd
                try:
                    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
                except FileNotFoundError:
                    if made is None:
                        fd = None
                        break
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=above)
                        made.append("/".join(names[:depth]))
                    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
                stack.callback(os.close, fd)
            yield fd


def event_file_name(stamp: int) -> str:
    """Returns the name of our event file for records begun at `stamp`, in whole seconds."""
    return f"events.out.tfevents.{stamp}.rec_summary"


def ours(fd: int) -> list[str]:
    """Returns the names of our event files in a directory."""
    return [name for name in os.listdir(fd) if _OURS.fullmatch(name)]


def is_foreign(name: str) -> bool:
    """Whether a file is read by TensorBoard and is of another program."""
    return EVENTS in name and not _OURS.fullmatch(name)


def unusable(what: str, path: str) -> contextlib.AbstractContextManager[None]:
    """Turns an OSError of the block into one that says what is unusable."""
    expected = "a directory that can be written to"
    return os_errors_as(DestinationError, what, printable(path), expected)


def _flock(fd: int, kind: int) -> bool:
    """Locks a directory itself; returns False if another process holds that lock."""
    try:
        fcntl.flock(fd, kind)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without such locks
    return True
