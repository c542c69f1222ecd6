"""The cursor of a run: how far its export has come, so that a later one only adds.

It lies beside the run's event file as `.rec_summary-export.json`, and is replaced as a
whole: with a temporary name first, then renamed. It is written after the event files, so
it never promises what is not there.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Final

from rec_summary.records.files import temporary_name, write_atomically
from rec_summary.tensorboard.event_files.logdir import LogDir

MOST_BYTES: Final = 1 << 27  # a hundred thousand series take a tenth of that
CURSOR_NAME: Final = ".rec_summary-export.json"
_FORMAT: Final = 1
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def load_cursor(logdir: LogDir, run: str) -> dict[str, Any] | None:
    """Returns what `save_cursor` was given; None if there is nothing that can be used.

    Raises:
        DestinationError: The run's directory cannot be read.
    """
    with logdir.opened(run) as directory:
        if directory is None:
            return None
        try:
            fd = os.open(CURSOR_NAME, _READ, dir_fd=directory)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            # Python takes the memory of what is asked for, not of what is there.
            data = file.read(min(os.fstat(fd).st_size, MOST_BYTES) + 1)
    if len(data) > MOST_BYTES:
        return None
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(state, dict) or state.pop("format", None) != _FORMAT:
        return None
    return state


def save_cursor(logdir: LogDir, run: str, state: dict[str, Any]) -> None:
    """Writes a run's cursor, all of it or nothing.

    Raises:
        DestinationError: It cannot be written.
    """
    data = json.dumps({"format": _FORMAT, **state}).encode("ascii")
    with (
        logdir.made(run) as directory,
        write_atomically(CURSOR_NAME, dir_fd=directory) as file,
    ):
        file.write(data)


def remove_cursor(logdir: LogDir, run: str) -> None:
    """Removes a run's cursor, if there is one.

    Raises:
        DestinationError: It cannot be removed.
    """
    with logdir.opened(run) as directory:
        for name in (CURSOR_NAME, temporary_name(CURSOR_NAME)):
            with contextlib.suppress(FileNotFoundError):
                if directory is not None:
                    os.unlink(name, dir_fd=directory)
