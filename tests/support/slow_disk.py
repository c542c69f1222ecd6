"""A disk that takes its time over each write of a record file."""

from __future__ import annotations

import os
import time
from typing import Any

from rec_summary.records.writing import segment


class _SlowOs:
    """`os`, with a slow `write`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: Any) -> int:
        time.sleep(self._seconds)
        return os.write(fd, data)


def slow_down(seconds: float) -> None:
    """Makes each write to a record file of this process take so long, and each record a write."""
    segment.os = _SlowOs(seconds)  # type: ignore[assignment]
    segment._FLUSH_BYTES = 1  # type: ignore[misc]
