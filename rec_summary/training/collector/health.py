"""Telemetry about telemetry: its counters and its cost, recorded as scalars."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Final

from rec_summary.records.writing.record import Record
from rec_summary.training.recorder import Recorder
from rec_summary.values.summary import encode_event, encode_scalar

PREFIX: Final = "rec_summary/"
EVERY_SECS: Final = 60.0
_BYTES: Final = 512  # of a report


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
        mean = 1000 * self._seconds / max(self._snapshots, 1)
        cost = {"snapshot_ms": mean} if self._snapshots else {}
        self._last, self._seconds, self._snapshots = time.monotonic(), 0.0, 0
        encode = functools.partial(self._encoded, step, cost, time.time())
        self._recorder.write(Record(encode, _BYTES))

    def _encoded(self, step: int, cost: Mapping[str, float], wall_time: float) -> bytes:
        """Returns a report. The writer's counters are read now, after all earlier records."""
        scalars = {**self._recorder.counters(), **cost}
        values = [encode_scalar(PREFIX + name, number) for name, number in scalars.items()]
        return encode_event(step, wall_time, values)
