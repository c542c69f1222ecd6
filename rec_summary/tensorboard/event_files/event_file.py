"""The event file of a TensorBoard run: framing events, and appending after known bytes.

The framing is that of the records. TensorBoard's own writer is not used, because it takes
twenty times as long. Source: `tensorflow/core/util/event.proto`, and how both of
TensorBoard's loaders read it.

An export that was killed may have written more than its cursor states. The next export makes
the same bytes again, compares them with the file, and writes only what the file does not have.
A TensorBoard that has read the file sees no change.
"""

from __future__ import annotations

import functools
import io
import os
import stat
from collections.abc import Sequence
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
_HELD_BYTES: Final = 1 << 18  # events are written out when there are so many
_BUFFER_BYTES: Final = 1 << 16  # smaller pieces are joined
_LARGEST_EVENT: Final = 1 << 30
_PIECE_BYTES: Final = 1 << 20  # read at a time


class FilePosition(Struct):
    """What is known to be in an event file.

    Attributes:
        stamp: When the records were begun, in whole seconds; names the file.
        size: How many bytes of the file are right, whole events.
        last: Where the last of these events begins.
        checksum: The CRC-32C of these bytes.
        mark: A text that is another one when the file was changed, or the machine restarted.
    """

    stamp: Annotated[int, Meta(ge=0)]
    size: Count = 0
    last: Count = 0
    checksum: Checksum = 0
    mark: str = ""

    def __post_init__(self) -> None:
        if self.last > self.size or self.stamp >= 10**19:
            raise ValueError("no such position")


