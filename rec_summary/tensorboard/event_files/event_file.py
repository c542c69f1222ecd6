"""The event file of a TensorBoard run: framing events, and appending behind known bytes.

The framing is that of the records. TensorBoard's own writer is not used, because it takes
twenty times as long. Source: `tensorflow/core/util/event.proto`, and how both of
TensorBoard's loaders read it.

An export that was killed may have written more than its cursor states. The next export makes
the same bytes again, compares them with the file, and writes only what the file does not have.
A TensorBoard that has read the file sees no change.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, Final

from msgspec import Meta, Struct
from tensorboard.compat.proto import event_pb2

from rec_summary.records.files import open_plain
from rec_summary.records.format import framing
from rec_summary.series.limits import Checksum, Count
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.logdir import LogDir, event_file_name, ours, unusable

FILE_VERSION: Final = "brain.Event:2"
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BUFFER_BYTES: Final = 1 << 18
_LARGEST_EVENT: Final = 1 << 30
_PIECE_BYTES: Final = 1 << 20  # that are read at a time


class FilePosition(Struct):
    """What is known to be in an event file.

    Attributes:
        stamp: When the records were begun, in whole seconds; names the file.
        size: How many bytes of the file are right, whole events.
        last: Where the last of these events begins.
        checksum: The CRC-32C of these bytes; None if it is not known.
        mark: A text that is another one when the file was changed, or the machine restarted.
    """

    stamp: Annotated[int, Meta(ge=0)]
    size: Count = 0
    last: Count = 0
    checksum: Checksum | None = None
    mark: str = ""

    def __post_init__(self) -> None:
        if self.last > self.size or self.stamp >= 10**19:
            raise ValueError("no such position")


class EventFile:
    """The event file of a TensorBoard run. It is opened or created at the first event.

    Attributes:
        position: What is in the file, buffered bytes included.
        bytes_written: How many bytes were passed to it.
        replaced: Whether earlier bytes or files were overwritten or removed.
    """

    def __init__(self, logdir: LogDir, run: str, position: FilePosition) -> None:
        """Begins; nothing is opened.

        Args:
            logdir: The log directory, entered.
            run: The name of the TensorBoard run.
            position: What is known to be in the file. With a size of 0, opening it removes
                other event files of ours from the directory of the run.
        """
        self.position = position
        self.bytes_written = 0
        self.replaced = False
        self._logdir = logdir
        self._run = run
        self._file: io.BufferedWriter | None = None
        self._used = False  # since it was closed
        self._unchecked = 0  # bytes behind the position that have not been compared

    @property
    def begun(self) -> bool:
        """Whether anything was written, now or by an earlier export."""
        return bool(self.position.size) or self._file is not None

    def write(self, step: int, wall_time: float, values: list[Any]) -> None:
        """Writes an event.

        The first one is preceded by the file's version and a start with the same time:
        TensorBoard takes it for the beginning of the run.

        Args:
            step: The training step.
            wall_time: Seconds since the epoch; must be finite.
            values: TensorBoard's `Summary.Value` messages.

        Raises:
            DestinationError: The file cannot be opened or written. The file then may
                end within an event; a new object with a correct position repairs it.
        """
        event = event_pb2.Event(wall_time=wall_time, step=step)
        event.summary.value.extend(values)
        self._write(event)

    def write_framed(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Writes events that are serialised and framed already; not the first of a file.

        Args:
            pieces: The framed events; the last piece is the last event alone.

        Raises:
            DestinationError: As in `write`.
        """
        file = self._opened()
        with self._reporting():
            for piece in pieces:
                self._append(file, piece)

    def write_graph(self, wall_time: float, graph: bytes) -> None:
        """Writes a computation graph, a serialised `GraphDef`; a run has one at most.

        Raises:
            DestinationError: As in `write`.
        """
        self._write(event_pb2.Event(wall_time=wall_time, graph_def=graph))

    def write_restart(self, step: int, wall_time: float) -> None:
        """Writes that training (re)started at a step.

        TensorBoard's Python loader then forgets what it has for this step and later ones.
        Its other loader does so whenever steps go back.

        Raises:
            DestinationError: As in `write`.
        """
        self._write(_start(step, wall_time))

    def flush(self) -> None:
        """Hands all events to the operating system: from now on TensorBoard sees them.

        Raises:
            DestinationError: As in `write`.
        """
        if self._file is not None:
            with self._reporting():
                self._file.flush()
                self.position.mark = _mark(os.fstat(self._file.fileno()))

    def suspend(self) -> None:
        """Flushes, and closes the file until it is written to again.

        Raises:
            OSError: It cannot be written; the file stays open.
        """
        if self._file is not None:
            self._file.flush()
            self.position.mark = _mark(os.fstat(self._file.fileno()))
            self._file.close()
            self._file = None

    def settle(self) -> None:
        """Flushes, and cuts off what an earlier export wrote beyond.

        Raises:
            DestinationError: As in `write`.
        """
        self.flush()
        if self._unchecked:
            self._cut(self._opened())

    def discard(self) -> None:
        """Removes the file, and with it the TensorBoard run.

        Raises:
            DestinationError: It cannot be removed.
        """
        self._close()
        position = self.position
        position.size = position.last = 0
        position.checksum, position.mark = None, ""
        self._logdir.remove(self._run)

    def close(self, report: Report) -> None:
        """Closes the file, and counts what was written; what has not been flushed is lost."""
        if not self._used:
            return
        self._close()
        report.bytes_written += self.bytes_written
        report.runs.append(self._run)
        if self.replaced:
            report.replaced.append(self._run)

    def _opened(self) -> io.BufferedWriter:
        if self._file is None:
            self._file = self._open()
            self._used = True
        self._logdir.open_files.use(self)
        return self._file

    def _open(self) -> io.BufferedWriter:
        name, size = event_file_name(self.position.stamp), self.position.size
        with self._logdir.made(self._run) as directory:
            # Through a link in its place, another file would be written.
            if not size:
                for other in ours(directory):
                    if other != name or not _is_plain(other, directory):
                        os.unlink(other, dir_fd=directory)
                        self.replaced = True
            fd = os.open(name, _OPEN, 0o666, dir_fd=directory)
            raw = io.FileIO(fd, "r+")  # it closes the descriptor
            if not _is_plain(name, directory):
                raw.close()
                raise OSError(f"{name} is not a file of its own")
            self._unchecked = max(os.fstat(fd).st_size - size, 0)
            file: io.BufferedWriter = io.BufferedWriter(raw, _BUFFER_BYTES)
            file.seek(size)
            return file

    def _close(self) -> None:
        if self._file is not None:
            self._file.raw.close()  # without writing what is buffered
        self._file = None
        self._used, self._unchecked = False, 0
        self._logdir.open_files.remove(self)

    def _write(self, event: Any) -> None:
        file = self._opened()
        events = [event]
        if not self.position.size:
            version = event_pb2.Event(wall_time=event.wall_time, file_version=FILE_VERSION)
            # Only a second start is a restart.
            events = [version, _start(event.step, event.wall_time), event]
        with self._reporting():
            for each in events:
                self._append(file, framing.frame(each.SerializeToString()))

    def _append(self, file: io.BufferedWriter, data: bytes | memoryview) -> None:
        """Appends whole events; where the file has these bytes already, nothing is written."""
        position, nbytes, data = self.position, len(data), bytes(data)
        rest = self._compare(file, data) if self._unchecked else data
        if position.checksum is not None or not position.size:
            position.checksum = framing.crc32c(data, position.checksum or 0)
        position.last = position.size
        position.size += nbytes
        self.bytes_written += nbytes
        file.write(rest)

    def _compare(self, file: io.BufferedWriter, data: bytes) -> bytes:
        """Steps over the bytes that are there already; returns those that are to be written."""
        present = os.pread(file.fileno(), min(len(data), self._unchecked), self.position.size)
        if not data.startswith(present):
            self._cut(file)
            return data
        self._unchecked -= len(present)
        file.seek(len(present), os.SEEK_CUR)
        return data[len(present) :]

    def _cut(self, file: io.BufferedWriter) -> None:
        """Removes what is behind the position; nothing is buffered then."""
        with self._reporting():
            os.ftruncate(file.fileno(), self.position.size)
        self._unchecked = 0
        self.replaced = True

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = os.path.join(self._logdir.path, self._run)
            raise unusable("the event file in", place, error) from error


