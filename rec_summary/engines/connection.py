"""Connects to the engine that a user has named; an error says in time what is missing."""

from __future__ import annotations

import contextlib
import functools
import importlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from rec_summary.engines.dask import DaskPool
from rec_summary.engines.engine import Engine, EngineError, first_line, limit_secs
from rec_summary.engines.loky import LokyPool
from rec_summary.engines.pool import Pool
from rec_summary.engines.ray import RayPool
from rec_summary.engines.spark import SparkPool
from rec_summary.engines.worker import call_of, packed
from rec_summary.errors import RecSummaryError, three_part, verbatim

_POOLS: Final[dict[str, Any]] = {"dask": DaskPool, "ray": RayPool, "spark": SparkPool}


def connected(engine: Engine, units: int, stack: contextlib.ExitStack) -> Pool:
    """Returns the pool of an engine, once one of its workers has answered an empty call.

    Args:
        engine: The engine; not `sequential`, which has no pool.
        units: How many units there are.
        stack: Ends the pool.

    Raises:
        EngineError: The engine is not installed, cannot be reached, or does not answer in time.
        WorkerError: No worker has this version of the package.
    """
    if not engine.is_cluster:
        return LokyPool(min(engine.workers, units), stack)
    kind = _POOLS[engine.name]
    try:
        module = importlib.import_module(kind.package)
    except ImportError as error:
        expected = f"one that is installed: pip install 'rec_summary[{engine.name}]'"
        received = verbatim(f"{engine}: {error}")
        raise EngineError(three_part("the engine", received, expected)) from error
    try:
        # A cluster on this machine starts in this thread: Ray's processes end with their thread.
        connect = functools.partial(kind, module, engine)
        pool = _in_time(engine.address, connect, stack) if engine.address else connect(stack)
        pool.submit(*call_of(packed(None), [])).result(limit_secs())
    except RecSummaryError:
        raise
    except Exception as error:
        reason = first_line(error) or f"no answer in {limit_secs():.0f} seconds"
        received = verbatim(f"{engine}: {type(error).__name__}: {reason}")
        raise EngineError(three_part("the engine", received, kind.remedy)) from error
    if engine.jobs > 0:
        pool.workers = min(pool.workers, engine.jobs)
    return pool


def _in_time(
    address: str, connect: Callable[[contextlib.ExitStack], Pool], stack: contextlib.ExitStack
) -> Pool:
    """Connects in time; an attempt that takes longer is left to a thread, which undoes it."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), limit_secs()).close()
    own = contextlib.ExitStack()
    attempt: Future[Pool] = Future()

    def work() -> None:
        try:
            attempt.set_result(connect(own))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            attempt.set_exception(error)

    threading.Thread(target=work, name="rec_summary-connect", daemon=True).start()
    try:
        pool = attempt.result(limit_secs())
    except BaseException:
        attempt.add_done_callback(lambda _: own.close())  # now, or when it ends
        raise
    stack.push(own)
    return pool
