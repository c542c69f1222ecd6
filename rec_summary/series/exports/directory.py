"""The directory that an export writes to.

Several exporters may write to it, each its own runs. Every path is opened from the directory's
descriptor, one name at a time. Links are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, ClassVar, Final

from rec_summary.errors import DestinationError, three_part
from rec_summary.records.files import write_atomically
from rec_summary.series.exports.claims import Claims, unusable

if TYPE_CHECKING:
    from typing_extensions import Self

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY


class ExportDirectory:
    """A directory in which each run has one exporter at a time.

    Use it as a context: entering creates the directory if it is missing.

    Attributes:
        path: Its path.
        claims: The runs that this exporter has claimed.
    """

    claims: Claims
    _fd: int

    what: ClassVar[str] = "the directory of the export"
    """What it is called in messages."""

    def __init__(self, path: str, *, lock: bool = True) -> None:
        """Names a directory.

        Args:
            path: Its path.
            lock: Whether an exporter enters; False for a worker, whose exporter has the claims.
        """
        self.path = path
        self._lock = lock
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Makes the directory.

        Raises:
            DestinationError: It is a URL, cannot be made or written to, or another process has
                its lock for long.
        """
        if "://" in self.path:
            expected = "a local directory; `rec-summary export` copies its output to a URL"
            raise DestinationError(three_part(self.what, self.path, expected))
        with contextlib.ExitStack() as stack:
            with unusable(self.what, self.path):
                os.makedirs(self.path, exist_ok=True)
                self._fd = os.open(self.path, _DIRECTORY)
            stack.callback(os.close, self._fd)
            self.claims = Claims(self.what, self.path, self._fd)
            if self._lock:
                with self.claims.alone():
                    stack.callback(self.claims.release)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def claim(self, runs: Iterable[str]) -> None:
        """Claims runs for this exporter.

        Raises:
            DestinationError: Another exporter has one of them.
        """
        self.claims.claim(runs)

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

    @contextlib.contextmanager
    def _below(self, run: str, made: list[str] | None = None) -> Iterator[int | None]:
        """Opens a run's directory, never through a link; yields None if it does not exist.

        Args:
            run: Names with `/` between them; an empty one means this directory itself.
            made: If given, missing directories are made, and added to it.
        """
        names = run.split("/") if run else []
        if any(name in ("", ".", "..") for name in names):
            raise OSError(errno.EINVAL, f"it is not below {self.what}")
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
