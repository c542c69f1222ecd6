"""Record files as a stream of batches; damage is reported."""

from __future__ import annotations

import contextlib
import enum
import math
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.files import read_plain
from rec_summary.records.format.bounds import MOST_PARTS, UNDECODABLE, has_too_many_parts
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import (
    BadLength,
    LostRecord,
    RawRecord,
    RecordReader,
    TruncatedRecord,
)
from rec_summary.records.reading.runs import FileStatus, RecordFile, Run
from rec_summary.series.batch import Batch, Record
from rec_summary.series.blocks.block import Block, ScannedRecords
from rec_summary.series.blocks.scan import scan, scan_files
from rec_summary.series.blocks.walk import Names
from rec_summary.series.report import Report

_MESSAGES: Final[dict[Kind, type[summary_pb2.Event] | type[lineage_pb2.LineageEvent]]] = {
    Kind.SUMMARY: summary_pb2.Event,
    Kind.LINEAGE: lineage_pb2.LineageEvent,
}

_BLOCK_BYTES: Final = 1 << 21
_WORTH_BYTES: Final = 1 << 12  # fewer bytes are read record by record as fast
_WORTH_TOGETHER_BYTES: Final = 1 << 9  # fewer bytes of one of many files are
_SHORT_BYTES: Final = 1 << 16  # files of more bytes are scanned one by one as fast
_SCANNED_FILES: Final = 256  # at a time; more are hardly faster
_FEWEST_RECORDS: Final = 8  # fewer records are read one by one as fast
_WRITTEN_SECS: Final = 86_400.0  # after which a file that has not changed has no writer


class Flaw(enum.Enum):
    """What is wrong at a place of a record file."""

    LOST = enum.auto()
    """The data of a record is damaged, or too large; the next record can be read."""
    UNREACHABLE = enum.auto()
    """The end of a record cannot be found: nothing after it can be read."""
    TOO_MANY_PARTS = enum.auto()
    """A record would take too much memory."""
    UNDECODABLE = enum.auto()
    """The checksums of a record are right, but it is not an event of the file's kind."""
    UNREADABLE = enum.auto()
    """The file system reports an error."""


class Damage(NamedTuple):
    """Something in a record file that cannot be read.

    Attributes:
        flaw: What is wrong.
        offset: Where in the file the record begins, in bytes.
        text: What is wrong, and what was done about it.
        error: The error behind it, if there was one.
    """

    flaw: Flaw
    offset: int
    text: str
    error: Exception | None = None


class ScannedFile(NamedTuple):
    """A short file that was read together with others.

    Attributes:
        status: Its status before it was read.
        data: Its content.
        records: Its records, if they can be read as blocks from the beginning to the end.
    """

    status: FileStatus
    data: bytes
    records: ScannedRecords | None


