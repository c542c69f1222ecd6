"""Processes on this machine, by joblib's loky."""

from __future__ import annotations

import contextlib
import importlib

from rec_summary.engines.pool import Pool
from rec_summary.engines.worker import end_with_parent


class LokyPool(Pool):
    """Processes on this machine; one that is killed breaks the pool."""

    remedy = "processes that are not killed: use fewer --jobs and run it again"

    def __init__(self, workers: int, stack: contextlib.ExitStack) -> None:
        """Prepares processes, which start with the first units; the stack ends them."""
        self.workers = workers
        self.renew()
        stack.callback(lambda: self._pool.shutdown(wait=True, kill_workers=True))

    def renew(self) -> bool:
        """Takes other processes."""
        loky = importlib.import_module("joblib.externals.loky")
        self._pool = loky.ProcessPoolExecutor(self.workers, initializer=end_with_parent)
        self.submit = self._pool.submit
        return True
