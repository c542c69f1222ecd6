"""Tasks of Ray."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from concurrent.futures import Future
from typing import Any

from rec_summary.engines.engine import Engine
from rec_summary.engines.pool import Pool


class RayPool(Pool):
    """Tasks of a cluster; each is tried once by Ray."""

    package = "ray"
    remedy = "a cluster of Ray, which `ray start --head` starts, or room to start one here"

    def __init__(self, module: Any, engine: Engine, stack: contextlib.ExitStack) -> None:
        """Connects, unless this process is connected already.

        Args:
            module: The package.
            engine: The engine; without an address, Ray finds a cluster or starts one here.
            stack: Cancels what goes on, and ends the connection.
        """
        if not module.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            address = f"ray://{engine.address}" if engine.address else None
            module.init(address, logging_level=logging.ERROR, log_to_driver=False)
            stack.callback(module.shutdown)
        self._cancel_task = module.cancel
        # A unit whose worker was killed is sent again by its run, alone.
        self._remote = functools.cache(module.remote(max_retries=0))
        self._refs: dict[Future[Any], Any] = {}
        stack.callback(self._cancel)
        self.submit = self._submit
        self.workers = max(1, int(module.cluster_resources().get("CPU", 1)))

    def _submit(self, function: Any, *arguments: Any) -> Future[Any]:
        ref = self._remote(function).remote(*arguments)
        future: Future[Any] = ref.future()
        self._refs[future] = ref
        future.add_done_callback(lambda done: self._refs.pop(done, None))
        return future

    def _cancel(self) -> None:
        for ref in list(self._refs.values()):  # the cluster goes on without this process
            self._cancel_task(ref)
