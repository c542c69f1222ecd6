"""Retention: a budget of bytes within which the whole history of a run stays.

A file is full at a small part of the budget. When the files of a rank come near the budget, old
ones are compacted by another process, `python -m rec_summary.compaction`: it shares no lock of
Python with the training, runs at the lowest priority, and takes a small share of a core.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rec_summary.checks import check_int
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import Kind, RecordName, parse_name, replaced_name

logger = logging.getLogger("rec_summary")

LEAST_BYTES: Final = 1 << 20
MOST_FILES: Final = 40
"""More files of a writer are joined, whatever their size."""
MOST_SMALL: Final = 16
"""More files that are small are joined: each start leaves one."""
_PARTS: Final = 32  # a budget has room for so many full files
_RESERVE: Final = 4  # full files: what is written while others are compacted
_LINEAGE_SHARE: Final = 4  # lineage takes at most one part in so many of the budget
HURRY: Final = b"h"
"""Asks the process to work without rests."""
ENDED: Final = b"e"
"""Says that the writer has ended, as the end of the input does."""
_ROOM_SECS: Final = 60.0
_REST_SECS: Final = 10.0  # after no room was found
_JOIN_SECS: Final = 5.0
_DISK_SHARE: Final = 8  # one part in so many of a disk stays free
_POLL_SECS: Final = 0.02
_END_SECS: Final = 5.0
_SHARE: Final = 0.01  # of a core
_ROOT: Final = str(Path(__file__).parents[3])  # where the package is
_LONGEST_ERROR: Final = 2000


def segment_bytes(total_bytes: int) -> int:
    """Returns the size at which a file is full, for a budget."""
    return total_bytes // _PARTS


def small_bytes(total_bytes: int) -> int:
    """Returns the size up to which a file is small, for a budget."""
    return segment_bytes(total_bytes) // 8


def record_bytes(total_bytes: int) -> int:
    """Returns the size of the largest record that is written, for a budget."""
    return total_bytes // 2


def begin_bytes(total_bytes: int) -> int:
    """Returns the size of all files above which compaction begins."""
    return total_bytes - _RESERVE * segment_bytes(total_bytes)


@dataclass(frozen=True)
class Retention:
    """How long records are kept: all of them, as far as a budget of bytes allows.

    Within the budget, the newest part of a run is complete, and older parts become coarser with
    their age. Of each bucket of steps, a scalar keeps its first, minimum, maximum and last point,
    NaN and infinities included. Histograms, images and tensors keep every n-th value. Lineage,
    graphs, landscapes and evaluations keep all. `docs/operations.md` explains it.

    Attributes:
        total_bytes: The most bytes of the record files of each rank in the record directory,
            those of earlier starts included; at least 1 MiB. A file that is being written may
            exceed it by one part in 32. Files are never larger than that, unless one record is.

    Raises:
        TypeError, ValueError: The budget is not an int, or too small.
    """

    total_bytes: int

    def __post_init__(self) -> None:
        check_int("retention.total_bytes", self.total_bytes, LEAST_BYTES)

    def check(self, directory: str) -> None:
        """Checks that the lineage that is in a directory leaves room for values.

        Raises:
            ValueError: It does not; the message has the least budget.
        """
        ranks: dict[int, int] = {}
        for name, size in _sizes(directory):
            if name.kind is Kind.LINEAGE:
                ranks[name.rank] = ranks.get(name.rank, 0) + size
        least = _LINEAGE_SHARE * max(ranks.values(), default=0)
        if self.total_bytes < least:
            received = verbatim(f"{self.total_bytes} for {directory}, which has records")
            expected = (
                f"at least {least:,}: the lineage there stays, and may fill a quarter of a budget"
            )
            raise ValueError(three_part("retention.total_bytes", received, expected))


def rank_bytes(directory: str, rank: int) -> int:
    """Returns the size of all record files of a rank, those included that were just replaced."""
    names = None
    while True:
        sizes = dict(_sizes(directory, rank, replaced=True))
        if sizes.keys() == names:
            return sum(sizes.values())
        names = sizes.keys()  # a file that is renamed at this moment may be missed, so look again


def _sizes(
    directory: str, rank: int | None = None, *, replaced: bool = False
) -> Iterator[tuple[RecordName, int]]:
    """Yields names and sizes of the record files of a rank, or of all ranks (None).

    Those that were just replaced are left out, unless `replaced` is set.
    """
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            name = parse_name(entry.name) or (replaced_name(entry.name) if replaced else None)
            if name is not None and rank in (None, name.rank):
                with contextlib.suppress(OSError):
                    yield name, entry.stat(follow_symlinks=False).st_size


class Compactor:
    """Starts the process that compacts the files of a rank, when there is need of it.

    Not thread-safe: the writer's thread uses it.

    Attributes:
        total_bytes: The budget, or less where the disk has no room for it.
    """

    def __init__(
        self, directory: str, rank: int, total_bytes: int, lock: str | None, troubles: Troubles
    ) -> None:
        """Prepares; no process is started.

        Args:
            directory: The record directory.
            rank: The rank of the writer.
            total_bytes: The budget.
            lock: The kind of lock (see `records.locks`).
            troubles: Gets every failure.
        """
        self._directory, self._rank, self._budget = directory, rank, total_bytes
        self._lock = lock or ""
        self._troubles = troubles
        self._process: subprocess.Popen[bytes] | None = None
        self._rests_until = -math.inf  # there was no room, and nothing helped
        self.total_bytes = total_bytes
        self._fit_disk()

    def begun(self, own: Collection[int], nbytes: int = 0) -> None:
        """Starts the process if the files need it; waits while there is no room.

        Where nothing helps, no room is waited for during the next seconds: the writer's queue
        would be full, and the training wait.

        Args:
            own: The stamps of the files that the writer has written.
            nbytes: The size of the next record: there has to be room for it, and for a full file.
        """
        self._fit_disk()
        if not self._is_running() and self._is_due():
            self._start(own, nbytes)
        if self._has_room(nbytes):
            return
        if time.monotonic() >= self._rests_until:
            if self._wait_for_room(own, nbytes):
                return
            self._rests_until = time.monotonic() + _REST_SECS
        text = f"the files of rank {self._rank} in {self._directory} exceed their budget"
        self._troubles.report("retention", text)

    def _wait_for_room(self, own: Collection[int], nbytes: int) -> bool:
        """Returns whether there is room in the end."""
        deadline = time.monotonic() + _ROOM_SECS
        least = math.inf  # the size of the files when a process was last started
        while time.monotonic() < deadline:
            if not self._is_running():
                present = self._nbytes()
                if present >= least:  # nothing helps
                    return False
                least = present
                self._start(own, nbytes)
            self._send(HURRY)
            time.sleep(_POLL_SECS)
            if self._has_room(nbytes):
                return True
        return False

    def takes(self, nbytes: int) -> bool:
        """Whether a record of a size is small enough; a disk that was full may have room again."""
        if nbytes > record_bytes(self.total_bytes):
            self._fit_disk()
        return nbytes <= record_bytes(self.total_bytes)

    def close(self) -> None:
        """Ends the process: a later one goes on where it stopped.

        Trainings that are shorter than that would never join their files, so one of them waits.
        """
        if self._is_running() and self._are_many():
            self._send(HURRY)
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert self._process is not None
                self._process.wait(_JOIN_SECS)
            self._is_running()  # a failure is reported
        self._end()

    def _end(self) -> str:
        """Ends the process; returns what it says about a failure."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with process:  # at its end, the pipes are closed and the process is waited for
            try:
                # The input alone may not end: processes that the training forked have it.
                _, errors = process.communicate(ENDED, _END_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                return ""
        return errors.decode("utf-8", "replace").strip()

    def _has_room(self, nbytes: int) -> bool:
        # For a full file; another one, which may be a little larger, is made meanwhile.
        full = segment_bytes(self.total_bytes)
        return self._nbytes() <= self.total_bytes - max(full, nbytes) - full // 4

    def _fit_disk(self) -> None:
        """Makes the budget smaller where the disk has no room for it: nothing helps a full disk."""
        path = Path(self._directory).absolute()
        while not path.exists():  # it is made with the first record
            path = path.parent
        try:
            disk = os.statvfs(path)
        except OSError:
            return
        room = self._nbytes() + disk.f_bavail * disk.f_frsize
        fitting = max(room - room // _DISK_SHARE, LEAST_BYTES)
        if fitting < self._budget <= self.total_bytes and disk.f_blocks:
            logger.warning(
                "rec_summary: the disk of %s has room for %s bytes of the budget of %s: older "
                "records become coarser earlier",
                self._directory,
                f"{fitting:,}",
                f"{self._budget:,}",
            )
        # Some file systems do not know their size.
        self.total_bytes = min(fitting, self._budget) if disk.f_blocks else self._budget

    def _nbytes(self) -> int:
        return rank_bytes(self._directory, self._rank)

    def _is_due(self) -> bool:
        nbytes = sum(size for _, size in self._files())
        return nbytes > begin_bytes(self.total_bytes) or self._are_many()

    def _are_many(self) -> bool:
        sizes = [size for name, size in self._files() if name.kind is Kind.SUMMARY]
        small = sum(size <= small_bytes(self.total_bytes) for size in sizes)
        return len(sizes) > MOST_FILES or small > MOST_SMALL + 1  # one is being written

    def _files(self) -> list[tuple[RecordName, int]]:
        return list(_sizes(self._directory, self._rank))

    def _start(self, own: Collection[int], nbytes: int) -> None:
        stamps = {name.stamp for name, _ in self._files() if name.stamp in own}
        total = self.total_bytes - nbytes  # a large record needs more room than is left otherwise
        words = [self._directory, self._rank, total, _SHARE, self._lock, *sorted(stamps)]
        command = [sys.executable or "python3", "-m", "rec_summary.compaction", *map(str, words)]
        path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        try:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the training
            )
        except OSError as error:
            self._troubles.report("retention", error)

    def _is_running(self) -> bool:
        process = self._process
        if process is None or process.poll() is None:
            return process is not None
        errors = self._end()
        if process.returncode:
            last = errors.splitlines()[-1][:_LONGEST_ERROR] if errors else ""
            self._troubles.report(
                "retention", f"compaction ended with exit code {process.returncode}: {last}"
            )
        return False

    def _send(self, what: bytes) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(process.stdin.fileno(), what)
