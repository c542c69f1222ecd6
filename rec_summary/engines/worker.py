"""What runs on the workers of an engine: units that were sent together, and checks before them."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from rec_summary.engines.engine import WorkerError
from rec_summary.errors import RecSummaryError, three_part, verbatim

_PARENT_POLL_SECS: Final = 0.5


def do_units(
    work: Callable[[Any], Any], ahead: Callable[[list[Any]], Iterable[Any]], units: list[Any]
) -> list[tuple[Any, Exception | None]]:
    """Returns the result and the error of each unit; the arguments are as in `run_units`."""
    outcomes: list[tuple[Any, Exception | None]] = []
    for unit in ahead(units):
        try:
            outcomes.append((work(unit), None))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            outcomes.append((None, _portable(error)))
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


def need_shared(paths: Sequence[tuple[str, str]], work: object) -> None:
    """Makes sure that this worker has paths of the caller.

    Args:
        paths: What is at each path, for messages, and the path.
        work: The work to come. It can be loaded where this function is called.

    Raises:
        WorkerError: A path is missing.
    """
    for what, path in paths:
        if not os.path.exists(path):
            received = verbatim(f"{path}, which is not on {socket.gethostname()}")
            expected = "a path on a file system that all workers share, or a URL"
            raise WorkerError(three_part(what, received, expected))


def begin_process(threshold: tuple[int, int, int]) -> None:
    """Sets up a worker process on this machine.

    Args:
        threshold: Of the search for cycles, as its parent has it: many runs have many objects.
    """
    gc.set_threshold(*threshold)
    end_with_parent()


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
