"""Reading record files time and again: what is new, and what could not be read before.

A file may be replaced by a compacted one, which holds what is left of several files. Reading goes
on in it after the time of the last record that was read of them.

Damage need not stay. On a network file system, the size of a file may arrive seconds before its
bytes, and a damaged file may be replaced by a repaired one. So reading waits a few seconds at
damage in the newest file, tries again where nothing more could be read, and remembers the bytes of
records that it has skipped, and those where it stopped.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Final

import numpy as np
from msgspec import Meta, Struct

from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.repair import find_record
from rec_summary.records.reading.runs import FileStatus, RecordFile, Run, compaction_of
from rec_summary.records.remote import open_binary
from rec_summary.series.batch import Batch
from rec_summary.series.event_reader import Damage, EventReader, Flaw, ScannedFile
from rec_summary.series.limits import Checksum, Count
from rec_summary.series.report import Report

PATIENCE_SECS: Final = 10.0
_RECENT_SECS: Final = 600.0  # damage in a file that has rested for longer will stay
_MOST_LOST: Final = 8  # skipped records of a file whose bytes are remembered
_COMPARED_BYTES: Final = 1 << 20  # of each skipped record
_TAIL_BYTES: Final = 1 << 12
_SEARCHED_BYTES: Final = 1 << 16  # before the place where a follower begins


class ReadPosition(Struct, array_like=True):
    """How far a record file has been read; can be stored as it is.

    Attributes:
        offset: Where reading goes on, in bytes.
        ended: Whether nothing after `offset` could be read.
        lost: Offset, size and checksum of the first records that were skipped.
        tail: An offset up to which was read, and the checksum of the bytes before it.
    """

    offset: Count = 0
    ended: bool = False
    lost: Annotated[list[tuple[Count, Count, Checksum]], Meta(max_length=_MOST_LOST)] = []
    tail: tuple[Count, Checksum] = (0, 0)


@dataclass(slots=True)
class _KnownFile:
    """What is known of a file from the last time it was read.

    Attributes:
        position: How far `batches` has read it; None if it has not.
        last_time: The wall time of the last record that `batches` has read.
        is_inside: Whether the position may be inside a record.
        is_waiting: Whether reading stopped at damage that is soon tried again.
        tried: Its status when the rest of it could not be read.
        compared: Its status when the bytes of skipped records were compared.
        unreadable: Where the file system reported an error, in bytes; that is reported.
        settled: The size that it has had for as long as we wait, in bytes.
        size: Its size when damage was found after the size before, in bytes.
        since: When that was, by the clock.
    """

    position: ReadPosition | None = None
    last_time: float = -math.inf
    is_inside: bool = False
    is_waiting: bool = False
    tried: FileStatus | None = None
    compared: FileStatus | None = None
    unreadable: int = -1
    settled: int = 0
    size: int = 0
    since: float = math.inf


@dataclass(eq=False)
class NewRecords:
    """Reads the new records of files, each from where reading stopped the last time.

    At damage in the newest file of a writer, reading stops for a while and tries again. Damage
    is reported once. Behind damage that makes the rest of a file unreadable, reading tries again
    when the file has changed.

    Attributes:
        report: Counts records and takes problems.
        frames: As in `EventReader`.
        patience: How long to wait at damage in the newest file, in seconds.
        clock: Returns the time, in seconds.
        scanned: What `scan_together` returned; used once, for files that have not changed.
    """

    report: Report
    _: KW_ONLY
    frames: bool = False
    patience: float = PATIENCE_SECS
    clock: Callable[[], float] = time.monotonic
    scanned: dict[str, ScannedFile] = field(default_factory=dict)
    _files: collections.defaultdict[str, _KnownFile] = field(
        default_factory=lambda: collections.defaultdict(_KnownFile), init=False
    )

    def skip(self, file: RecordFile, offset: int | None = None) -> None:
        """Skips the records that a file has now; an incomplete record is read later.

        Args:
            file: The file.
            offset: Only records that end at this offset or before are skipped.
        """
        known = self._files[file.path]
        known.position = ReadPosition(file.nbytes if offset is None else offset)
        known.last_time, known.is_inside = file.changed, True

    def batches(
        self,
        files: Iterable[RecordFile],
        changed_after: float = -math.inf,
        newest: RecordFile | None = None,
    ) -> Iterator[Batch]:
        """Yields new records, file after file.

        Args:
            files: The files of one writer, in order.
            changed_after: Files without records of this time or later are left out, as far as they
                are known without being opened; in seconds since the epoch.
            newest: The newest file of the writer; the last of `files` by default.
        """
        files = tuple(files)
        newest = newest or (files[-1] if files else None)
        for file in files:
            position, nbytes, known = self._position(file), file.nbytes, self._files[file.path]
            if nbytes < position.offset:  # it was replaced by another file
                position = known.position = ReadPosition()
            if nbytes <= position.offset or not file.may_hold(changed_after):
                continue
            if known.is_inside:
                position.offset = boundary(file.path, position.offset)
                known.is_inside = False
            for batch in self.read(file, position, newest=file == newest):
                known.last_time = float(batch.wall_times[-1])
                yield batch

    def _position(self, file: RecordFile) -> ReadPosition:
        """Returns where to go on in a file, which may be made of files that were read."""
        known = self._files[file.path]
        if known.position is None:
            known.position = ReadPosition()
            if file.name.last is not None:
                times = [
                    other.last_time
                    for path, other in self._files.items()
                    if os.path.dirname(path) == os.path.dirname(file.path)
                    and (name := parse_name(os.path.basename(path))) is not None
                    and file.name.covers(name)
                ]
                known.last_time = max(times, default=-math.inf)
                known.position = ReadPosition(behind(file, known.last_time))
        return known.position

    def read(
        self, file: RecordFile, place: ReadPosition, *, newest: bool, final: bool = False
    ) -> Generator[Batch]:
        """Yields the new records of one file.

        Args:
            file: The file.
            place: Where to begin; it is kept up to date. While a batch is in use, it is where the
                batch begins.
            newest: Whether this is the newest file of its writer.
            final: Whether this is the last time for now: nothing is waited for, what could not be
                read is tried again in any case, and an unfinished record is reported.
        """
        status, known = file.status, self._files[file.path]
        if place.ended and not final and known.tried == status:
            return
        known.is_waiting = False
        scanned = self.scanned.pop(file.path, None)
        with EventReader(
            file, self.report, place.offset, frames=self.frames, scanned=scanned
        ) as reader:
            # Another file may have taken its place since `is_replaced` was asked.
            if 0 < place.offset == place.tail[0] and not _has_tail(reader, place):
                if place is known.position:  # then `batches` begins at its start the next time
                    known.position, known.is_waiting = None, True
                return
            try:
                yield from self._read(file, place, reader, status, newest and not final)
            finally:
                if file.entry is None:
                    checksum = reader.checksum(*_tail(place.offset))
                    place.tail = (0, 0) if checksum is None else (place.offset, checksum)
                    known.compared = status
            if final and reader.unfinished is not None:
                self.report.problem(file.path, reader.offset, reader.unfinished)

    def _read(
        self,
        file: RecordFile,
        place: ReadPosition,
        reader: EventReader,
        status: FileStatus,
        waits: bool,
    ) -> Iterator[Batch]:
        """Yields what can be read. If it `waits`, it stops at damage that may go away."""
        known = self._files[file.path]
        reported = place.offset if place.ended else known.unreadable
        for item in reader.items():
            if not isinstance(item, Damage):
                place.offset, place.ended = item.offset, False
                yield item
                place.offset = item.end_offset
                continue
            if waits and not self._is_settled(file, item.offset, status.size):
                known.is_waiting = True
                return
            if item.offset != reported:
                self.report.problem(file.path, item.offset, item.text)
            if item.flaw is Flaw.UNREADABLE:
                known.unreadable = item.offset
            elif item.flaw is not Flaw.UNREACHABLE and len(place.lost) < _MOST_LOST:
                size = min(reader.offset - item.offset, _COMPARED_BYTES)
                checksum = reader.checksum(item.offset, size) or 0
                place.lost.append((item.offset, size, checksum))
            place.offset = reader.offset
        place.offset, place.ended = reader.offset, reader.ended
        if reader.ended:
            known.tried = status

    def is_waiting(self, files: Iterable[RecordFile]) -> bool:
        """Whether reading stopped in one of the files at damage that is soon tried again."""
        return any(self._files[file.path].is_waiting for file in files)

    def is_replaced(self, file: RecordFile, place: ReadPosition) -> bool:
        """Whether a file has other bytes where a record was skipped, or where reading stopped."""
        parts = list(place.lost)
        if place.tail[0]:
            parts.append((*_tail(place.tail[0]), place.tail[1]))
        status, known = file.status, self._files[file.path]
        if not parts or known.compared == status:
            return False
        known.compared = status
        return any(
            _checksum(file, offset, size) not in (None, checksum)
            for offset, size, checksum in parts
        )

    def keep(self, files: Iterable[RecordFile]) -> None:
        """Drops the state of all files but these."""
        for path in self._files.keys() - {file.path for file in files}:
            del self._files[path]

    def _is_settled(self, file: RecordFile, offset: int, size: int) -> bool:
        """Whether damage in the newest file has been there for as long as we wait."""
        if self.patience <= 0 or file.changed < time.time() - _RECENT_SECS:
            return True
        now, known = self.clock(), self._files[file.path]
        if now - known.since >= self.patience:
            known.settled = known.size  # the file has been as large as that for so long
        if offset >= known.size:
            known.size, known.since = size, now
        return offset < known.settled


def behind(file: RecordFile, after: float) -> int:
    """Returns where the records of a compacted file begin that were written after a time.

    Args:
        file: The file.
        after: The time, in seconds since the epoch.
    """
    compaction = compaction_of(file)
    if compaction is None or after == -math.inf:
        return 0
    if compaction.last_time <= after:
        return file.nbytes
    with EventReader(file, Report(), steps_only=True) as reader:
        for batch in reader:
            later = np.flatnonzero(batch.wall_times > after)
            if len(later):
                return batch.part(int(later[0]), int(later[0]) + 1).offset
        return reader.offset


def newest_part(run: Run, nbytes: int) -> dict[RecordFile, int]:
    """Returns where the newest part of a run begins in each of its summary files, in bytes.

    Args:
        run: The run.
        nbytes: The size of that part, of all ranks together.

    Returns:
        0 for a file that is part of it, and its size for one that is not.
    """
    begins = {}
    for rank in run.ranks:
        left = nbytes // len(run.ranks)
        for file in reversed(run.files_of(Kind.SUMMARY, rank)):
            size = file.nbytes
            begins[file] = max(size - left, 0)
            left = max(left - size, 0)
    return begins


def boundary(path: str, offset: int) -> int:
    """Returns where the first record begins that does not end at an offset or before.

    Walking over all headers takes a second for a million records, so the walk starts nearby.
    """
    distance = _SEARCHED_BYTES
    try:
        with RecordReader(path) as reader:
            while distance < offset:
                near = find_record(path, offset - distance)
                if near is not None and near <= offset:
                    reader.offset = near
                    break
                distance *= 16  # a record may be large
            reader.skip_to(offset)
            return reader.offset
    except OSError:  # it is reported when the file is read
        return 0


def _has_tail(reader: EventReader, place: ReadPosition) -> bool:
    """Whether the bytes before a place are those that were read; true if they cannot be read."""
    return reader.checksum(*_tail(place.offset)) in (None, place.tail[1])


def _tail(offset: int) -> tuple[int, int]:
    """Returns where the bytes before an offset begin that are compared, and how many they are."""
    size = min(offset, _TAIL_BYTES)
    return offset - size, size


def _checksum(file: RecordFile, offset: int, size: int) -> int | None:
    """Returns the checksum of bytes of a file; None if it cannot be read."""
    try:
        with contextlib.closing(open_binary(file.path)) as opened:
            return zlib.crc32(opened.read_at(offset, size))
    except OSError:
        return None