class EventReader:
    """Reads a record file in batches, from any record on; damage is reported and skipped.

    A batch is either many records whose series and numbers are read as columns, or
    one record that is decoded (see `series.batch`). The steps of a batch never go back.

    A record with a bad data checksum, or one that is not an event, is skipped. Behind a bad
    length checksum nothing more can be read. A live writer leaves an unfinished record at the
    end; reading pauses there. A wall time that is not finite is replaced by that of the record
    before, because TensorBoard would drop the rest of the file.

    A message within a record, such as a histogram, may be malformed although the checksum is right.
    In a batch of many records, that is reported when the record is decoded; its scalars are there.

    Use it as a context. Iterate again to read what was added meanwhile.

    Attributes:
        offset: The record boundary that reading has reached, in bytes: a later reader
            that starts there goes on without a gap or a duplicate.
        ended: Whether nothing after `offset` can ever be read.
        unfinished: Why reading paused at `offset`, if not at the end of a whole record.
    """

    def __init__(
        self,
        file: RecordFile,
        report: Report,
        offset: int = 0,
        *,
        frames: bool = False,
        steps_only: bool = False,
        messages: bool = False,
        scanned: ScannedFile | None = None,
    ) -> None:
        """Opens a file.

        Args:
            file: What to read.
            report: Counts what is read, and takes problems.
            offset: The record boundary to start at, in bytes.
            frames: Whether batches are to have the frames of an event file, see `Batch.frames`.
            steps_only: Whether batches of many records need no values, but steps and times only.
            messages: Whether malformed messages within records are found at once.
            scanned: The result of `scan_together` for this file, by default that in `file.scanned`.
                If the file has not changed, it is not opened. Only without `frames`.
        """
        self.offset = offset
        self._frames, self._steps_only, self._messages = frames, steps_only, messages
        self._names = Names()
        self._lost: set[int] = set()  # records of blocks that could not be decoded
        self._scanned: ScannedRecords | None = None
        self.ended = False
        self.unfinished: str | None = None
        self._file = file
        self._path = file.path
        self._kind = file.name.kind.name.lower()
        self._message = _MESSAGES[file.name.kind]
        self._wall_time = float(file.name.stamp)
        self._report = report
        self._blind_until = 0  # no block begins before this
        self._reader: RecordReader | None = None
        self._failure: Damage | None = None  # why the file could not be opened
        self._end = -1  # of a file that is held
        known: ScannedFile | None = None if frames or offset else scanned or file.scanned
        try:
            if known is not None and known.status == file.status:
                self._reader = RecordReader(self._path, data=known.data)
                self._scanned, self._end = known.records, len(known.data)
            else:
                self._reader = RecordReader(self._path, offset)
        except OSError as error:
            text = f"the file cannot be opened: {error.strerror}"
            self._failure = Damage(Flaw.UNREADABLE, offset, text, error)

    @property
    def size(self) -> int:
        """The size of the file in bytes; 0 if it could not be opened."""
        return 0 if self._reader is None else self._reader.size

    def checksum(self, offset: int, size: int) -> int | None:
        """Returns the CRC-32 of bytes of the open file; None if they cannot be read."""
        try:
            return None if self._reader is None else zlib.crc32(self._reader.at(offset, size))
        except OSError:
            return None

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches until the file ends, or cannot be read any further; reports damage."""
        for item in self.items():
            if isinstance(item, Damage):
                self._report.problem(self._path, item.offset, item.text)
            else:
                yield item

    def items(self) -> Iterator[Batch | Damage]:
        """Yields batches and what cannot be read between them, which is not reported."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            yield failure
        while not self.offset == self._end > 0:
            scanned = self._scan()
            end = self.offset + 1 if scanned is None else int(scanned.bounds[-1])
            while self.offset < end:
                if scanned is not None:
                    first = int(scanned.bounds.searchsorted(self.offset))
                    last = scanned.end(first)
                    if last - first >= _FEWEST_RECORDS:
                        yield self._take(scanned, first, last)
                        continue
                item = self._next()
                if item is None:
                    return
                yield item
                if isinstance(item, Damage) and item.flaw is Flaw.UNREADABLE:
                    return
            del scanned  # before the next one is made

    def _take(self, scanned: ScannedRecords, first: int, last: int) -> Block:
        """Returns scanned records, and goes on after them."""
        block = scanned.block(self._path, first, last, self._lose)
        if self._reader is not None:
            self._reader.offset = block.end_offset
        self._go_to(block.end_offset)
        self.unfinished = None
        self._wall_time = float(scanned.wall_times[last - 1])
        self._report.records[self._kind] += last - first
        return block

    def _lose(self, offset: int) -> None:
        """Reports a record that was taken for sound before it was decoded."""
        if offset not in self._lost:
            self._lost.add(offset)
            self._report.records[self._kind] -= 1
            self._report.problem(self._path, offset, self._no_record)

    @property
    def _no_record(self) -> str:
        return f"not a {self._kind} record; skipped"

    def _scan(self) -> ScannedRecords | None:
        scanned, self._scanned = self._scanned, None
        if scanned is not None:
            return scanned
        if self._reader is None or self.ended or self.offset < self._blind_until:
            return None
        if self._message is not summary_pb2.Event:
            return None
        try:
            buffer, at = self._reader.ahead(_BLOCK_BYTES)
        except OSError:  # reported with the next record
            return None
        if len(buffer) - at >= _WORTH_BYTES:
            options = {"frames": self._frames, "steps_only": self._steps_only}
            scanned = scan(buffer, at, self.offset, **options, names=self._names)
        if scanned is None:
            self._blind_until = self.offset + _BLOCK_BYTES
        elif self._messages:
            scanned.give_up_malformed()
        return scanned

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()

    def _next(self) -> Record | Damage | None:
        """Returns the next record, or why it cannot be read; None where there is no more."""
        reader = self._reader
        self.unfinished = None
        if reader is None or self.ended:
            return None
        try:
            raw = reader.read()
        except LostRecord as error:
            self._go_to(reader.offset)
            return Damage(Flaw.LOST, error.offset, f"{error.reason}; skipped", error)
        except TruncatedRecord:
            self.unfinished = "incomplete record at the end"
            if self._is_recent:
                self.unfinished += " (a writer may still be at work)"
            return None
        except BadLength as error:
            self.ended = True
            text = f"{error.reason}; nothing can be read from here on{hint(error.offset)}"
            return Damage(Flaw.UNREACHABLE, error.offset, text, error)
        except OSError as error:
            text = f"reading failed: {error.strerror}"
            return Damage(Flaw.UNREADABLE, reader.offset, text, error)
        self._go_to(reader.offset)
        if raw is not None:
            return self._decode(raw)
        if self.offset == 0:
            self.unfinished = "the file is empty"
            if self._is_recent:
                self.unfinished += " (a writer may just have begun)"
        return None

    @property
    def _is_recent(self) -> bool:
        """Whether the file was changed so recently that a writer may still be at work."""
        return time.time() - self._file.changed < _WRITTEN_SECS

    def _go_to(self, offset: int) -> None:
        self._report.bytes_read += offset - self.offset
        self.offset = offset

    def _decode(self, raw: RawRecord) -> Record | Damage:
        offset, data = raw
        if has_too_many_parts(self._message, data):
            text = f"a record of more than {MOST_PARTS:,} parts; skipped"
            return Damage(Flaw.TOO_MANY_PARTS, offset, text)
        try:
            event: Any = self._message.FromString(data)
        except UNDECODABLE:
            event = None
        if event is None or not event.IsInitialized():
            return Damage(Flaw.UNDECODABLE, offset, self._no_record)
        self._report.records[self._kind] += 1
        if math.isfinite(event.wall_time):
            self._wall_time = event.wall_time
        else:
            self._report.wall_times_replaced += 1
        return Record(self._path, offset, len(data), self._wall_time, event)


