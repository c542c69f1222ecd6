"""Follows records in a thread, while the test writes them."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from pathlib import Path
from typing import Any

from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.export import follow_tensorboard
from tests.support.waiting import PATIENCE_SECS


class Follower:
    """Follows in a thread until it is left, as a context."""

    def __init__(self, source: Path, logdir: Path, **options: Any) -> None:
        self.reported: list[Report] = []
        self.report: Report | None = None
        self._stop = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._follow = functools.partial(
            *(follow_tensorboard, source, logdir),
            stop=self._stop,
            interval=0.02,
            reported=self.reported.append,
            **options,
        )

    def __enter__(self) -> Follower:
        self._task = self._pool.submit(self._follow)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.report = self._task.result(PATIENCE_SECS)
        self._pool.shutdown()


def write(writer: RunWriter, *events: Any) -> None:
    for each in events:
        writer.write(MessageRecord(each))
    writer.flush()
