"""Telemetry about telemetry: its counters and its cost, recorded as scalars."""

from __future__ import annotations

import time
from typing import Final

from rec_summary.records.format.names import Kind
from rec_summary.training.recorder import Recorder
from rec_summary.values.summary import ScalarValue, encode_event

PREFIX: Final = "rec_summary/"
EVERY_SECS: Final = 60.0


class HealthRecord:
    """The counters as scalars. They are read when the record is encoded, after all earlier ones."""

    kind = Kind.SUMMARY
    once = False
    nbytes = 512

    def __init__(self, step: int, cost: dict[str, float], recorder: Recorder) -> None:
        """Takes the scalars of the training thread; `encode` adds the counters of the writer."""
        self._step = step
        self._wall_time = time.time()
        self._cost = cost
        self._recorder = recorder

    def encode(self) -> bytes:
        """Returns the serialised event."""
        scalars = {**self._recorder.counters(), **self._cost}
        values = [ScalarValue(PREFIX + name, each).encode() for name, each in scalars.items()]
        return encode_event(self._step, self._wall_time, values)


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
