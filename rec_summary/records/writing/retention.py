"""Retention: a budget of bytes within which the whole history of a run stays.

A file is full at a small part of the budget. When the files of a rank come near the budget, old
ones are compacted by another process, `rec_summary.compaction`: it shares no lock of Python with
the training, runs at the lowest priority, and takes a small share of a core.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rec_summary.checks import check_int
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import Kind, RecordName, parse_name, replaced_name

logger = logging.getLogger("rec_summary")

LEAST_BYTES: Final = 1 << 20
MOST_FILES: Final = 64
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
DONE: Final = b"d"
"""Said by the process after each portion of work."""
_MOST_ANSWERS: Final = 1 << 16  # the size of a pipe
_DISK_SHARE: Final = 8  # one part in so many of a disk stays free
_POLL_SECS: Final = 0.02
_SHARE: Final = 0.01  # of a core
_ROOT: Final = str(Path(__file__).parents[3])  # where the package is
_PROGRAM: Final = """import sys
sys.path += {!a}
from rec_summary.compaction.__main__ import main
sys.exit(main(sys.argv[1:]))"""
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
    NaN and infinities included. Histograms, images and tensors keep the first value of buckets
    100 times as wide. Lineage, graphs, landscapes and evaluations keep all. `docs/operations.md`
    explains it.

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


def _is_elsewhere(path: str) -> bool:
    """Whether a place of modules exists, and is not the working directory."""
    try:
        return not os.path.samefile(path, os.curdir)
    except OSError:
        return False


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


@dataclass(frozen=True)
class CompactorSettings:
    """How a writer starts the process that compacts, and how long it waits for that.

    Attributes:
        python: The program that runs `rec_summary.compaction`.
        room_secs: How long a record waits for room. The queue drops records if it waits longer.
        silent_secs: How long it waits for a process that does not answer.
        hung_secs: After this time without an answer, the process is killed.
        rest_secs: How long no record waits after one has waited in vain.
        join_secs: How long a writer that ends waits until many files are joined.
        end_secs: How long a process may take to end.
        statvfs: Returns what is known of the file system of a path.
    """

    python: str = sys.executable or "python3"
    room_secs: float = 3.0
    silent_secs: float = 1.0
    hung_secs: float = 60.0
    rest_secs: float = 10.0
    join_secs: float = 5.0
    end_secs: float = 2.0
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs


class Compactor:
    """Starts the process that compacts the files of a rank, when there is need of it.

    Not thread-safe: the writer's thread uses it.

    Attributes:
        total_bytes: The budget, or less where the disk has no room for it.
    """

    def __init__(
        self,
        directory: str,
        rank: int,
        total_bytes: int,
        lock: str | None,
        troubles: Troubles,
        settings: CompactorSettings | None = None,
    ) -> None:
        """Prepares; no process is started.

        Args:
            directory: The record directory.
            rank: The rank of the writer.
            total_bytes: The budget.
            lock: The kind of lock (see `records.locks`).
            troubles: Gets every failure.
            settings: How the process is started; None for the defaults.
        """
        self._directory, self._rank, self._budget = directory, rank, total_bytes
        self._lock = lock or ""
        self._troubles = troubles
        self._settings = settings or CompactorSettings()
        self._process: subprocess.Popen[bytes] | None = None
        self._rests_until = -math.inf  # there was no room, and nothing helped
        self._asked = math.inf  # when the process was first asked to hurry, and has not answered
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
        settings, process = self._settings, self._process
        if process is not None and self._is_silent(settings.hung_secs):
            process.kill()
        is_due = self._nbytes() > begin_bytes(self.total_bytes) or self._are_many()
        if is_due and not self._is_running():
            self._start(own, nbytes)
        if self._has_room(nbytes):
            return
        rests = time.monotonic() < self._rests_until
        if not rests and self._wait_for_room(own, nbytes):
            return
        text = f"the files of rank {self._rank} in {self._directory} exceed their budget"
        if self._process is not None and self._is_silent(settings.silent_secs):
            text += f": their compaction, process {self._process.pid}, does not answer"
        elif not rests:
            self._rests_until = time.monotonic() + settings.rest_secs
        self._troubles.report("retention", text)

    def _wait_for_room(self, own: Collection[int], nbytes: int) -> bool:
        """Returns whether there is room in the end."""
        settings = self._settings
        deadline = time.monotonic() + settings.room_secs
        least = math.inf  # the size of the files when a process was last started
        while time.monotonic() < deadline and not self._is_silent(settings.silent_secs):
            if not self._is_running():
                present = self._nbytes()
                if present >= least:  # nothing helps
                    return False
                least = present
                self._start(own, nbytes)
            self._hurry()
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
        settings = self._settings
        joins = self._are_many() and not self._is_silent(settings.silent_secs)
        deadline = time.monotonic() + (settings.join_secs if joins else 0.0)
        while self._is_running() and time.monotonic() < deadline:
            self._hurry()
            time.sleep(_POLL_SECS)
        self._end(0.0 if self._is_silent(settings.silent_secs) else settings.end_secs)

    def _end(self, seconds: float) -> str:
        """Ends the process, if need be by force; returns what it says about a failure."""
        process, self._process, self._asked = self._process, None, math.inf
        if process is None:
            return ""
        try:
            # The input alone may not end: processes that the training forked have it.
            _, errors = process.communicate(ENDED, seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may wait for a disk
                process.communicate(timeout=self._settings.end_secs)
            return ""
        return errors.decode("utf-8", "replace").strip()

    def _is_silent(self, seconds: float) -> bool:
        """Whether the process was asked to hurry, and has done nothing since, for some seconds."""
        if self._process is not None and self._process.stdout is not None:
            with contextlib.suppress(BlockingIOError):
                if os.read(self._process.stdout.fileno(), _MOST_ANSWERS):
                    self._asked = math.inf
        return time.monotonic() - self._asked > seconds

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
            disk = self._settings.statvfs(path)
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

    def _are_many(self) -> bool:
        """Whether the files are to be joined, whatever their size in all."""
        names = _sizes(self._directory, self._rank)
        sizes = [size for name, size in names if name.kind is Kind.SUMMARY]
        small = sum(size <= small_bytes(self.total_bytes) for size in sizes)
        return len(sizes) > MOST_FILES or small > MOST_SMALL + 1  # one is being written

    def _start(self, own: Collection[int], nbytes: int) -> None:
        there = {name.stamp for name, _ in _sizes(self._directory, self._rank)}
        total = self.total_bytes - nbytes  # a large record needs more room than is left otherwise
        words = [self._directory, self._rank, total, _SHARE, self._lock, *sorted(there & set(own))]
        paths = [path for path in sys.path if isinstance(path, str) and _is_elsewhere(path)]
        paths.insert(0, _ROOT)
        # Python 3.10 has no -P; so, nothing comes before the standard library either.
        command = [self._settings.python, "-I", "-S", "-c", _PROGRAM.format(paths)]
        try:
            self._process = subprocess.Popen(
                [*command, *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the training
            )
        except OSError as error:
            self._troubles.report("retention", error)
            return
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)

    def _is_running(self) -> bool:
        process = self._process
        if process is None or process.poll() is None:
            return process is not None
        errors = self._end(self._settings.end_secs)
        if process.returncode:
            last = errors.splitlines()[-1][:_LONGEST_ERROR] if errors else ""
            self._troubles.report(
                "retention", f"compaction ended with exit code {process.returncode}: {last}"
            )
        return False

    def _hurry(self) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            self._asked = min(self._asked, time.monotonic())
            with contextlib.suppress(OSError):
                os.write(process.stdin.fileno(), HURRY)
