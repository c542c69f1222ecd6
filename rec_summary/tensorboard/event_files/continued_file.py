"""The event file of a TensorBoard run, as one export leaves it and the next one takes it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rec_summary.series.report import Tally
from rec_summary.tensorboard.event_files.append import AppendFile, is_intact
from rec_summary.tensorboard.event_files.event_file import EventFileWriter
from rec_summary.tensorboard.event_files.logdir import LogDir


class ContinuedFile:
    """Opens the file at the first event, behind what an earlier export has written."""

    def __init__(self, logdir: LogDir, run: str, stamp: int) -> None:
        """Notes where the file is; nothing is opened.

        Args:
            logdir: The log directory, entered.
            run: The TensorBoard run's name.
            stamp: When its records were begun, in whole seconds; names the file.
        """
        self._logdir = logdir
        self._run = run
        self._stamp = stamp
        self._size = 0  # of the file, as far as it is written for good
        self._last = 0  # where its last event begins
        self._file: AppendFile | None = None
        self._writer: EventFileWriter | None = None

    @property
    def begun(self) -> bool:
        """Whether anything has been written, now or earlier."""
        return bool(self._size) or self._file is not None

    def writer(self) -> EventFileWriter:
        """Returns what writes events; opens or creates the file.

        Raises:
            DestinationError: It cannot be opened.
        """
        if self._writer is None:
            self._file = AppendFile(self._logdir, self._run, self._stamp, self._size)
            self._writer = EventFileWriter(self._file, self._size)
        return self._writer

    def flush(self) -> None:
        """Hands all events to the operating system: from now on TensorBoard sees them.

        Raises:
            DestinationError: The file cannot be written.
        """
        if self._file is not None:
            self._file.flush()

    def settle(self) -> None:
        """Flushes, and cuts off what an earlier export has written beyond.

        Raises:
            DestinationError: The file cannot be written.
        """
        if self._file is not None:
            self._file.settle()

    def state(self) -> dict[str, int]:
        """Returns what `restore` needs, for a file that is flushed; a size of 0 is no file."""
        if self._file is not None and self._writer is not None:
            self._size, self._last = self._file.size, self._writer.last
        return {"stamp": self._stamp, "size": self._size, "last": self._last}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where another object was."""
        self._stamp, self._size, self._last = state["stamp"], state["size"], state["last"]

    def discard(self) -> None:
        """Removes the file: there is no such TensorBoard run any more.

        Raises:
            DestinationError: It cannot be removed.
        """
        if self._file is not None:
            self._file.close()
        self._file = self._writer = None
        self._size = 0
        self._logdir.remove(self._run)

    def close(self, tally: Tally) -> None:
        """Closes the file, and counts what was written; what has not been flushed is lost."""
        if self._file is None or self._writer is None:
            return
        self._file.close()
        tally.bytes_written += self._writer.bytes_written
        tally.runs.append(self._run)
        if self._file.replaced:
            tally.replaced.append(self._run)
        self._file = self._writer = None


def can_go_on(logdir: LogDir, name: str, state: Mapping[str, Any]) -> bool:
    """Whether the event file of a run is still as it was when `state` was taken.

    Raises:
        DestinationError: The file cannot be read.
    """
    return is_intact(logdir, name, state["stamp"], state["size"], state["last"])
