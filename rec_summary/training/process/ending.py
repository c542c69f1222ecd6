"""The process that trains, and how its training ended: for the lineage, also without MindSpore."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.format.names import this_host
from rec_summary.training import loaded

_REASON_CHARS: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_AFTER_TRACEBACK: Final = "- Dataset Pipeline Error Message:"


def this_environment() -> RunState:
    """Returns this process: rank, number of ranks, host, process id, and versions.

    It is rank 0 of 1 unless MindSpore's communication is initialised.
    """
    rank, rank_size = loaded.rank_and_size()
    try:
        own_version = version("rec_summary")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        own_version = "unknown"
    return RunState(
        rank=rank,
        rank_size=rank_size,
        host=this_host(),
        pid=os.getpid(),
        mindspore_version=getattr(loaded.mindspore(), "__version__", None),
        rec_summary_version=own_version,
    )


def ended_by(error: BaseException, signal_name: str | None = None) -> tuple[RunState.Status, str]:
    """Returns how an exception ends a training, and the reason.

    Args:
        error: The exception.
        signal_name: The signal that has arrived, or None.
    """
    if isinstance(error, KeyboardInterrupt):
        return RunState.STOPPED, signal_name or "KeyboardInterrupt"
    if isinstance(error, SystemExit):
        return RunState.STOPPED, signal_name or f"SystemExit({error.code})"
    return RunState.FAILED, reason_of(error)


def reason_of(error: BaseException) -> str:
    """Returns the class of an error and the line of its message that says what happened.

    MindSpore's messages may begin with headings, such as `- Kernel select failed:`, between rulers.
    An exception of the user's function in a data set is below the frames of its traceback.
    """
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # an exception of the user may not have a text
        message = ""
    traceback, in_dataset, _ = message.partition(_AFTER_TRACEBACK)
    _, has_frames, last = traceback.rpartition(_TRACEBACK)
    if in_dataset and has_frames:
        for line in last.splitlines():  # frames are indented, and a message may have more lines
            if line[:1].strip():
                return line[:_REASON_CHARS]
    lines = [line.strip() for line in message.splitlines() if line.strip().strip("- ")]
    below = [line for line in lines if not line.startswith("- ")]
    text = ": ".join([type(error).__name__, *(below or lines)[:1]])
    return text[:_REASON_CHARS]
