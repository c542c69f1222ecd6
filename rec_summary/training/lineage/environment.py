"""What process this is: rank, host, versions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import mindspore
from mindspore.communication import GlobalComm, get_group_size, get_rank

from rec_summary.records.format.names import this_host


@dataclass(frozen=True)
class Environment:
    """The process that records.

    Attributes:
        rank: Its rank among the processes that train together, from 0 on.
        rank_size: How many train together.
        host: The host's name.
        pid: The process's number.
        mindspore_version: MindSpore's version.
        rec_summary_version: This package's version.
    """

    rank: int
    rank_size: int
    host: str
    pid: int
    mindspore_version: str
    rec_summary_version: str


def this_environment() -> Environment:
    """Returns what this process is; rank 0 of 1 unless MindSpore's communication is up."""
    distributed = bool(GlobalComm.INITED)
    return Environment(
        rank=int(get_rank()) if distributed else 0,
        rank_size=int(get_group_size()) if distributed else 1,
        host=this_host(),
        pid=os.getpid(),
        mindspore_version=str(mindspore.__version__),
        rec_summary_version=_own_version(),
    )


def _own_version() -> str:
    try:
        return version("rec_summary")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        return "unknown"
