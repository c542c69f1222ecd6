"""Writing one record file.

A file is created exclusively, so two writers never share one. It grows by whole records: after
a failed write it is cut back to the last record boundary. So only the death of the process or
the machine in the middle of a write leaves a part of a record.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, Final

from rec_summary.records.files import FILE_MODE
from rec_summary.records.format.framing import frame
from rec_summary.records.liveness import hold

_FLUSH_BYTES: Final = 1 << 16  # write to the file when so much waits
_PENDING_BYTES: Final = 1 << 23  # may wait while the file cannot be written


class SegmentWriter:
    """Appends framed records to a file of its own, which is locked while it is open.

    Not thread-safe: one thread writes. Records wait in memory until `flush`, or until there
    are 64 KiB. While the file cannot be written, up to 8 MiB wait for the next try; after that
    new records are refused.

    Attributes:
        path: The file.
        bytes_written: The size of the file.
        records: How many records were accepted.
    """

    def __init__(self, path: str, system: Any = os) -> None:
        """Creates `path` (mode 0600).

        Args:
            path: The file.
            system: The operating system: the module `os`, or something with the same functions.

        Raises:
            FileExistsError: The file exists already; another writer owns it.
            OSError: The file cannot be created.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND  # O_EXCL follows no link
        self.path = path
        self.bytes_written = 0
        self.records = 0
        self._os = system
        self._fd = os.open(path, flags, FILE_MODE)
        hold(self._fd)
        _open_segments.add(self)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._torn = False  # a part of a record is at the end, and could not be cut off
        self._linked = self._os.fstat(self._fd).st_nlink > 0  # not every file system counts names

    @property
    def size(self) -> int:
        """The size of the file, in bytes, once everything is flushed."""
        return self.bytes_written + self._pending_bytes

    def write(self, payload: bytes) -> None:
        """Appends one record.

        Raises:
            OSError: The file cannot be written. The record is kept for the next try
                unless 8 MiB are waiting already; then it is refused.
        """
        if self._pending_bytes >= _PENDING_BYTES:
            self.flush()
        record = frame(payload)
        self._pending.append(record)
        self._pending_bytes += len(record)
        self.records += 1
        if self._pending_bytes >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands everything to the operating system: it survives the death of the process.

        Raises:
            FileNotFoundError: The file was deleted; the records are kept for `hand_over`.
            OSError: The file cannot be written; the records are kept for the next try.
        """
        if not self._pending:
            return
        if self.is_lost:
            raise FileNotFoundError(errno.ENOENT, "the record file was deleted", self.path)
        if self._torn:
            self._cut_back()
        data = memoryview(b"".join(self._pending))
        done = 0
        try:
            while done < len(data):
                done += self._os.write(self._fd, data[done:])
        except OSError as error:
            error.filename = self.path  # an operator sees which disk is full
            raise
        finally:
            self._take_off(done)

    def _take_off(self, done: int) -> None:
        """Removes the records that are in the file; `done` bytes may end within the next one."""
        whole = count = 0
        for record in self._pending:
            if whole + len(record) > done:
                break
            whole += len(record)
            count += 1
        del self._pending[:count]
        self._pending_bytes -= whole
        self.bytes_written += whole
        if whole < done:
            # A part of a record would make the next records unreadable.
            self._torn = True
            with contextlib.suppress(OSError):
                self._cut_back()

    def _cut_back(self) -> None:
        self._os.ftruncate(self._fd, self.bytes_written)
        self._torn = False

    def sync(self) -> None:
        """Forces what was flushed to the disk: it survives the death of the machine.

        Raises:
            OSError: The disk reports an error.
        """
        if self._fd >= 0:
            self._os.fsync(self._fd)

    @property
    def is_lost(self) -> bool:
        """Whether the file was deleted while it was being written.

        A file that was moved, alone or with its directory, is not lost.
        """
        if not self._linked:
            return False
        try:
            status = self._os.fstat(self._fd)
        except OSError as error:  # it is closed; or another host has deleted it, as NFS says
            return error.errno == errno.ESTALE
        if status.st_nlink:
            return False
        try:  # some file systems do not count names: the name itself decides
            return not os.path.samestat(status, os.lstat(self.path))
        except OSError:
            return True

    @property
    def has_pending(self) -> bool:
        """Whether records wait to be flushed."""
        return bool(self._pending)

    def hand_over(self, successor: SegmentWriter) -> None:
        """Appends the records that are not written yet to another file; closes this one."""
        successor._pending += self._pending
        successor._pending_bytes += self._pending_bytes
        successor.records += len(self._pending)
        self._pending, self._pending_bytes = [], 0
        with contextlib.suppress(OSError):  # nothing is lost: the other file has the records
            self.close()

    def close(self) -> None:
        """Flushes and closes the file; the file is closed even if the flush fails.

        Raises:
            OSError: The last records could not be written.
        """
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            self._close()

    def abandon(self) -> None:
        """Closes the file without the records that wait."""
        if self._fd >= 0:
            self._pending, self._pending_bytes = [], 0
            self._close()

    def _close(self) -> None:
        _open_segments.discard(self)
        fd, self._fd = self._fd, -1  # closed even if that fails
        self._os.close(fd)


_open_segments: set[SegmentWriter] = set()


def is_open_here(path: str) -> bool:
    """Returns whether this process writes a file."""
    # Another thread may open or close a file meanwhile.
    return any(segment.path == path for segment in list(_open_segments))


def _abandon_all() -> None:
    """Closes all files in a forked child, which would hold their locks after its parent's death."""
    for segment in list(_open_segments):
        segment.abandon()


os.register_at_fork(after_in_child=_abandon_all)
