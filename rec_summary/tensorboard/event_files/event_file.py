"""Writing TensorBoard event files.

The framing is that of the records; TensorBoard's own writer is not used, because it takes
twenty times as long. Source: `tensorflow/core/util/event.proto`, and how both of
TensorBoard's loaders read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from tensorboard.compat.proto import event_pb2

from rec_summary.records.format.framing import frame

FILE_VERSION: Final = "brain.Event:2"


class Appendable(Protocol):
    """What event files are written to: a file, or something like it."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Appends `data`, all of it."""


class EventFileWriter:
    """Writes the events of one TensorBoard run.

    Attributes:
        bytes_written: How much was written so far.
        last: Where the last event begins, in bytes from the beginning of the file.
    """

    def __init__(self, file: Appendable, size: int = 0) -> None:
        """Writes to `file`, which stays the caller's to close.

        Args:
            file: Where to.
            size: How many bytes the file has already.
        """
        self._file = file
        self._size = size
        self.last = size
        self.bytes_written = 0

    def write(self, step: int, wall_time: float, values: list[Any]) -> None:
        """Writes an event.

        The first one is preceded by the file's version and a start, which bear the same
        time: TensorBoard takes it for the beginning of the run.

        Args:
            step: The training step.
            wall_time: Seconds since the epoch; must be finite.
            values: TensorBoard's `Summary.Value` messages.

        Raises:
            OSError: The file cannot be written.
        """
        event = event_pb2.Event(wall_time=wall_time, step=step)
        event.summary.value.extend(values)
        self._append(event)

    def write_framed(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Writes events that are serialised and framed already; not the first of a file.

        Args:
            pieces: The framed events; the last piece is the last event alone.

        Raises:
            OSError: The file cannot be written.
        """
        for piece in pieces:
            self._file.write(piece)
            self.last = self._size
            self._size += len(piece)
            self.bytes_written += len(piece)

    def write_graph(self, wall_time: float, graph: bytes) -> None:
        """Writes a computation graph, a serialised `GraphDef`; a run has one at most.

        Raises:
            OSError: The file cannot be written.
        """
        self._append(event_pb2.Event(wall_time=wall_time, graph_def=graph))

    def write_restart(self, step: int, wall_time: float) -> None:
        """Writes that training (re)started at a step.

        TensorBoard's Python loader then forgets what it has for this step and later ones,
        as its other loader does of itself when steps go back.

        Raises:
            OSError: The file cannot be written.
        """
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._append(event_pb2.Event(wall_time=wall_time, step=step, session_log=start))

    def _append(self, event: Any) -> None:
        if not self._size:
            self._write(event_pb2.Event(wall_time=event.wall_time, file_version=FILE_VERSION))
            # Only a second start is a restart.
            self.write_restart(event.step, event.wall_time)
        self._write(event)

    def _write(self, event: Any) -> None:
        record = frame(event.SerializeToString())
        self._file.write(record)
        self.last = self._size
        self._size += len(record)
        self.bytes_written += len(record)
