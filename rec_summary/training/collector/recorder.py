"""The writer's lifetime: opened when training begins, closed whatever ends it."""

from __future__ import annotations

import atexit
from typing import Any

from rec_summary.records.failures import Troubles
from rec_summary.records.writing.background import BLOCK_SECS, BackgroundWriter
from rec_summary.records.writing.run_writer import Durability, Retention, RunWriter
from rec_summary.records.writing.task import MessageRecord, Record, Task
from rec_summary.training.collector.health import Counters


class Recorder:
    """Takes records while it is open, and takes no offence while it is not.

    If the files cannot be created, that is reported once and training goes on without
    telemetry; each later opening tries again.
    """

    def __init__(
        self,
        directory: str,
        retention: Retention,
        flush_secs: float,
        durability: Durability,
        troubles: Troubles,
    ) -> None:
        """Prepares a recorder; nothing is created yet.

        Args:
            directory: The record directory.
            retention: When files are full, and how many stay.
            flush_secs: The most that a record may be younger than the last flush, in seconds.
            durability: How hard records are held on to.
            troubles: Told of every failure.
        """
        self._directory = directory
        self._retention = retention
        self._flush_secs = flush_secs
        self._durability = durability
        self._troubles = troubles
        self._files: RunWriter | None = None
        self._writer: BackgroundWriter[Record] | None = None
        self._before = Counters(0, 0, 0, 0)  # of files that are closed
        self._failed = False  # the last opening or closing; while open, the writer knows

    @property
    def is_open(self) -> bool:
        """Whether records are being taken."""
        return self._writer is not None

    def open(self, rank: int) -> None:
        """Begins the next pair of files of a rank."""
        if self._writer is not None:
            return
        try:
            files = RunWriter(
                self._directory,
                rank,
                self._retention,
                durability=self._durability,
                troubles=self._troubles,
            )
        except OSError as error:
            self._troubles.report("open", error)
            self._failed = True
            return
        self._files = files
        self._writer = background(files, self._troubles, self._durability, self._flush_secs)
        # Training that never leaves its callbacks (a custom loop) must not lose the last second.
        atexit.register(self.close)

    def write(self, record: Record | Task[Record]) -> None:
        """Hands a record to the writer's thread."""
        if self._writer is not None:
            self._writer.write(record)

    def write_message(self, message: Any) -> None:
        """Hands a finished protobuf message to the writer's thread."""
        self.write(MessageRecord(message))

    def flush(self) -> bool:
        """Waits until all records are with the operating system; says whether they are.

        Where no file could be created, or the last records of those that are closed could not be
        written, they are not.
        """
        return not self._failed if self._writer is None else self._writer.flush()

    def counters(self) -> Counters:
        """Returns what was done since the first opening."""
        before, files, writer = self._before, self._files, self._writer
        if files is None or writer is None:
            return before
        return Counters(
            before.records + writer.accepted,
            before.nbytes + files.bytes_written,
            before.dropped + writer.dropped,
            writer.take_longest(),
        )

    def close(self) -> None:
        """Writes what is left and closes the files; may be called at any time."""
        if self._writer is not None:
            self._writer.close()
            self._failed = not self._writer.flush(0)
            self._before = self.counters()
            self._writer = self._files = None
            atexit.unregister(self.close)


def background(
    files: RunWriter, troubles: Troubles, durability: Durability, flush_secs: float
) -> BackgroundWriter[Record]:
    """Returns the writer's thread for some files, with the back-pressure that was chosen."""
    block_secs = BLOCK_SECS if durability.back_pressure == "block" else 0.0
    return BackgroundWriter(files, troubles, flush_secs=flush_secs, block_secs=block_secs)
