"""Workers: processes on this machine, by joblib's loky, or those of a Dask cluster."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from rec_summary.engines.engine import Engine, EngineError, WorkerError, first_line, limit_secs
from rec_summary.engines.worker import begin_process, need_shared
from rec_summary.errors import RecSummaryError, three_part, verbatim

_SAFE_PATH: Final = "PYTHONSAFEPATH"  # Python 3.10 does not know it
_STARTING: Final = threading.Lock()  # held while the environment is another
_RETRIES: Final = 2  # of a block whose worker could not load or return it


class Pool(NamedTuple):
    """Workers that have been reached.

    Attributes:
        submit: Takes a function and its arguments.
        workers: How many calls they process at a time.
    """

    submit: Callable[..., Future[Any]]
    workers: int


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Keeps processes that are started meanwhile from importing from the working directory."""
    with _STARTING:
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        try:
            yield
        finally:
            del os.environ[_SAFE_PATH]
            if before is not None:
                os.environ[_SAFE_PATH] = before


@contextlib.contextmanager
def loky_pool(workers: int) -> Iterator[Pool]:
    """Prepares processes, which start with the first call. One that is killed breaks the pool."""
    loky = importlib.import_module("joblib.externals.loky")
    with _safe_path():  # of what it and Python start beside the workers
        for name in ("multiprocessing", f"{loky.__name__}.backend"):
            importlib.import_module(f"{name}.resource_tracker").ensure_running()
    executor = loky.ProcessPoolExecutor(
        workers,
        initializer=begin_process,
        initargs=(gc.get_threshold(),),
        env={_SAFE_PATH: "1"},
    )
    try:
        yield Pool(executor.submit, workers)
    finally:
        executor.shutdown(wait=True, kill_workers=True)


@contextlib.contextmanager
def dask_pool(engine: Engine, shared: Sequence[tuple[str, str]], work: object) -> Iterator[Pool]:
    """Connects to a Dask cluster, which moves the calls of a lost worker to others by itself.

    Args:
        engine: The engine.
        shared: As in `run_units`.
        work: What the workers will do.

    Raises:
        EngineError: Dask is not installed, cannot be reached, or does not answer in time.
        WorkerError: A worker has another version, or lacks a path or a module.
    """
    with contextlib.ExitStack() as stack:
        try:
            client = _connected(engine, stack)
            _check_versions(engine, client)
            try:
                client.run(need_shared, shared, work)
            except RecSummaryError:
                raise
            except Exception as error:  # of loading the work: Dask sends it as a text
                raise _worker_error(engine, first_line(error)) from error
        except RecSummaryError:
            raise
        except ImportError as error:
            expected = "one that is installed: pip install 'rec_summary[dask]'"
            raise EngineError(
                three_part("the engine", verbatim(f"{engine}: {error}"), expected)
            ) from error
        except Exception as error:
            reason = first_line(error) or f"no answer in {limit_secs():.0f} seconds"
            received = verbatim(f"{engine}: {type(error).__name__}: {reason}")
            expected = (
                "a scheduler with workers: `dask scheduler` and `dask worker HOST:PORT` start them"
            )
            raise EngineError(three_part("the engine", received, expected)) from error
        workers = sum(client.nthreads().values())
        executor = client.get_executor(pure=False, retries=_RETRIES)
        yield Pool(executor.submit, min(workers, engine.jobs) if engine.jobs > 0 else workers)


def _connected(engine: Engine, stack: contextlib.ExitStack) -> Any:
    """Returns a client of a cluster with workers; the stack closes it."""
    distributed = importlib.import_module("distributed")
    if engine.address:
        host, _, port = engine.address.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), limit_secs()) as scheduler:
            scheduler.recv(
                1
            )  # a scheduler begins; a client waits without end for one that does not
    address = f"tcp://{engine.address}" if engine.address else None
    # Without an address, it may start workers here.
    with contextlib.nullcontext() if address else _safe_path():
        client = distributed.Client(address, timeout=limit_secs(), set_as_default=False)
    stack.callback(client.close)
    client.wait_for_workers(1, timeout=limit_secs())
    return client


def _check_versions(engine: Engine, client: Any) -> None:
    for address, worker in client.get_versions(packages=["rec_summary"])["workers"].items():
        package = worker["packages"].get("rec_summary")
        python = worker["host"].get("python", "")
        if (package, python.split(".")[:2]) != (_version(), [*map(str, sys.version_info[:2])]):
            raise _worker_error(engine, f"{address}: rec_summary {package}, Python {python}")


def _worker_error(engine: Engine, received: str) -> WorkerError:
    """Returns the error of a worker that cannot do the work of this process."""
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    expected = f"rec_summary {_version()}, {python} and the same modules as here, on each worker"
    return WorkerError(three_part(f"a worker of {engine}", verbatim(received), expected))


def _version() -> str:
    return importlib.metadata.version("rec_summary")