def scan_together(files: Iterable[RecordFile]) -> dict[str, ScannedFile]:
    """Reads short files in one call, because each call costs as much as some thousand records.

    Args:
        files: Record files.

    Returns:
        The short files that can be read, by path.
    """
    read: dict[str, tuple[FileStatus, bytes]] = {}
    worth: dict[str, bytes] = {}
    for file in files:
        status = file.status
        if file.entry is None and status.size <= _SHORT_BYTES:
            with contextlib.suppress(OSError):  # it is reported when the file is read
                read[file.path] = status, read_plain(file.path, _SHORT_BYTES)
                if file.name.kind is Kind.SUMMARY and status.size >= _WORTH_TOGETHER_BYTES:
                    worth[file.path] = read[file.path][1]
    records = dict(zip(worth, scan_files([*worth.values()]), strict=True))
    return {path: ScannedFile(*known, records.get(path)) for path, known in read.items()}


def scanned_ahead(runs: Iterable[Run]) -> Iterator[Run]:
    """Yields runs whose short files have been scanned, those of several runs together."""
    waiting: list[Run] = []
    for run in runs:
        waiting.append(run)
        if sum(len(run.files) for run in waiting) >= _SCANNED_FILES:
            yield from _scanned(waiting)
            waiting = []
    yield from _scanned(waiting)


def _scanned(runs: list[Run]) -> Iterator[Run]:
    scanned = scan_together(file for run in runs for file in run.files)
    while runs:
        run = runs.pop(0)  # frees the scanned files of runs that were read
        files_of = tuple(replace(file, scanned=scanned.pop(file.path, None)) for file in run.files)
        yield replace(run, files=files_of)


def record_at(file: RecordFile, offset: int) -> Record | None:
    """Returns the record that begins at an offset; None if none can be read there."""
    with EventReader(file, Report(), offset) as reader:
        record = reader._next()
    return record if isinstance(record, Record) else None


def hint(offset: int) -> str:
    """Returns a question to add where the first record of a file cannot be read."""
    return " (is this a record file?)" if offset == 0 else ""


def read_batches(file: RecordFile, report: Report) -> Iterator[Batch]:
    """Yields all batches of a record file; damage is reported to `report` and skipped.

    An unfinished record at the end is reported as well.

    Args:
        file: What to read.
        report: Counts what is read, and takes problems.
    """
    report.files += 1
    with EventReader(file, report) as reader:
        yield from reader
        if reader.unfinished is not None:
            report.problem(file.path, reader.offset, reader.unfinished)
