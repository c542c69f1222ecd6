"""Workers of a Dask cluster, by its client."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

from rec_summary.engines.engine import Engine, WorkerError, limit_secs
from rec_summary.engines.pool import Pool
from rec_summary.engines.worker import version
from rec_summary.errors import three_part, verbatim

logger = logging.getLogger("rec_summary")


class DaskPool(Pool):
    """The workers of a scheduler that have this version of the package and of Python."""

    package = "distributed"
    remedy = "a scheduler with workers: `dask scheduler` and `dask worker HOST:PORT` start them"
    tries = 2  # of up to four workers each: the scheduler itself retries a killed task

    def __init__(self, module: Any, engine: Engine, stack: contextlib.ExitStack) -> None:
        """Connects.

        Args:
            module: The package.
            engine: The engine; without an address, Dask starts workers on this machine.
            stack: Ends the connection.

        Raises:
            WorkerError: No worker has this version.
        """
        address = f"tcp://{engine.address}" if engine.address else None
        client = module.Client(address, timeout=limit_secs(), set_as_default=False)
        stack.callback(client.close)
        client.wait_for_workers(1, timeout=limit_secs())
        self._client, self._engine = client, engine
        self._choose()
        stack.callback(lambda: self._pool.shutdown(wait=False))

    def _choose(self) -> None:
        """Takes the workers that are there now and can do the units."""
        client, engine = self._client, self._engine
        workers = client.get_versions(packages=["rec_summary"])["workers"]
        local = (version(), sys.version_info[:2])
        alike: list[Any] = []
        other: list[Any] = []
        for address, worker in workers.items():
            versions = worker["packages"].get("rec_summary"), worker["host"].get("python", "")
            python = tuple(int(part) for part in versions[1].split(".")[:2])
            (alike if (versions[0], python) == local else other).append((address, versions))
        for address, (package, python) in other:
            received = verbatim(f"{address}: rec_summary {package}, Python {python}")
            expected = f"rec_summary {local[0]}, Python {sys.version_info[0]}.{sys.version_info[1]}"
            message = three_part(f"a worker of {engine}", received, expected)
            if not alike:
                raise WorkerError(message)
            logger.warning("%s It gets no units.", message)
        chosen = {"workers": [address for address, _ in alike]} if other else {}
        self._chosen = set(chosen.get("workers", ()))
        self._pool = client.get_executor(pure=False, **chosen)
        self.submit = self._pool.submit
        self.workers = sum(client.nthreads(**chosen).values())

    def is_alive(self) -> bool:
        """Whether there are workers, and one of those that were chosen."""
        workers = self._live_workers()
        return bool(workers) and not (self._chosen and self._chosen.isdisjoint(workers))

    def _live_workers(self) -> Any:
        return self._client.nthreads() if self._client.status == "running" else {}

    def renew(self) -> bool:
        """Chooses other workers, because those that were chosen are gone."""
        before = self._pool
        with contextlib.suppress(WorkerError, OSError):  # others may come
            if self._live_workers():
                self._choose()
                before.shutdown(wait=False)
        return before is not self._pool
