"""Checkpoints in a folder of a record directory: which there are, and which one was judged."""

from __future__ import annotations

import bisect
import contextlib
import math
import os
import re
import stat
from collections.abc import Sequence
from typing import Final

from rec_summary.records.remote import Url, list_tree

SAVED: Final = "checkpoints"
"""The folder of the checkpoints that a user asks for."""

GOOD: Final = "latest-good"
"""A link in that folder to the newest checkpoint for which the gate has held."""

_TEMPORARY: Final = f".{GOOD}.tmp"
_CLOCKS_SECS: Final = 5.0  # the clocks of ranks and of their file system differ by less
_OF_RANK: Final = re.compile(r"rank_(\d+)_step_(\d{1,18})\.ckpt", re.ASCII)


def name_of(rank: int, step: int) -> str:
    """Returns the name of the checkpoint that a rank has saved on request."""
    return f"rank_{rank}_step_{step}.ckpt"


def is_link_out(directory: str, folder: str) -> bool:
    """Whether a folder is a link out of its record directory, which a reader does not follow."""
    return not isinstance(directory, Url) and os.path.islink(os.path.join(directory, folder))


def list_checkpoints(
    directory: str, folder: str, *, follow: bool = False
) -> list[tuple[float, str]]:
    """Returns when each checkpoint was written, in seconds since the epoch, and its path or URL.

    Links are passed over, as are the hidden files of checkpoints that are not complete.

    Args:
        directory: The record directory, or its URL.
        folder: The folder in it.
        follow: Whether the folder itself may be a link.

    Raises:
        SourceError: The URL cannot be listed.
    """
    found = list[tuple[float, str]]()
    if isinstance(directory, Url):
        found = [(file.modified, file.url) for file in list_tree(directory.child(folder))]
    elif follow or not is_link_out(directory, folder):
        path = os.path.join(directory, folder)
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # training removes old ones
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        found.append((status.st_mtime_ns / 1e9, entry.path))
    names = ((each, os.path.basename(each[1])) for each in found)
    return [each for each, name in names if name.endswith(".ckpt") and not name.startswith(".")]


def newest_between(
    checkpoints: list[tuple[float, str]],
    steps: Sequence[int],
    times: Sequence[float],
    starts: Sequence[float],
) -> str | None:
    """Returns the newest checkpoint from the first to the last of some reports; None without one.

    Its step is that in its name, as of `name_of`; otherwise its time counts. Of several ranks, that
    of rank 0 counts. What a restart supersedes does not count: it was written before a report
    of an earlier step, or behind the last report of a process that has ended.

    Args:
        checkpoints: As of `list_checkpoints`.
        steps: The steps of the reports that no restart supersedes, ascending.
        times: When they were recorded, in seconds since the epoch.
        starts: When a process began to train.
    """
    by_step, by_time = list[tuple[int, float, str]](), list[tuple[float, str]]()
    for written, path in checkpoints:
        match = _OF_RANK.fullmatch(os.path.basename(path))
        at = bisect.bisect_left(times, written)  # the first report that is not before it
        until = times[at] if at < len(times) else math.inf
        # The store of a URL has whole seconds.
        is_behind = any(written < math.floor(each) and each <= until for each in starts)
        last = steps[min(bisect.bisect_left(times, written + _CLOCKS_SECS), len(steps) - 1)]
        if is_behind:
            last = steps[at - 1] if at else -1
        if match is None:
            if times[0] <= written <= times[-1] and not is_behind:
                by_time.append((written, path))
        elif int(match[1]) == 0 and steps[0] <= int(match[2]) <= last:
            by_step.append((int(match[2]), written, path))
    # A copy has new times: among steps, the newest of them says nothing.
    newest = [each[1:] for each in sorted(by_step)[-1:]] + sorted(by_time)[-1:]
    return max(newest)[1] if newest else None


def link_good(path: str) -> None:
    """Lets the link `latest-good` beside a checkpoint point to it; at any moment, it points to one.

    Raises:
        OSError: The file system has no links, or something else than a link has this name.
    """
    folder, name = os.path.split(path)
    link, temporary = os.path.join(folder, GOOD), os.path.join(folder, _TEMPORARY)
    if os.path.islink(link) and os.readlink(link) == name:
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(name, temporary)
    os.replace(temporary, link)
