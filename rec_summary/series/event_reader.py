"""Record files as a stream of decoded events, with everything that is wrong reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

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
from rec_summary.series.blocks.block import Block
from rec_summary.series.blocks.scan import scan
from rec_summary.series.report import Tally

_MESSAGES: Final[dict[Kind, type[summary_pb2.Event] | type[lineage_pb2.LineageEvent]]] = {
    Kind.SUMMARY: summary_pb2.Event,
    Kind.LINEAGE: lineage_pb2.LineageEvent,
}

_BLOCK_BYTES: Final = 1 << 21
_WORTH_BYTES: Final = 1 << 12  # fewer records are read one by one as fast


class Decoded(NamedTuple):
    """A record of a record file.

    Attributes:
        path: The file.
        offset: Where in the file it begins, in bytes.
        nbytes: The size of its payload.
        wall_time: When it was written, in seconds since the epoch; always finite.
        event: A `summary_pb2.Event` or a `lineage_pb2.LineageEvent`, by the kind of the file.
    """

    path: str
    offset: int
    nbytes: int
    wall_time: float
    event: Any


class EventReader:
    """Reads the events of a record file from any record on; damage is told and passed over.

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

    def __init__(self, file: RecordFile, tally: Tally, offset: int = 0) -> None:
        """Opens a file.

        Args:
            file: What to read.
            tally: Told of records and problems.
            offset: The record boundary to start at, in bytes.
        """
        self.offset = offset
        self.ended = False
        self.unfinished: str | None = None
        self._path = file.path
        self._kind = file.name.kind.name.lower()
        self._message = _MESSAGES[file.name.kind]
        self._wall_time = float(file.name.stamp)
        self._tally = tally
        self._block: Block | None = None
        self._blind_until = 0  # no block begins before this
        self._reader: RecordReader | None = None
        try:
            self._reader = RecordReader(file.path, offset)
        except OSError as error:
            tally.problem(file.path, offset, f"the file cannot be opened: {error.strerror}")

    def __iter__(self) -> Iterator[Decoded]:
        """Yields events until the file ends, or cannot be read any further."""
        while (decoded := self.next_event()) is not None:
            yield decoded

    def next_event(self) -> Decoded | None:
        """Returns the next event, or None where the file ends or cannot be read further."""
        while (record := self._next()) is not None:
            offset, data = record
            if has_too_many_parts(self._message, data):
                what = f"a record of more than {MOST_PARTS:,} parts; skipped"
                self._tally.problem(self._path, offset, what)
                continue
            try:
                event: Any = self._message.FromString(data)
            except UNDECODABLE:
                event = None
            if event is None or not event.IsInitialized():
                self._tally.problem(self._path, offset, f"not a {self._kind} record; skipped")
                continue
            self._tally.records[self._kind] += 1
            if math.isfinite(event.wall_time):
                self._wall_time = event.wall_time
            else:
                self._tally.wall_times_replaced += 1
            return Decoded(self._path, offset, len(data), self._wall_time, event)
        return None

    def block(self) -> tuple[Block, int] | None:
        """Returns the block that the next record is in.

        Returns:
            The block and the number of the next record in it; None where there is no such
            block, so that the next event is to be read by itself.
        """
        block = self._block
        if block is None or not block.bounds[0] <= self.offset < block.bounds[-1]:
            self._block = None  # not two of them at a time
            block = self._block = self._scan()
            if block is None:
                return None
        number = int(np.searchsorted(block.bounds, self.offset))
        return (block, number) if block.kind[number] >= 0 else None

    def step_over(self, block: Block, first: int, last: int) -> None:
        """Goes on behind records of a block that were taken."""
        assert self._reader is not None  # there is a block
        self.offset = self._reader.offset = int(block.bounds[last])
        self._wall_time = float(block.wall_times[last - 1])
        self._tally.records[self._kind] += last - first

    def _scan(self) -> Block | None:
        if self._reader is None or self.ended or self.offset < self._blind_until:
            return None
        try:
            buffer, at = self._reader.ahead(_BLOCK_BYTES)
        except OSError:  # told by who reads the next record
            return None
        block = scan(buffer, at, self.offset) if len(buffer) - at >= _WORTH_BYTES else None
        if block is None:
            self._blind_until = self.offset + _BLOCK_BYTES
        return block

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
                self._tally.problem(self._path, error.offset, f"{error.reason}; skipped")
                self.offset = reader.offset
                continue
            except TruncatedRecord:
                self.unfinished = "incomplete record at the end (a writer may still be at work)"
                return None
            except BadLength as error:
                what = f"{error.reason}; nothing can be read from here on"
                if error.offset == 0:
                    what += " (is this a record file?)"
                self._tally.problem(self._path, error.offset, what)
                self.ended = True
                return None
            except OSError as error:
                what = f"reading failed: {error.strerror}"
                self._tally.problem(self._path, reader.offset, what)
                return None
            self.offset = reader.offset
            if record is None and self.offset == 0:
                self.unfinished = "the file is empty (a writer may just have begun)"
            return record
        return None


def read_events(
    file: RecordFile, tally: Tally, advance: Callable[[int], None]
) -> Iterator[Decoded]:
    """Yields all events of a record file; damage is reported to `tally` and passed over.

    An unfinished record at the end is reported as well.

    Args:
        file: What to read.
        tally: Told of records and problems.
        advance: Called with the number of bytes after each record.
    """
    tally.files += 1
    with EventReader(file, tally) as reader:
        reached = 0
        for decoded in reader:
            advance(reader.offset - reached)
            reached = reader.offset
            yield decoded
        if reader.unfinished is not None:
            tally.problem(file.path, reader.offset, reader.unfinished)
