"""A disk that takes its time over each write of a record file."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from rec_summary.records.writing import segment


class _SlowOs:
    """`os`, with a slow `write`."""

    def __init__(self, seconds: float, moves: threading.Event) -> None:
        self._seconds = seconds
        self._moves = moves

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: Any) -> int:
        time.sleep(self._seconds)
        self._moves.wait()
        return os.write(fd, data)


def slow_down(seconds: float) -> threading.Event:
    """Makes each write to a record file of this process take so long, and each record a write.

    Returns:
        What is set; while it is cleared, no write ends.
    """
    moves = threading.Event()
    moves.set()
    segment.os = _SlowOs(seconds, moves)  # type: ignore[assignment]
    # A slow disk cannot be produced without the rights of root; nor does a segment buffer less.
    segment._FLUSH_BYTES = 1  # type: ignore[misc]
    return moves
