"""Writing the records of one rank of a run: a summary file, a lineage file, and rotation.

The names of new files are claimed: two writers never share a file.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rec_summary._pb import summary_pb2
from rec_summary.checks import check_choice, check_int_or_none, check_optional
from rec_summary.errors import three_part
from rec_summary.records.failures import Troubles
from rec_summary.records.files import make_directory, sync_directory
from rec_summary.records.format.bounds import MOST_BYTES, VARIABLE
from rec_summary.records.format.names import (
    DEFAULT_PREFIX,
    DEFAULT_SUFFIX,
    Kind,
    RecordName,
    parse_name,
    this_host,
)
from rec_summary.records.locks import LOCK_NAME, check_kind, file_lock
from rec_summary.records.writing.background import BLOCK_SECS
from rec_summary.records.writing.record import Record
from rec_summary.records.writing.retention import (
    Compactor,
    CompactorSettings,
    Retention,
    segment_bytes,
)
from rec_summary.records.writing.segment import SegmentWriter

FILE_VERSION: Final = "MindSpore.Event:1"
_LOCK_SECS: Final = 10.0
_FSYNC: Final = ("never", "close", "flush")
_BACK_PRESSURE: Final = ("block", "drop")


@dataclass(frozen=True)
class Durability:
    """When records reach the disk. `docs/reliability.md` says what each choice promises.

    Attributes:
        fsync: When a file is forced to the disk, so that it survives a failure of the machine
            and not of the process alone: `"never"`, when it is `"close"`d (also on rotation;
            the default), or at each `"flush"`. Done in the writer's thread.
        back_pressure: What a step does when the disk is too slow and the queue is full:
            `"block"` waits, at most 5 s while nothing is written, then drops records until
            there is room again; `"drop"` never waits. Dropped records are counted and
            reported.
        lock: `"flock"` or `"soft"`, see `records.locks`; None for the environment variable
            `REC_SUMMARY_LOCK`, else `"flock"`.

    Raises:
        TypeError, ValueError: There is no such choice.
    """

    fsync: str = "close"
    back_pressure: str = "block"
    lock: str | None = None

    def __post_init__(self) -> None:
        check_choice("durability.fsync", self.fsync, _FSYNC)
        check_choice("durability.back_pressure", self.back_pressure, _BACK_PRESSURE)
        object.__setattr__(self, "lock", check_kind("durability.lock", self.lock))

    @property
    def block_secs(self) -> float:
        """How long a step waits while nothing is written, in seconds."""
        return BLOCK_SECS if self.back_pressure == "block" else 0.0


@dataclass(frozen=True)
class Rotation:
    """When the next record file is created, and what becomes of full ones.

    Attributes:
        max_file_size: The size in bytes at which the next file is created; None for never. A
            file has whole records, so it may be larger by one record.
        retention: A budget within which all history stays; None for no limit. Do not combine it
            with `max_file_size`.

    Raises:
        TypeError: The size is not an int, or the retention has another type.
        ValueError: The size is below 1, or both are given.
    """

    max_file_size: int | None = None
    retention: Retention | None = None

    def __post_init__(self) -> None:
        size = check_int_or_none("max_file_size", self.max_file_size)
        if check_optional("retention", self.retention, Retention) is not None and size is not None:
            expected = "None where retention is given, which chooses the size of files"
            raise ValueError(three_part("max_file_size", size, expected))


class RunWriter:
    """Writes one rank's records of one run into files of its own.

    Both files (summary and lineage) are created at the start. So a directory that cannot be
    written raises an error there, and viewers that look for a summary file also find a run that
    has lineage only. Lineage has one file for the run.

    Attributes:
        directory: The record directory.
        rank: The rank of this process.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        rank: int = 0,
        rotation: Rotation | None = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        suffix: str = DEFAULT_SUFFIX,
        durability: Durability | None = None,
        troubles: Troubles | None = None,
        system: Any = os,
        compactor: CompactorSettings | None = None,
    ) -> None:
        """Creates the directory (mode 0700) unless it exists, and the files (mode 0600).

        Args:
            directory: The record directory.
            rank: The rank of this process.
            rotation: When files are full, and what becomes of them; None for one file.
            prefix: What the files' names begin with (see `names.check_affixes`).
            suffix: What the names of summary files end with.
            durability: When files are forced to the disk, and how they are locked; None for
                the defaults.
            troubles: Gets a failure for each file that was deleted while it was written.
            system: The operating system, as of `SegmentWriter`.
            compactor: How the process that compacts is started; None for the defaults.

        Raises:
            OSError: The directory or the files cannot be created.
        """
        self.directory = os.path.abspath(os.fspath(directory))
        self.rank = rank
        self._rotation = rotation or Rotation()
        self._prefix, self._suffix = prefix, suffix
        self._durability = durability or Durability()
        self._troubles = troubles or Troubles()
        self._os = system
        self._gone_bytes = 0  # of files that are closed
        self._stamps: set[int] = set()  # of the files that this writer has created
        self._compactor: Compactor | None = None
        self._is_checked = False  # whether the files from before were compacted, if need be
        retention = self._rotation.retention
        if retention is not None:
            total, lock = retention.total_bytes, self._durability.lock
            self._compactor = Compactor(
                self.directory, rank, total, lock, self._troubles, compactor
            )
        with self._room_made():
            self._open = self._begin(Kind.SUMMARY, Kind.LINEAGE)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files being written."""
        return tuple(segment.path for segment in self._open.values())

    @property
    def bytes_written(self) -> int:
        """How many bytes were passed to the operating system, in all files so far."""
        return self._gone_bytes + sum(segment.bytes_written for segment in self._open.values())

    def write(self, record: Record) -> None:
        """Encodes a record and appends it to the file of its kind.

        Raises:
            OSError: The file cannot be written, or the next one cannot be created; or the record
                is larger than readers take, or than half of the budget, and is not written.
            Exception: Whatever `record.encode` raises; nothing is written then.
        """
        payload = record.encode()
        if len(payload) > MOST_BYTES:
            text = f"a record of {len(payload):,} bytes; readers take {MOST_BYTES:,} ({VARIABLE})"
            raise OSError(errno.EFBIG, text, self.directory)
        if self._compactor is not None and not self._compactor.takes(len(payload)):
            size, budget = f"{len(payload):,}", f"{self._compactor.total_bytes:,}"
            text = f"a record of {size} bytes; the limit is half of the budget of {budget}"
            raise OSError(errno.EFBIG, text, self.directory)
        try:
            with self._room_made():
                self._replace_lost()
                if self._is_full(record.kind):
                    self._rotate(record.kind)
                elif not self._is_checked:
                    self._make_room()
                if len(payload) > (self._full_size(Kind.SUMMARY) or math.inf):
                    self._make_room(len(payload))
        finally:  # the current file takes the record in any case
            self._open[record.kind].write(payload)

    def flush(self) -> None:
        """Passes all records to the operating system.

        Raises:
            OSError: A file cannot be written; its records are kept for the next try.
        """
        sync = (SegmentWriter.sync,) if self._durability.fsync == "flush" else ()
        try:
            self._replace_lost()
        finally:  # the other file is flushed in any case
            with self._room_made():
                self._both(SegmentWriter.flush, *sync)

    def close(self) -> None:
        """Flushes and closes the files.

        Raises:
            OSError: A file's last records could not be written.
        """
        try:
            # A deleted file without waiting records is not created again.
            if any(writer.is_lost and writer.has_pending for writer in self._open.values()):
                self._replace_lost()
            if self._durability.fsync != "never":
                self._both(SegmentWriter.flush, SegmentWriter.sync)
        finally:
            if self._compactor is not None:
                self._compactor.close()
            self._both(SegmentWriter.close)

    def _both(self, *actions: Callable[[SegmentWriter], None]) -> None:
        # A failure of one file does not affect the other; a full disk keeps the records that fit.
        failure: OSError | None = None
        for segment in self._open.values():
            for action in actions:
                try:
                    action(segment)
                except OSError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _full_size(self, kind: Kind) -> int | None:
        """Returns the size in bytes at which a file is full; None for never."""
        if self._compactor is not None:
            return segment_bytes(self._compactor.total_bytes)
        return self._rotation.max_file_size if kind is Kind.SUMMARY else None

    def _is_full(self, kind: Kind) -> bool:
        limit, segment = self._full_size(kind), self._open[kind]
        return limit is not None and segment.size >= limit and segment.records > 1

    def _rotate(self, kind: Kind) -> None:
        """Creates the next file of a kind; if that fails, the current one goes on growing."""
        full = self._open[kind]
        full.flush()  # on a full disk, its records wait here
        self._open |= self._begin(kind)
        self._gone_bytes += full.bytes_written
        try:
            if self._durability.fsync != "never":
                full.sync()
        finally:
            try:
                full.close()
            finally:
                self._make_room()

    def _make_room(self, nbytes: int = 0) -> None:
        if self._compactor is not None:
            self._is_checked = True
            self._compactor.begun(self._stamps, nbytes)

    @contextlib.contextmanager
    def _room_made(self) -> Iterator[None]:
        """Compacts if the body finds the disk full: the next try may succeed."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._make_room()
            raise

    def _replace_lost(self) -> None:
        """Creates a new file for each that was deleted; records that wait are written there."""
        lost = {kind: segment for kind, segment in self._open.items() if segment.is_lost}
        if not lost:
            return
        self._open |= self._begin(*lost)
        for kind, segment in lost.items():
            self._troubles.report("record file deleted", f"{segment.path}; a new one was begun")
            self._gone_bytes += segment.bytes_written
            segment.hand_over(self._open[kind])

    def _begin(self, *kinds: Kind) -> dict[Kind, SegmentWriter]:
        """Creates the next files, and the directory if there is none."""
        make_directory(self.directory)
        begun = self._claim(kinds)
        if self._durability.fsync != "never":
            sync_directory(self.directory)
        return begun

    def _claim(self, kinds: Sequence[Kind]) -> dict[Kind, SegmentWriter]:
        """Creates the next files under names of their own.

        All have the same stamp: the current second, or one more than the latest stamp of this rank
        in the directory, whatever the prefix. So names are unique within a second, and sort in the
        order of creation even if the clock steps back. A lock keeps two writers from choosing at
        the same time. Where the lock cannot be taken (a file system without locks, a holder that
        hangs), exclusive creation alone keeps their files apart.
        """
        with contextlib.ExitStack() as stack:
            path = os.path.join(self.directory, LOCK_NAME)
            with contextlib.suppress(OSError):  # so is a timeout
                lock = file_lock(path, timeout=_LOCK_SECS, kind=self._durability.lock)
                stack.enter_context(lock)
            there = map(parse_name, os.listdir(self.directory))
            ends = (name.end for name in there if name is not None and name.rank == self.rank)
            stamp = max(int(time.time()), max(ends, default=-1) + 1)
            while True:
                try:
                    return self._create(stamp, kinds)
                except FileExistsError:
                    stamp += 1

    def _create(self, stamp: int, kinds: Sequence[Kind]) -> dict[Kind, SegmentWriter]:
        """Creates files that begin with a version record, or none of them.

        Raises:
            FileExistsError: One of them exists.
            OSError: One cannot be created, or the disk has no room for its first record.
        """
        created: dict[Kind, SegmentWriter] = {}
        # The fields are those of a lineage event as well.
        version = summary_pb2.Event(wall_time=time.time(), version=FILE_VERSION).SerializeToString()
        try:
            for kind in kinds:
                name = RecordName(stamp, self.rank, this_host(), kind, self._prefix, self._suffix)
                segment = created[kind] = SegmentWriter(
                    os.path.join(self.directory, str(name)), self._os
                )
                segment.write(version)
                segment.flush()
        except OSError:
            for segment in created.values():  # readers would list an empty file
                segment.abandon()
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(segment.path)
            raise
        self._stamps.add(stamp)
        return created
