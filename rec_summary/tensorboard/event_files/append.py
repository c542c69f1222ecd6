"""Appending to our event file of a run, from any size on that was reached before.

An export that was killed may have written more than it could note down. What it wrote is
not thrown away: the next export makes the same bytes again, compares, and only writes
where the file ends. So a TensorBoard that has read them never finds anything changed.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from rec_summary.records.format import framing
from rec_summary.tensorboard.event_files.logdir import LogDir, event_file_name, ours, unusable

_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BUFFER_BYTES: Final = 1 << 18
_MOST_PIECES: Final = 1000  # that one call can write
_SMALL_BYTES: Final = 4096  # pieces of less than this are copied together first
_LARGEST_EVENT: Final = 1 << 30


class AppendFile:
    """The event file of a run, open for writing behind what has been written for good.

    Attributes:
        size: How many bytes of the file are what they should be, buffered ones included.
        replaced: Whether something that had been there was written over or removed.
    """

    def __init__(self, logdir: LogDir, run: str, stamp: int, size: int) -> None:
        """Opens or creates the file.

        Args:
            logdir: The log directory, entered.
            run: The run's name.
            stamp: When its records were begun, in whole seconds; names the file.
            size: How many of its bytes are known to be right. With 0, other event files of
                ours in the same directory are removed.

        Raises:
            DestinationError: It cannot be opened, or is no regular file.
        """
        self.size = size
        self.replaced = False
        self._path = os.path.join(logdir.path, run)
        self._buffer: list[bytes | memoryview] = []
        self._buffered = 0
        name = event_file_name(stamp)
        with logdir.made(run) as fd:
            # A link in its place would lead us to write somewhere else.
            if not size:
                for other in ours(fd):
                    if other != name or not _is_plain(other, fd):
                        os.unlink(other, dir_fd=fd)
                        self.replaced = True
            self._fd = os.open(name, _OPEN, 0o666, dir_fd=fd)
            try:
                status = os.fstat(self._fd)
                if not _is_plain(name, fd):
                    raise OSError(f"{name} is not a file of its own")
            except OSError:
                os.close(self._fd)
                raise
        self._there = max(status.st_size - size, 0)  # bytes that have not been compared yet

    def write(self, data: bytes | memoryview) -> None:
        """Appends `data`; where the file has these bytes already, nothing happens.

        Raises:
            DestinationError: It cannot be written.
        """
        if self._there:
            data = self._compare(bytes(data))
        self._buffer.append(data)
        self._buffered += len(data)
        self.size += len(data)
        if self._buffered >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands over everything to the operating system: from now on readers see it.

        Raises:
            DestinationError: It cannot be written. What is on disk then ends anywhere; a new
                object, from a size that is known to be right, mends that.
        """
        data, at = self._buffer, self.size - self._buffered
        if len(data) > _MOST_PIECES or self._buffered < len(data) * _SMALL_BYTES:
            data = [b"".join(data)]
        self._buffer, self._buffered = [], 0
        try:
            while data:
                written = os.pwritev(self._fd, data, at)
                at += written
                data = _rest(data, written)
        except OSError as error:
            raise unusable("the event file in", self._path, error) from error

    def settle(self) -> None:
        """Flushes, and cuts off what an earlier export had written beyond.

        Raises:
            DestinationError: It cannot be written.
        """
        self.flush()
        if self._there:
            self._cut()

    def close(self) -> None:
        """Closes the file; what has not been flushed is lost."""
        os.close(self._fd)

    def _compare(self, data: bytes) -> bytes:
        """Steps over the bytes that are there already; returns those that are to be written."""
        try:
            present = os.pread(self._fd, min(len(data), self._there), self.size)
        except OSError as error:
            raise unusable("the event file in", self._path, error) from error
        if not data.startswith(present):
            self._cut()
            return data
        self._there -= len(present)
        self.size += len(present)
        return data[len(present) :]

    def _cut(self) -> None:
        try:
            os.ftruncate(self._fd, self.size)
        except OSError as error:
            raise unusable("the event file in", self._path, error) from error
        self._there = 0
        self.replaced = True


def _rest(pieces: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    """Returns what is left to write."""
    left: list[bytes | memoryview] = []
    for piece in pieces:
        skipped = min(written, len(piece))
        written -= skipped
        if skipped < len(piece):
            left.append(memoryview(piece)[skipped:])
    return left


def _is_plain(name: str, directory: int) -> bool:
    """Whether a file is a regular one with no other name, so that writing hits nothing else."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def is_intact(logdir: LogDir, run: str, stamp: int, size: int, last: int) -> bool:
    """Whether an event file still has what was written to it.

    Args:
        logdir: The log directory, entered.
        run: The run's name.
        stamp: Names the file.
        size: How many bytes were written, whole records.
        last: The offset of the last one of these.

    Raises:
        DestinationError: The file cannot be read.
    """
    with logdir.opened(run) as directory:
        if directory is None:
            return False
        try:
            fd = os.open(event_file_name(stamp), _READ, dir_fd=directory)
        except FileNotFoundError:
            return False
        try:
            if size > os.fstat(fd).st_size or size - last > _LARGEST_EVENT:
                return False
            record = os.pread(fd, size - last, last)
        finally:
            os.close(fd)
    if len(record) < size - last or len(record) < framing.OVERHEAD_BYTES:
        return False
    length = framing.unpack_header(record[: framing.HEADER_BYTES])
    payload = record[framing.HEADER_BYTES : -framing.FOOTER_BYTES]
    return length == len(payload) and framing.footer_matches(
        payload, record[-framing.FOOTER_BYTES :]
    )