class EventFile:
    """The event file of a TensorBoard run. It is created when the first events are written out.

    Between two writes the file is closed, so any number of runs can be written at a time.

    Attributes:
        position: What is in the file, and what is held to be written.
        bytes_written: How many bytes were passed to it.
        replaced: Whether earlier bytes or files were overwritten or removed.
    """

    def __init__(self, logdir: LogDir, run: str, position: FilePosition) -> None:
        """Begins; nothing is opened.

        Args:
            logdir: The log directory, entered.
            run: The name of the TensorBoard run.
            position: What is known to be in the file. With a size of 0, the first write removes
                other event files of ours from the directory of the run.
        """
        self.position = position
        self.bytes_written = 0
        self.replaced = False
        self._logdir = logdir
        self._run = run
        self._held: list[bytes | memoryview] = []  # what is not written out yet
        self._held_bytes = 0
        self._used = False  # since it was closed

    @property
    def begun(self) -> bool:
        """Whether anything was passed to it, now or by an earlier export."""
        return bool(self.position.size)

    def write(self, step: int, wall_time: float, values: list[Any]) -> None:
        """Writes an event.

        The first one is preceded by the file's version and a start with the same time:
        TensorBoard takes it for the beginning of the run.

        Args:
            step: The training step.
            wall_time: Seconds since the epoch; must be finite.
            values: TensorBoard's `Summary.Value` messages.

        Raises:
            DestinationError: The file cannot be opened or written, or another program has
                shortened it. It then may end within an event; a new object with a correct
                position repairs it.
        """
        event = event_pb2.Event(wall_time=wall_time, step=step)
        event.summary.value.extend(values)
        self._write(event)

    def write_framed(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Writes events that are serialised and framed already; not the first of a file.

        They are held as long as they are little, and written out together.

        Args:
            pieces: The framed events; the last piece is the last event alone.

        Raises:
            DestinationError: As in `write`.
        """
        position = self.position
        for piece in pieces:
            position.checksum = framing.crc32c(piece, position.checksum)
            position.last = position.size
            position.size += len(piece)
            self.bytes_written += len(piece)
            self._held_bytes += len(piece)
        self._used = True
        if self._held_bytes >= _HELD_BYTES:
            self._held += pieces
            self._write_out()
        else:  # without the records that the pieces are a part of
            self._held += map(bytes, pieces)

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
        if self._held:
            self._write_out()

    def settle(self) -> None:
        """Flushes, and cuts off what an earlier export wrote beyond.

        Raises:
            DestinationError: As in `write`.
        """
        if self._used:
            self._write_out(settle=True)

    def discard(self) -> None:
        """Removes the file, and with it the TensorBoard run.

        Raises:
            DestinationError: It cannot be removed.
        """
        self._reset()
        position = self.position
        position.size = position.last = position.checksum = 0
        position.mark = ""
        self._logdir.remove(self._run)

    def close(self, report: Report) -> None:
        """Closes the file, and counts what was written; what has not been flushed is lost."""
        if not self._used:
            return
        self._reset()
        report.bytes_written += self.bytes_written
        report.runs.append(self._run)
        if self.replaced:
            report.replaced.append(self._run)

    def _reset(self) -> None:
        self._held, self._held_bytes = [], 0
        self._used = False

    def _write(self, event: Any) -> None:
        events = [event]
        if not self.position.size:
            version = event_pb2.Event(wall_time=event.wall_time, file_version=FILE_VERSION)
            # Only a second start is a restart.
            events = [version, _start(event.step, event.wall_time), event]
        self.write_framed([framing.frame(message.SerializeToString()) for message in events])

    def _write_out(self, *, settle: bool = False) -> None:
        """Appends what is held; where the file has these bytes already, nothing is written.

        Args:
            settle: Whether to cut off what follows.
        """
        with self._logdir.made(self._run) as directory:
            file = self._opened(directory)
        path = os.path.join(self._logdir.path, self._run)
        with unusable("the event file in", path), file:
            self._put(file)
            if settle and os.fstat(file.fileno()).st_size > self.position.size:
                self._cut(file, self.position.size)
            self.position.mark = _mark(os.fstat(file.fileno()))
        self._held, self._held_bytes = [], 0

    def _opened(self, directory: int) -> io.FileIO:
        name = event_file_name(self.position.stamp)
        # Through a link in its place, another file would be written.
        if self.position.size == self._held_bytes:
            for other in ours(directory):
                if other != name or not _is_plain(other, directory):
                    os.unlink(other, dir_fd=directory)
                    self.replaced = True
        file = io.FileIO(os.open(name, _OPEN, 0o666, dir_fd=directory), "r+")
        if not _is_plain(name, directory):
            file.close()
            raise OSError(f"{name} is a link, or has a second name")
        return file

    def _put(self, file: io.FileIO) -> None:
        written = self.position.size - self._held_bytes
        if os.fstat(file.fileno()).st_size < written:
            raise OSError("another program has shortened it")
        present = os.pread(file.fileno(), self._held_bytes, written)
        rest = self._held
        if present:
            held = b"".join(rest)
            if not held.startswith(present):
                self._cut(file, written)
                present = b""
            rest = [held[len(present) :]]
        file.seek(written + len(present))
        writer = io.BufferedWriter(file, _BUFFER_BYTES)
        writer.writelines(rest)
        writer.flush()
        writer.detach()

    def _cut(self, file: io.FileIO, size: int) -> None:
        file.truncate(size)
        self.replaced = True


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
            if event != framing.frame(payload):
                return False
            if position.mark != _mark(status):
                if _checksum(file, position.size) != position.checksum:
                    return False
                position.mark = _mark(status)
    return True


def _checksum(file: IO[bytes], size: int) -> int:
    """Returns the CRC-32C of the first bytes of a file."""
    checksum = 0
    while data := file.read(min(size, _PIECE_BYTES)):
        checksum = framing.crc32c(data, checksum)
        size -= len(data)
    return checksum


def _mark(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}-{_boot()}"


@functools.cache
def _boot() -> str:
    """Returns the identity of the last start of the machine; "" if unknown.

    A crash may leave zeros in a file whose size and time are right.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _start(step: int, wall_time: float) -> Any:
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    return event_pb2.Event(wall_time=wall_time, step=step, session_log=start)


def _is_plain(name: str, directory: int) -> bool:
    """Whether a file is a regular one with no other name, so that writing hits nothing else."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
