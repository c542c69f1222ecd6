"""The process that a writer starts: it compacts the files of one rank, slowly.

Its arguments are the directory, the rank, the budget in bytes, the share of a core that it may
take, the kind of lock, and the stamps of the writer's files. A byte on its standard input makes it
hurry: the budget has no room left. An `e`, or the end of the input, says that the writer has
ended; the process ends as well. It writes a byte after each portion of work: so the writer knows
that it goes on.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Final

from rec_summary.compaction import commit
from rec_summary.compaction.directory import keep_within
from rec_summary.records.writing.retention import DONE, ENDED

_LOWEST_PRIORITY: Final = 19
_GRACE_SECS: Final = 60.0  # for readers that have a list from before


class _WriterEnded(Exception):
    """The writer has ended."""


class _Pacer:
    """Rests after each portion of work, so that the process takes a share of a core on average."""

    def __init__(self, share: float, descriptor: int) -> None:
        self._share = share
        self._descriptor = descriptor
        self._began = time.monotonic()
        self._hurries = False

    def rest(self) -> None:
        """Says that it goes on, and rests as long as the work so far makes necessary."""
        with contextlib.suppress(OSError):  # the pipe is full, or the writer has ended
            os.write(sys.stdout.fileno(), DONE)
        due = self._began + time.process_time() / self._share
        self.wait(due - time.monotonic())

    def wait(self, seconds: float) -> None:
        """Waits, unless the writer is in a hurry.

        Raises:
            _WriterEnded: The writer has ended.
        """
        deadline = time.monotonic() + (0.0 if self._hurries else seconds)
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            readable, _, _ = select.select([self._descriptor], [], [], left)
            if not readable:
                return
            received = os.read(self._descriptor, 64)
            if not received or ENDED in received:
                raise _WriterEnded
            self._hurries, deadline = True, 0.0


def main(arguments: Sequence[str]) -> int:
    """Compacts; returns the exit code."""
    directory, rank, total, share, lock, *own = arguments
    with contextlib.suppress(OSError):
        # Absolute: also below a training with `nice -n -5`.
        os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)
    os.set_blocking(sys.stdout.fileno(), False)
    pacer = _Pacer(float(share), sys.stdin.fileno())
    kind = lock or None
    try:
        with contextlib.suppress(_WriterEnded):
            done = keep_within(
                directory,
                int(rank),
                int(total),
                own=set(map(int, own)),
                lock=kind,
                pace=pacer.rest,
            )
            if done:
                pacer.wait(_GRACE_SECS)
        with contextlib.suppress(TimeoutError), commit.locked(directory, int(rank), kind):
            commit.sweep(directory, int(rank))
    except OSError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
