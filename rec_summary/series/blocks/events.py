"""Records of a block as events of an event file.

A record of scalars has the same bytes in MindSpore's format and in an event file, but for the key
of each number, so it is changed where it is. All others are decoded by protobuf, and their
histograms are converted together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Bytes, Flags, Integers
from rec_summary.records.format import framing
from rec_summary.records.format.framing import crc32c, masked, unmasked
from rec_summary.series.batch import SCALAR
from rec_summary.series.blocks.decoding import DecodedRecord, decode, encode_events
from rec_summary.series.blocks.walk import Walked, unaligned

_LONGEST: Final = 4096  # bytes of a record of scalars that is changed where it is
_DECODED: Final = 1 << 19  # bytes at a time, of records whose histograms are converted together
_SHOWN: Final = 0x15  # the key of a number in an event file
_CHANGED: Final = 0x08  # the bits in which that of a record differs


class Events(NamedTuple):
    """Events of an event file; see `ScannedRecords`.

    Attributes:
        data: The events, framed, each where the record is; undefined where it is not shown.
        larger: Those that have another size or other bytes, by the numbers of the records.
        shown: Which records have an event here, of shape [n].
    """

    data: Bytes
    larger: dict[int, bytes]
    shown: Flags


def events_of(buffer: bytes, at: int, bounds: Integers, walked: Walked) -> Events:
    """Makes events of records.

    Args:
        buffer: A piece of a record file.
        at: Where in it the first record begins.
        bounds: Where the records begin and where the last one ends, counted from `at`.
        walked: The records.
    """
    data = np.frombuffer(buffer, np.uint8)[at : at + bounds[-1]].copy()
    plain = walked.known & _are_plain(walked) & (np.diff(bounds) <= _LONGEST)
    _convert(data, buffer, at, bounds, walked, plain)
    events = Events(data, {}, plain.copy())
    others = np.flatnonzero(walked.known & ~plain)
    groups = np.diff(bounds)[others].cumsum() // _DECODED
    for records in np.split(others, np.flatnonzero(np.diff(groups)) + 1):
        _encode(buffer, at + bounds, records, events)
    return events


def _are_plain(walked: Walked) -> Flags:
    """Returns which records have scalars alone, and nothing that an event file has otherwise."""
    # Events have no field for a time of zero. A signalling NaN becomes a quiet one as a Python
    # float.
    bits = walked.values.view(np.uint32)
    odd = (bits & 0x7FC0_0000 == 0x7F80_0000) & (bits & 0x3F_FFFF != 0)
    odd |= np.array([kind != SCALAR for kind, _ in walked.series], np.bool_)[walked.codes]
    plain: Flags = walked.wall_times != 0
    plain[walked.rows[odd]] = False
    return plain


def _convert(
    data: Bytes, buffer: bytes, at: int, bounds: Integers, walked: Walked, plain: Flags
) -> None:
    """Makes events of records of scalars where they are."""
    chosen = plain[walked.rows]
    rows, keys = walked.rows[chosen], walked.contents[chosen] - 1 - at
    if not len(rows):
        return
    data[keys] = _SHOWN
    footers = bounds[1:] - framing.FOOTER_BYTES
    # A changed bit changes the same bits of a checksum, whatever the other bytes are.
    changes = _changes()[footers[rows] - keys]
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    footers = footers[rows[first]]
    checksums = unmasked(unaligned(buffer, "<u4")[at + footers])
    checksums = masked(checksums ^ np.bitwise_xor.reduceat(changes, first)).astype("<u4")
    data[footers[:, None] + np.arange(framing.FOOTER_BYTES)] = checksums.view(np.uint8).reshape(
        -1, framing.FOOTER_BYTES
    )


@lru_cache(maxsize=1)
def _changes() -> npt.NDArray[np.uint32]:
    """Returns how a checksum changes with the key that is so many bytes before its end."""
    before = after = 0
    changes = [0]
    for number in range(_LONGEST):
        before = crc32c(b"\0", before)
        after = crc32c(b"\0" if number else bytes([_CHANGED]), after)
        changes.append(before ^ after)
    return np.array(changes, np.uint32)


def _encode(buffer: bytes, bounds: Integers, records: Integers, events: Events) -> None:
    """Makes events of records of any values, of all together."""
    decoded: list[tuple[int, bytes, DecodedRecord]] = []
    for number in records.tolist():
        payload = buffer[
            bounds[number] + framing.HEADER_BYTES : bounds[number + 1] - framing.FOOTER_BYTES
        ]
        record = decode(payload)
        if record is not None:
            decoded.append((number, payload, record))
    encoded = encode_events([record for _, _, record in decoded])
    for (number, payload, _), event in zip(decoded, encoded, strict=True):
        if event is not None:
            events.shown[number] = True
            if event != payload:
                events.larger[number] = framing.frame(event)
