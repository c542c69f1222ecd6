"""What runs on the workers of an engine: a block of units, if the versions are the same."""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.metadata
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from rec_summary.errors import RecSummaryError

_PARENT_POLL_SECS: Final = 0.5


@functools.cache
def version() -> str:
    """Returns the version of this package, which workers must have as well."""
    return importlib.metadata.version("rec_summary")


def packed(
    work: Callable[[Any], Any] | None, ahead: Callable[[list[Any]], Iterable[Any]] = iter
) -> bytes:
    """Returns the pickled function that processes units, for `call_of`; see `run_units`."""
    cloudpickle = importlib.import_module("cloudpickle")  # late: it loads a lot
    content: bytes = cloudpickle.dumps((work, ahead, gc.get_threshold()))
    return content


def call_of(work: bytes, units: list[Any]) -> tuple[Any, ...]:
    """Returns the function and the arguments that a worker gets to do units together.

    The function returns three things: its host; why the worker refuses the units, empty if it does
    not; and of each unit the result and the error.

    Args:
        work: What `packed` returned.
        units: The units.
    """
    return _begin, version(), pickle.dumps((_run_block, work, units))


def _begin(version: str, payload: bytes) -> tuple[str, str, Any]:
    """Begins work; says who refuses it and why, if this worker has another version of the package.

    The function itself is sent, not its name, so it needs nothing of this package.
    """
    import importlib.metadata
    import pickle
    import socket
    import time

    where = socket.gethostname()
    try:
        installed = importlib.metadata.version("rec_summary")
    except importlib.metadata.PackageNotFoundError:
        installed = "is not installed"
    if installed != version:
        time.sleep(1)  # the units are for the others
        return where, f"rec_summary {installed}", None
    try:
        function, work, units = pickle.loads(payload)
        work = pickle.loads(work)
    except Exception as error:  # noqa: BLE001 - a module may raise anything when it is imported
        time.sleep(1)
        return where, f"{type(error).__name__}: {error}", None
    return where, "", function(work, units)


_begin.__module__ = "__main__"  # so that every pickler sends it whole


def _run_block(
    work: tuple[Any, Any, tuple[int, int, int]], units: list[Any]
) -> list[tuple[Any, Exception | None]]:
    """Processes units; the error of a unit is its outcome."""
    do, ahead, threshold = work
    outcomes: list[tuple[Any, Exception | None]] = []
    # A worker searches for cycles as rarely as the sender: thousands of runs have many objects.
    before = gc.get_threshold()
    gc.set_threshold(*threshold)
    try:
        for unit in ahead(units):
            try:
                outcomes.append((do(unit), None))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                outcomes.append((None, _portable(error)))
    finally:
        gc.set_threshold(*before)
    return outcomes


def _portable(error: Exception) -> Exception:
    """Returns an error that can be sent: of the same class, if possible."""
    try:
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    except Exception:  # noqa: BLE001 - not every class can be pickled
        pass
    name = "" if isinstance(error, RecSummaryError) else f"{type(error).__name__}: "
    return RecSummaryError(f"{name}{error}")


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
            time.sleep(_PARENT_POLL_SECS)
        os._exit(1)

    threading.Thread(target=watch, name="rec_summary-parent", daemon=True).start()
