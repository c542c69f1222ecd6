"""Engines by their names, and the errors of all of them."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from dataclasses import dataclass
from typing import Final

from rec_summary.errors import RecSummaryError, three_part

_NAMED: Final = "loky, sequential or dask://HOST:PORT"
_LIMIT: Final = "REC_SUMMARY_ENGINE_SECS"
_LIMIT_SECS: Final = 30.0


class WorkerError(RecSummaryError):
    """Worker processes were killed, or cannot do the work."""


class EngineError(RecSummaryError):
    """An engine is not installed, cannot be reached, or has been lost."""


@dataclass(frozen=True)
class Engine:
    """Where units of work run.

    Attributes:
        name: `loky`, `sequential` (this process) or `dask`.
        address: The host and port of a Dask scheduler; empty for the one of Dask's configuration,
            or workers that Dask starts on this machine.
        jobs: How many units run at a time; -1 for as many as the engine has room for.
    """

    name: str = "loky"
    address: str = ""
    jobs: int = -1

    @property
    def is_cluster(self) -> bool:
        """Whether its workers may be on other machines."""
        return self.name == "dask"

    @property
    def workers(self) -> int:
        """The number of processes on this machine."""
        return self.jobs if self.jobs > 0 else int(importlib.import_module("joblib").cpu_count())

    def __str__(self) -> str:
        """Returns the engine as it is named."""
        return f"{self.name}://{self.address}" if self.address else self.name


HERE: Final = Engine("sequential")
"""This process."""


def parse_engine(text: str, jobs: int = -1) -> Engine:
    """Returns the engine of a text such as `loky`, `sequential` or `dask://host:port`.

    Raises:
        ValueError: The text names no engine, or `jobs` is no number of workers.
    """
    name, mark, address = text.partition("://")
    host, _, port = address.rpartition(":")
    is_bad = bool(mark) and (not host or not port.isdecimal() or "/" in address)
    if is_bad or name not in (("dask",) if mark else ("dask", "loky", "sequential")):
        raise ValueError(three_part("the engine", text, _NAMED))
    if isinstance(jobs, bool) or not isinstance(jobs, int) or (jobs < 1 and jobs != -1):
        raise ValueError(three_part("jobs", jobs, "an int of at least 1"))
    return Engine(name, address, jobs)


def limit_secs() -> float:
    """Returns how long a Dask cluster may take to answer, in seconds.

    Raises:
        EngineError: The environment variable with this number has none.
    """
    text = os.environ.get(_LIMIT) or str(_LIMIT_SECS)
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= threading.TIMEOUT_MAX:
            return float(text)
    raise EngineError(three_part(_LIMIT, text, "a number of seconds above 0"))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error, for a message."""
    return str(error).strip().partition("\n")[0]
