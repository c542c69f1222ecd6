"""The writer's lifetime: opened when training begins, closed whatever ends it."""

from __future__ import annotations

import atexit
from typing import Any

from rec_summary.records.background import BackgroundWriter
from rec_summary.records.run_writer import Retention, RunWriter
from rec_summary.records.sink import MessageRecord, Record
from rec_summary.records.trouble import Troubles


class Recorder:
    """Takes records while it is open, and takes no offence while it is not.

    If the files cannot be created, that is reported once and training goes on without
    telemetry; each later opening tries again.
    """

    def __init__(
        self, directory: str, retention: Retention, flush_secs: float, troubles: Troubles
    ) -> None:
        """Prepares a recorder; nothing is created yet.

        Args:
            directory: The record directory.
            retention: When files are full, and how many stay.
            flush_secs: The most that a record may be younger than the last flush, in seconds.
            troubles: Told of every failure.
        """
        self._directory = directory
        self._retention = retention
        self._flush_secs = flush_secs
        self._troubles = troubles
        self._writer: BackgroundWriter[Record] | None = None

    @property
    def is_open(self) -> bool:
        """Whether records are being taken."""
        return self._writer is not None

    def open(self, rank: int) -> None:
        """Begins the next pair of files of a rank."""
        if self._writer is not None:
            return
        try:
            files = RunWriter(self._directory, rank, self._retention)
        except OSError as error:
            self._troubles.report("open", error)
            return
        self._writer = BackgroundWriter(files, self._troubles, flush_secs=self._flush_secs)
        # Training that never leaves its callbacks (a custom loop) must not lose the last second.
        atexit.register(self.close)

    def write(self, record: Record) -> None:
        """Hands a record to the writer's thread."""
        if self._writer is not None:
            self._writer.write(record)

    def write_message(self, message: Any) -> None:
        """Hands a finished protobuf message to the writer's thread."""
        self.write(MessageRecord(message))

    def flush(self) -> bool:
        """Waits until all records are with the operating system; says whether they are."""
        return self._writer is None or self._writer.flush()

    def close(self) -> None:
        """Writes what is left and closes the files; may be called at any time."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            atexit.unregister(self.close)
