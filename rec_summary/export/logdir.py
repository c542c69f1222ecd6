"""The log directory: run directories in it, one event file of ours in each.

Everything is reached from the directory's own descriptor, one name at a time and without
following links, so a link planted in it leads nowhere. A file gets its name only when it
is complete; until then it bears one that TensorBoard does not look at.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Final

import filelock

from rec_summary.errors import DestinationError, three_part, verbatim
from rec_summary.export.words import printable

LOCK_NAME: Final = ".rec_summary-export.lock"
TEMPORARY_NAME: Final = ".rec_summary-export.tmp"
_OURS: Final = re.compile(r"events\.out\.tfevents\.\d{1,19}\.rec_summary")
_MARK: Final = "tfevents"  # TensorBoard reads every file with this in its name
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER_BYTES: Final = 1 << 18


def event_file_name(stamp: int) -> str:
    """Returns the name of our event file for records begun at `stamp`, in whole seconds."""
    return f"events.out.tfevents.{stamp}.rec_summary"


class LogDir:
    """A log directory that one exporter at a time writes to.

    Use it as a context: entering makes the directory if need be and takes its lock.

    Attributes:
        path: Where it is.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> LogDir:
        """Makes and locks the directory.

        Raises:
            DestinationError: It cannot be made or written to, or another export holds it.
        """
        with contextlib.ExitStack() as stack:
            try:
                os.makedirs(self.path, exist_ok=True)
                self._fd = os.open(self.path, _DIRECTORY)
            except OSError as error:
                raise _unusable("the log directory", self.path, error) from error
            stack.callback(os.close, self._fd)
            stack.enter_context(_locked(os.path.join(self.path, LOCK_NAME)))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def check(self, run: str) -> None:
        """Makes sure that nobody else writes to a run's directory.

        Raises:
            DestinationError: There is an event file that is not ours, or the directory
                cannot be reached without following a link.
        """
        with self._opened(run) as fd:
            if fd is None:
                return
            with os.scandir(fd) as entries:
                foreign = sorted(
                    entry.name
                    for entry in entries
                    if _MARK in entry.name
                    and not _OURS.fullmatch(entry.name)
                    and not entry.is_dir(follow_symlinks=False)
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

    def remove(self, run: str) -> bool:
        """Removes our event file from a run's directory; tells whether there was one.

        Raises:
            DestinationError: It cannot be removed.
        """
        with self._opened(run) as fd:
            found = _ours(fd) if fd is not None else []
            for name in found:
                os.unlink(name, dir_fd=fd)
        return bool(found)

    def begin(self, run: str, stamp: int) -> PendingFile:
        """Begins the file that is to become a run's event file.

        Raises:
            DestinationError: It cannot be made.
        """
        made: list[str] = []
        try:
            fd = self._descend(run, made)
            assert fd is not None  # missing directories were made
            return PendingFile(self, run, stamp, fd, made)
        except OSError as error:
            self.remove_empty(made)
            raise _unusable("the run directory", os.path.join(self.path, run), error) from error

    def remove_empty(self, runs: list[str]) -> None:
        """Removes directories, the last one first, as far as they are empty."""
        for run in reversed(runs):
            parent, _, name = run.rpartition("/")
            with contextlib.suppress(OSError):
                fd = self._descend(parent)
                if fd is not None:
                    try:
                        os.rmdir(name, dir_fd=fd)
                    finally:
                        os.close(fd)

    @contextlib.contextmanager
    def _opened(self, run: str) -> Iterator[int | None]:
        """Gives the descriptor of a run's directory; None if there is no such directory."""
        try:
            fd = self._descend(run)
            try:
                yield fd
            finally:
                if fd is not None:
                    os.close(fd)
        except OSError as error:
            raise _unusable("the run directory", os.path.join(self.path, run), error) from error

    def _descend(self, run: str, made: list[str] | None = None) -> int | None:
        """Opens a run's directory, never through a link.

        Args:
            run: Names with `/` between them; an empty one means the log directory itself.
            made: If given, missing directories are made, and added to it.
        """
        fd = os.dup(self._fd)
        names = run.split("/") if run else []
        for depth, name in enumerate(names, start=1):
            try:
                if made is not None:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=fd)
                        made.append("/".join(names[:depth]))
                below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            except FileNotFoundError:
                return None
            finally:
                os.close(fd)
            fd = below
        return fd


class PendingFile:
    """An event file in the making: `commit` gives it its name, `discard` leaves no trace."""

    def __init__(self, logdir: LogDir, run: str, stamp: int, fd: int, made: list[str]) -> None:
        """Creates the file; use `LogDir.begin`. Owns `fd`, the run's directory, from now on.

        Raises:
            OSError: It cannot be created.
        """
        self._logdir = logdir
        self._path = os.path.join(logdir.path, run)
        self._name = event_file_name(stamp)
        self._fd = fd
        self._made = made
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(TEMPORARY_NAME, dir_fd=fd)  # of an export that was killed
            created = os.open(TEMPORARY_NAME, _CREATE, 0o666, dir_fd=fd)
        except OSError:
            os.close(fd)
            raise
        self._file = os.fdopen(created, "wb", _BUFFER_BYTES)

    def write(self, data: bytes) -> None:
        """Appends to the file.

        Raises:
            DestinationError: It cannot be written.
        """
        try:
            self._file.write(data)
        except OSError as error:
            raise _unusable("the event file in", self._path, error) from error

    def commit(self) -> bool:
        """Puts the file in the place of an older one of ours; tells whether there was one.

        Raises:
            DestinationError: It cannot be completed. It is discarded then.
        """
        try:
            self._file.close()
            older = _ours(self._fd)
            os.replace(TEMPORARY_NAME, self._name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            for name in older:
                if name != self._name:
                    os.unlink(name, dir_fd=self._fd)
        except OSError as error:
            self.discard()
            raise _unusable("the event file in", self._path, error) from error
        os.close(self._fd)
        return bool(older)

    def discard(self) -> None:
        """Removes the file, and the directories that were made for it."""
        with contextlib.suppress(OSError):
            self._file.close()  # may fail once more on what could not be written
        with contextlib.suppress(OSError):
            os.unlink(TEMPORARY_NAME, dir_fd=self._fd)
        os.close(self._fd)
        self._logdir.remove_empty(self._made)


def _ours(fd: int) -> list[str]:
    return [name for name in os.listdir(fd) if _OURS.fullmatch(name)]


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    lock = filelock.FileLock(path, timeout=0)
    try:
        if os.path.islink(path):  # older releases of filelock would empty the link's target
            raise OSError("it is a link")
        lock.acquire()
    except filelock.Timeout as error:
        raise DestinationError(
            three_part(
                "the log directory",
                verbatim(f"one that another export is writing to; its lock is {printable(path)}"),
                "a log directory that no other export uses: wait for that one to end",
            )
        ) from error
    except NotImplementedError:
        # A file system without locks: two exports at once are then the user's to avoid.
        yield
        return
    except OSError as error:
        raise _unusable("the lock of the log directory", path, error) from error
    try:
        yield
    finally:
        lock.release()


def _unusable(what: str, path: str, error: OSError) -> DestinationError:
    received = verbatim(f"{printable(path)}: {error.strerror or error}")
    return DestinationError(three_part(what, received, "a directory that can be written to"))
