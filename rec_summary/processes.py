"""Worker processes: they end with their parent, and the error when one of them is killed."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from rec_summary.errors import RecSummaryError, three_part, verbatim

_POLL_SECS: Final = 0.5


class WorkerError(RecSummaryError):
    """A worker process was killed."""


@functools.cache
def end_with_parent() -> None:
    """Ends this process when its parent dies; does nothing in a process without a parent.

    A parent that is killed cannot end its workers. They would go on writing after its locks are
    released, or keep their memory.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        if parent.sentinel is not None:
            parent.join()
        while os.getppid() == parent.pid:  # loky has no sentinel
            time.sleep(_POLL_SECS)
        os._exit(1)

    threading.Thread(target=watch, name="rec_summary-parent", daemon=True).start()


@contextlib.contextmanager
def reporting_killed_workers(what: str) -> Iterator[None]:
    """Turns the error of a pool of processes into one that says what to do.

    Args:
        what: What a later run does with what is finished, for the message.

    Raises:
        WorkerError: A worker was killed.
    """
    try:
        yield
    except BrokenProcessPool as error:
        received = verbatim("one that was killed, as the system does when memory runs out")
        expected = f"processes that can finish: use fewer --jobs and run it again; {what}"
        raise WorkerError(three_part("a worker process", received, expected)) from error
