"""Record files as a stream of decoded events, with everything that is wrong reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.format.bounds import MOST_PARTS, UNDECODABLE, has_too_many_parts
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import (
    BadLength,
    LostRecord,
    RawRecord,
    RecordReader,
    TruncatedRecord,
)
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import Batch, Record
from rec_summary.series.blocks.block import Block, ScannedRecords
from rec_summary.series.blocks.scan import scan
from rec_summary.series.report import Report

_MESSAGES: Final[dict[Kind, type[summary_pb2.Event] | type[lineage_pb2.LineageEvent]]] = {
    Kind.SUMMARY: summary_pb2.Event,
    Kind.LINEAGE: lineage_pb2.LineageEvent,
}

_BLOCK_BYTES: Final = 1 << 21
_WORTH_BYTES: Final = 1 << 12  # fewer bytes are read record by record as fast
_FEWEST_RECORDS: Final = 8  # fewer records are read one by one as fast


class EventReader:
    """Reads a record file in batches, from any record on; damage is reported and skipped.

    Each batch is worked out once: many records whose series and numbers are read as columns, or
    one record that is decoded (see `series.batch`). The steps of a batch never go back.

    A record with a bad data checksum, or one that is no event, is skipped. Behind a bad
    length checksum nothing more can be found. An unfinished record at the end is what a
    live writer leaves, and reading pauses there. A time that is no number is replaced by
    that of the record before, because TensorBoard would drop the rest of the file.

    Use it as a context. Iterating again reads what was added meanwhile.

    Attributes:
        offset: The record boundary that reading has reached, in bytes: a later reader
            that starts there goes on without a gap or a duplicate.
        ended: Whether nothing behind `offset` can ever be read.
        unfinished: Why reading paused at `offset`, if not at the end of a whole record.
    """

    def __init__(
        self, file: RecordFile, report: Report, offset: int = 0, *, frames: bool = False
    ) -> None:
        """Opens a file.

        Args:
            file: What to read.
            report: Takes records and problems.
            offset: The record boundary to start at, in bytes.
            frames: Whether batches are to have the frames of an event file, see `Batch.frames`.
        """
        self.offset = offset
        self._frames = frames
        self.ended = False
        self.unfinished: str | None = None
        self._path = file.path
        self._kind = file.name.kind.name.lower()
        self._message = _MESSAGES[file.name.kind]
        self._wall_time = float(file.name.stamp)
        self._report = report
        self._blind_until = 0  # no block begins before this
        self._reader: RecordReader | None = None
        try:
            self._reader = RecordReader(file.path, offset)
        except OSError as error:
            report.problem(file.path, offset, f"the file cannot be opened: {error.strerror}")

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches until the file ends, or cannot be read any further."""
        while True:
            scanned = self._scan()
            if scanned is None:
                record = self._next_record()
                if record is None:
                    return
                yield record
                continue
            while self.offset < scanned.bounds[-1]:
                first = int(np.searchsorted(scanned.bounds, self.offset))
                last = scanned.end(first)
                if last - first >= _FEWEST_RECORDS:
                    yield self._take(scanned, first, last)
                    continue
                record = self._next_record()
                if record is None:
                    return
                yield record
            del scanned  # before the next one is made

    def _next_record(self) -> Record | None:
        """Returns the next record, or None where the file ends or cannot be read further."""
        while (raw := self._next()) is not None:
            offset, data = raw
            if has_too_many_parts(self._message, data):
                what = f"a record of more than {MOST_PARTS:,} parts; skipped"
                self._report.problem(self._path, offset, what)
                continue
            try:
                event: Any = self._message.FromString(data)
            except UNDECODABLE:
                event = None
            if event is None or not event.IsInitialized():
                self._report.problem(self._path, offset, f"not a {self._kind} record; skipped")
                continue
            self._report.records[self._kind] += 1
            if math.isfinite(event.wall_time):
                self._wall_time = event.wall_time
            else:
                self._report.wall_times_replaced += 1
            return Record(self._path, offset, len(data), self._wall_time, event)
        return None

    def _take(self, scanned: ScannedRecords, first: int, last: int) -> Block:
        """Returns scanned records, and goes on behind them."""
        assert self._reader is not None  # it has been scanned
        block = Block(self._path, scanned, first, last)
        self.offset = self._reader.offset = block.end_offset
        self.unfinished = None
        self._wall_time = float(scanned.wall_times[last - 1])
        self._report.records[self._kind] += last - first
        return block

    def _scan(self) -> ScannedRecords | None:
        if self._reader is None or self.ended or self.offset < self._blind_until:
            return None
        if self._message is not summary_pb2.Event:
            return None
        try:
            buffer, at = self._reader.ahead(_BLOCK_BYTES)
        except OSError:  # reported with the next record
            return None
        scanned = None
        if len(buffer) - at >= _WORTH_BYTES:
            scanned = scan(buffer, at, self.offset, frames=self._frames)
        if scanned is None:
            self._blind_until = self.offset + _BLOCK_BYTES
        return scanned

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()

    def _next(self) -> RawRecord | None:
        """Returns the next sound record, or None when there is no more."""
        reader = self._reader
        self.unfinished = None
        while reader is not None and not self.ended:
            try:
                record = reader.read()
            except LostRecord as error:
                self._report.problem(self._path, error.offset, f"{error.reason}; skipped")
                self.offset = reader.offset
                continue
            except TruncatedRecord:
                self.unfinished = "incomplete record at the end (a writer may still be at work)"
                return None
            except BadLength as error:
                what = f"{error.reason}; nothing can be read from here on"
                if error.offset == 0:
                    what += " (is this a record file?)"
                self._report.problem(self._path, error.offset, what)
                self.ended = True
                return None
            except OSError as error:
                what = f"reading failed: {error.strerror}"
                self._report.problem(self._path, reader.offset, what)
                return None
            self.offset = reader.offset
            if record is None and self.offset == 0:
                self.unfinished = "the file is empty (a writer may just have begun)"
            return record
        return None


def read_batches(
    file: RecordFile, report: Report, advance: Callable[[int], None]
) -> Iterator[Batch]:
    """Yields all batches of a record file; damage is reported to `report` and skipped.

    An unfinished record at the end is reported as well.

    Args:
        file: What to read.
        report: Takes the numbers of records, and problems.
        advance: Called with the number of bytes after each batch.
    """
    report.files += 1
    with EventReader(file, report) as reader:
        reached = 0
        for batch in reader:
            advance(reader.offset - reached)
            reached = reader.offset
            yield batch
        if reader.unfinished is not None:
            report.problem(file.path, reader.offset, reader.unfinished)


def read_events(
    file: RecordFile, report: Report, advance: Callable[[int], None]
) -> Iterator[Record]:
    """Yields all records of a file, decoded one by one; otherwise as `read_batches`."""
    for batch in read_batches(file, report, advance):
        yield from batch.records()