def is_intact(logdir: LogDir, run: str, position: FilePosition) -> bool:
    """Whether an event file still has what was written to it.

    The last event is compared in any case. All bytes are compared if the file was changed since
    it was written, or if the machine was restarted; the position is brought up to date then.

    Args:
        logdir: The log directory, entered.
        run: The run's name.
        position: What was written.

    Raises:
        DestinationError: The file cannot be read.
    """
    nbytes = position.size - position.last
    with logdir.opened(run) as directory:
        if directory is None:
            return False
        try:
            fd = open_plain(event_file_name(position.stamp), dir_fd=directory)
        except FileNotFoundError:
            return False
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if position.size > status.st_size or nbytes > _LARGEST_EVENT:
                return False
            event = os.pread(fd, nbytes, position.last)
            payload = event[framing.HEADER_BYTES : -framing.FOOTER_BYTES]
            if len(event) != nbytes or event != framing.frame(payload):
                return False
            if position.checksum is None or position.mark != _mark(status):
                checksum = _checksum(file, position.size)
                if position.checksum not in (None, checksum):
                    return False
                position.checksum, position.mark = checksum, _mark(status)
    return True


def _checksum(file: IO[bytes], size: int) -> int:
    """Returns the CRC-32C of the first bytes of a file."""
    checksum = 0
    while size and (data := file.read(min(size, _PIECE_BYTES))):
        checksum = framing.crc32c(data, checksum)
        size -= len(data)
    return checksum


def _mark(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}-{_boot()}"


@functools.cache
def _boot() -> str:
    """Returns a text that is another one after a restart of the machine; "" if unknown.

    A crash may leave zeros in a file whose size and time are right.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _start(step: int, wall_time: float) -> Any:
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    return event_pb2.Event(wall_time=wall_time, step=step, session_log=start)


def _is_plain(name: str, directory: int) -> bool:
    """Whether a file is a regular one with no other name, so that writing hits nothing else."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
