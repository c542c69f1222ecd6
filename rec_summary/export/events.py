"""Record files as a stream of decoded events, with everything that is wrong reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.export.report import Tally
from rec_summary.records.directory import RecordFile
from rec_summary.records.names import Kind
from rec_summary.records.reader import (
    BadDataChecksum,
    BadLengthChecksum,
    RawRecord,
    RecordReader,
    TruncatedRecord,
)

_MESSAGES: Final[dict[Kind, type[summary_pb2.Event] | type[lineage_pb2.LineageEvent]]] = {
    Kind.SUMMARY: summary_pb2.Event,
    Kind.LINEAGE: lineage_pb2.LineageEvent,
}


class Decoded(NamedTuple):
    """A record of a record file.

    Attributes:
        offset: Where in the file it begins, in bytes.
        nbytes: The size of its payload.
        wall_time: When it was written, in seconds since the epoch; always finite.
        event: A `summary_pb2.Event` or a `lineage_pb2.LineageEvent`, by the kind of the file.
    """

    offset: int
    nbytes: int
    wall_time: float
    event: Any


def read_events(
    file: RecordFile, tally: Tally, advance: Callable[[int], None]
) -> Iterator[Decoded]:
    """Yields the events of a record file; damage is reported to `tally` and passed over.

    A record with a bad data checksum, or one that is no event, is skipped. Behind a bad
    length checksum nothing more can be found. An unfinished record at the end is what a
    live writer leaves, and reading ends there. A time that is no number is replaced by
    that of the record before, because TensorBoard would drop the rest of the file.

    Args:
        file: What to read.
        tally: Told of records and problems.
        advance: Called with the number of bytes after each record.
    """
    tally.files += 1
    try:
        reader = RecordReader(file.path)
    except OSError as error:
        tally.problem(file.path, 0, f"the file cannot be opened: {error.strerror}")
        return
    decode = _MESSAGES[file.name.kind].FromString
    kind = file.name.kind.name.lower()
    wall_time = float(file.name.stamp)
    with reader:
        while (record := _next(reader, tally)) is not None:
            offset, data = record
            advance(reader.offset - offset)
            try:
                event = decode(data)
            except DecodeError:
                event = None
            if event is None or not event.IsInitialized():
                tally.problem(file.path, offset, f"not a {kind} record; skipped")
                continue
            tally.records[kind] += 1
            if math.isfinite(event.wall_time):
                wall_time = event.wall_time
            else:
                tally.wall_times_replaced += 1
            yield Decoded(offset, len(data), wall_time, event)


def _next(reader: RecordReader, tally: Tally) -> RawRecord | None:
    """Returns the next sound record, or None when there is no more."""
    while True:
        try:
            record = reader.read()
        except BadDataChecksum as error:
            tally.problem(reader.path, error.offset, "the data's checksum is wrong; skipped")
            continue
        except TruncatedRecord as error:
            tally.problem(
                reader.path,
                error.offset,
                "incomplete record at the end (a writer may still be at work)",
            )
            return None
        except BadLengthChecksum as error:
            what = "the length's checksum is wrong; nothing can be read from here on"
            if error.offset == 0:
                what += " (is this a record file?)"
            tally.problem(reader.path, error.offset, what)
            return None
        except OSError as error:
            tally.problem(reader.path, reader.offset, f"reading failed: {error.strerror}")
            return None
        if record is None and reader.offset == 0:
            tally.problem(reader.path, 0, "the file is empty (a writer may just have begun)")
        return record
