"""A disk that takes its time over each write of a record file."""

from __future__ import annotations

import threading
import time

from rec_summary.records.writing import run_writer
from rec_summary.records.writing.segment import SegmentWriter


def slow_down(seconds: float) -> threading.Event:
    """Makes each write to a record file of this process take so long, and each record a write.

    Returns:
        What is set; while it is cleared, no write ends.
    """
    moves = threading.Event()
    moves.set()

    class SlowSegment(SegmentWriter):
        def write(self, payload: bytes) -> None:
            super().write(payload)
            self.flush()

        def flush(self) -> None:
            if self.has_pending:
                time.sleep(seconds)
                moves.wait()
            super().flush()

    run_writer.SegmentWriter = SlowSegment  # type: ignore[misc]
    return moves
