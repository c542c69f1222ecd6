"""How telemetry itself is doing, recorded beside what it records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rec_summary.records.format.names import Kind
from rec_summary.values.summary import ScalarValue, encode_event

PREFIX: Final = "rec_summary/"
EVERY_SECS: Final = 60.0


@dataclass(frozen=True)
class Counters:
    """What a writer has done so far.

    Attributes:
        records: Records taken.
        nbytes: Bytes handed to the operating system.
        dropped: Records that found the queue full.
        queue: The longest that the queue has been since this was last asked.
    """

    records: int
    nbytes: int
    dropped: int
    queue: int


class HealthRecord:
    """The counters as scalars; read when it is encoded, after all records before it."""

    kind = Kind.SUMMARY
    once = False
    nbytes = 512

    def __init__(self, step: int, wall_time: float, read: Callable[[], Mapping[str, float]]):
        """Takes a step, its time in seconds since the epoch, and who knows the counters."""
        self._step = step
        self._wall_time = wall_time
        self._read = read

    def encode(self) -> bytes:
        """Returns the serialised event."""
        values = [ScalarValue(PREFIX + name, each).encode() for name, each in self._read().items()]
        return encode_event(self._step, self._wall_time, values)


class Health:
    """Collects what a step costs, and says when the counters are to be recorded.

    Tags, all below `rec_summary/`: `records`, `bytes`, `dropped` and `errors` since the
    collector was made; `queue_length`, the longest, and `snapshot_ms`, the mean time that
    a step with values kept the training thread, since the last report.
    """

    def __init__(self, every_secs: float = EVERY_SECS) -> None:
        """Starts the clock; `every_secs` lie between two reports."""
        self._every_secs = every_secs
        self._last = time.monotonic()
        self._step = -1
        self._seconds = 0.0
        self._snapshots = 0

    def note_snapshot(self, seconds: float) -> None:
        """Takes the time that a step with values has cost the training thread."""
        self._seconds += seconds
        self._snapshots += 1

    def due(self, now: float) -> bool:
        """Whether it is time for a report, at this monotonic time in seconds."""
        return now - self._last >= self._every_secs

    def record(
        self, step: int, counters: Callable[[], Counters], errors: Callable[[], int]
    ) -> HealthRecord | None:
        """Returns the report, and begins the next interval; None if the step has one.

        Args:
            step: The last step.
            counters: Gives the writer's counters; called on the writer's thread.
            errors: Gives the number of failures so far; called there, too.
        """
        if step == self._step:
            return None
        self._step = step
        snapshot = {}
        if self._snapshots:
            snapshot = {"snapshot_ms": 1000 * self._seconds / self._snapshots}
        self._last, self._seconds, self._snapshots = time.monotonic(), 0.0, 0

        def read() -> Mapping[str, float]:
            now = counters()
            return {
                "records": now.records,
                "bytes": now.nbytes,
                "dropped": now.dropped,
                "errors": errors(),
                "queue_length": now.queue,
                **snapshot,
            }

        return HealthRecord(step, time.time(), read)
