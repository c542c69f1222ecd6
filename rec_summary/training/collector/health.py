"""Telemetry about telemetry: its counters and its cost, recorded as scalars."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rec_summary.records.format.names import Kind
from rec_summary.training.recorder import Recorder
from rec_summary.values.summary import ScalarValue, encode_event

PREFIX: Final = "rec_summary/"
EVERY_SECS: Final = 60.0


@dataclass(frozen=True)
class HealthRecord:
    """The counters as scalars. They are read when the record is encoded, after all earlier ones.

    Attributes:
        step: The last step.
        cost: The scalars of the training thread.
        recorder: Has the counters of the writer.
        wall_time: The time of the report, in seconds since the epoch.
    """

    kind: ClassVar = Kind.SUMMARY
    once: ClassVar = False
    nbytes: ClassVar = 512

    step: int
    cost: Mapping[str, float]
    recorder: Recorder
    wall_time: float = field(default_factory=time.time)

    def encode(self) -> bytes:
        """Returns the serialised event."""
        scalars = {**self.recorder.counters(), **self.cost}
        values = [ScalarValue(PREFIX + name, number).encode() for name, number in scalars.items()]
        return encode_event(self.step, self.wall_time, values)


class Health:
    """Measures the cost of telemetry, and records it with the counters of its recorder.

    All tags are below `rec_summary/`. `records`, `bytes`, `dropped` and `errors` count since the
    collector was constructed. `queue_length` is the longest queue since the last report.
    `snapshot_ms` is the mean time of a step with values on the training thread since then.
    """

    def __init__(self, recorder: Recorder) -> None:
        """Begins the first interval."""
        self._recorder = recorder
        self._last = time.monotonic()
        self._step = -1
        self._seconds = 0.0
        self._snapshots = 0

    def add_snapshot(self, seconds: float) -> None:
        """Adds the time that a step with values took on the training thread."""
        self._seconds += seconds
        self._snapshots += 1

    def due(self, now: float) -> bool:
        """Whether a report is due at this monotonic time, in seconds."""
        return now - self._last >= EVERY_SECS

    def record(self, step: int) -> None:
        """Records a report and begins the next interval; does nothing if the step has a report."""
        if step == self._step:
            return
        self._step = step
        cost = {}
        if self._snapshots:
            cost = {"snapshot_ms": 1000 * self._seconds / self._snapshots}
        self._last, self._seconds, self._snapshots = time.monotonic(), 0.0, 0
        self._recorder.write(HealthRecord(step, cost, self._recorder))
