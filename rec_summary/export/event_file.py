"""Writing TensorBoard event files.

The framing is that of the records; TensorBoard's own writer is not used, because it takes
twenty times as long. Source: `tensorflow/core/util/event.proto`, and how both of
TensorBoard's loaders read it.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from tensorboard.compat.proto import event_pb2

from rec_summary.records.framing import frame

FILE_VERSION: Final = "brain.Event:2"


class Appendable(Protocol):
    """What event files are written to: a file, or something like it."""

    def write(self, data: bytes, /) -> object:
        """Appends `data`, all of it."""


class EventFileWriter:
    """Writes the events of one TensorBoard run.

    Attributes:
        bytes_written: How much was written so far.
    """

    def __init__(self, file: Appendable) -> None:
        """Writes to `file`, which stays the caller's to close."""
        self._file = file
        self.bytes_written = 0

    def write(self, step: int, wall_time: float, values: list[Any]) -> None:
        """Writes an event.

        The first one is preceded by the file's version, which bears the same time:
        TensorBoard takes it for the beginning of the run.

        Args:
            step: The training step.
            wall_time: Seconds since the epoch; must be finite.
            values: TensorBoard's `Summary.Value` messages.

        Raises:
            OSError: The file cannot be written.
        """
        if not self.bytes_written:
            self._append(event_pb2.Event(wall_time=wall_time, file_version=FILE_VERSION))
        event = event_pb2.Event(wall_time=wall_time, step=step)
        event.summary.value.extend(values)
        self._append(event)

    def _append(self, event: Any) -> None:
        record = frame(event.SerializeToString())
        self._file.write(record)
        self.bytes_written += len(record)
