"""Blocks of records: where they begin, and what is in them, as columns.

`walk` reads the records of a block together. A record that it does not know is left out, and
decoded by itself; both ways give the same values, and the same bytes of an event file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Flags, Integers
from rec_summary.records.format import framing
from rec_summary.records.format.framing import crc32c, masked
from rec_summary.records.format.wire import unaligned
from rec_summary.series.batch import Table
from rec_summary.series.blocks.block import ScannedRecords
from rec_summary.series.blocks.rendering import render
from rec_summary.series.blocks.walk import HEAD_BYTES, Names, heads, walk

_WORDS: Final = 1 << 16  # searched at a time: they fit the cache of a core
_LARGE: Final = 4096  # bytes of a payload; walking over longer ones takes less than a search


def scan(
    buffer: bytes,
    at: int,
    offset: int,
    *,
    frames: bool = True,
    steps_only: bool = False,
    names: Names | None = None,
) -> ScannedRecords | None:
    """Reads the whole records in a buffer.

    Args:
        buffer: A piece of a record file.
        at: Where in it a record begins.
        offset: Where in the file that is.
        frames: Whether to make the events of an event file as well.
        steps_only: Whether to read steps and times only, of any values; checksums are not
            compared as long as both ascend.
        names: What was learnt from the pieces of the file before.

    Returns:
        The records up to the first that is incomplete or has a wrong header; None if there
        is none, or if hardly any is of scalars alone.
    """
    bounds = _starts(buffer, at)
    if len(bounds) < 2:
        return None
    if steps_only:
        scanned = _scan_steps(buffer, at, bounds)
    else:
        scanned = _scan(buffer, at, bounds, frames, names=names)
    return _worth(scanned.part(0, len(bounds) - 1, offset))


def scan_files(buffers: Sequence[bytes]) -> list[ScannedRecords | None]:
    """Reads several short record files at once, which takes the time of one of their total size.

    Args:
        buffers: The whole content of each file.

    Returns:
        What `scan` returns for each of them, from its beginning; also None if the file does not end
        at the end of a record.
    """
    chosen = [number for number, buffer in enumerate(buffers) if buffer]  # or cut off meanwhile
    joined, bounds, begins = _joined([buffers[number] for number in chosen])
    if not np.isin(begins, bounds).all():
        chosen = [
            number for number in chosen if _starts(buffers[number], 0)[-1] == len(buffers[number])
        ]
        joined, bounds, begins = _joined([buffers[number] for number in chosen])
    results: list[ScannedRecords | None] = [None] * len(buffers)
    if chosen:
        records = np.searchsorted(bounds, begins).tolist()
        scanned = _scan(joined, 0, bounds, False, records[:-1])
        for number, first, last in zip(chosen, records, records[1:], strict=False):
            results[number] = _worth(scanned.part(first, last, 0))
    return results


def _worth(scanned: ScannedRecords) -> ScannedRecords | None:
    """Returns records; None if more than half of them could not be read: their steps are 0."""
    return scanned if np.count_nonzero(scanned.steps) * 2 >= len(scanned.steps) else None


def _scan(
    buffer: bytes,
    at: int,
    bounds: Integers,
    frames: bool,
    begins: Sequence[int] = (),
    names: Names | None = None,
) -> ScannedRecords:
    """Reads all records; `begins` are the numbers of those with which another file begins."""
    walked = walk(buffer, at, bounds, names)
    known, events = walked.known, None
    if frames:
        events = render(buffer, at + bounds, walked)
        known = events.known
        walked.steps[~known] = 0
    table = Table(walked.series, walked.rows, walked.codes, walked.values)
    known &= ~_repeated(known, walked.steps, table, begins)
    return ScannedRecords(
        *(bounds, known, walked.steps, walked.wall_times, table, buffer, at, events)
    )


def _repeated(known: Flags, steps: Integers, table: Table, begins: Sequence[int]) -> Flags:
    """Returns the records of the steps in which a series has several values.

    Only a step within one stretch counts: a batch ends where steps go back.
    """
    changes = ~known | (np.diff(steps, prepend=0) != 0)
    changes[list(begins)] = True
    if changes.all():
        return np.zeros(len(changes), np.bool_)
    stretches = np.cumsum(changes)  # of records of one step
    keys = np.sort(stretches[table.rows] * len(table.series) + table.codes)
    again = keys[1:][keys[1:] == keys[:-1]] // len(table.series)
    return np.isin(stretches, again)


def _joined(buffers: Sequence[bytes]) -> tuple[bytes, Integers, Integers]:
    """Returns buffers as one, where records begin in it, and where the buffers begin and end."""
    joined = b"".join(buffers)
    return joined, _starts(joined, 0), np.cumsum([0, *map(len, buffers)])


def _starts(buffer: bytes, at: int) -> Integers:
    """Returns where records begin, and where the last whole one ends, from `at` on.

    All headers are found together, once there is a record that is not large. What looks like one
    inside a record does not count: each record begins where the one before ends.
    """
    begins, ends, breaks = np.zeros((3, 0), np.int64)
    found, end, is_searched = [], at, False
    while end <= len(buffer) - framing.OVERHEAD_BYTES:
        first = int(np.searchsorted(begins, end))
        if first < len(begins) and begins[first] == end:
            last = breaks[np.searchsorted(breaks, first, "right")]
            found.append(begins[first:last])
            end = int(ends[last - 1])
            continue
        length = framing.unpack_header(buffer[end : end + framing.HEADER_BYTES])
        if length is None or length > len(buffer) - end - framing.OVERHEAD_BYTES:
            break  # it may be beyond 64 bits
        if length < _LARGE and not is_searched:
            is_searched = True
            begins, lengths = _headers(buffer, end)
            ends = begins + lengths + framing.OVERHEAD_BYTES
            breaks = np.append(np.flatnonzero(begins[1:] != ends[:-1]) + 1, len(begins))
            continue
        found.append(np.array([end]))
        end += length + framing.OVERHEAD_BYTES
    starts: Integers = np.concatenate([*found, np.array([end])]) - at
    return starts if end <= len(buffer) else starts[:-1]


def _headers(buffer: bytes, at: int) -> tuple[Integers, Integers]:
    """Returns where headers of lengths from 1 to 65,535 seem to be, and these lengths.

    Behind the one or two bytes of such a length are six zero bytes or more: at least two words.
    """
    even = at - at % 2
    words = np.frombuffer(buffer, "<u2", (len(buffer) - even) // 2, even)
    found = []
    for begin in range(0, max(len(words) - 2, 1), _WORDS):
        zero = words[begin : begin + _WORDS + 2] == 0
        pairs = zero[:-1] & zero[1:]
        found.append(np.flatnonzero(pairs[1:] > pairs[:-1]) + begin)
    zeros = 2 * np.concatenate(found) + 2 + even
    zeros = zeros[: np.searchsorted(zeros, len(buffer) - framing.HEADER_BYTES, "right")]
    data, expected = np.frombuffer(buffer, np.uint8), _header_checksums()
    checksums = unaligned(buffer, "<u4", framing.HEADER_BYTES - 4)
    begins = zeros - 1 - (data[zeros - 1] == 0)
    lengths = data[begins].astype(np.int64)
    # Where the high byte of a length is not zero, the zeros begin after it.
    others = np.flatnonzero(checksums[begins] != expected[lengths])
    begins[others] -= 1
    lengths[others] = unaligned(buffer, "<u2")[begins[others]]
    sound = (checksums[begins] == expected[lengths]) & (unaligned(buffer, "<u8")[begins] == lengths)
    return begins[sound], lengths[sound]


@lru_cache(maxsize=1)
def _header_checksums() -> npt.NDArray[np.uint32]:
    """Returns the masked checksum of each length below 65,536."""
    low, high = (
        np.array([crc32c((number << shift).to_bytes(8, "little")) for number in range(256)], "u4")
        for shift in (0, 8)
    )
    checksums: npt.NDArray[np.uint32] = masked((high ^ high[0])[:, None] ^ low).ravel()
    return checksums


def _scan_steps(buffer: bytes, at: int, bounds: Integers) -> ScannedRecords:
    """Returns all summaries, as if they had no values."""
    begins = at + bounds[:-1] + framing.HEADER_BYTES
    begins = np.minimum(begins, len(buffer) - HEAD_BYTES)
    known, steps, wall_times, _ = heads(buffer, begins)
    steps[~known] = 0
    # Damage shows where steps or times go back, or at an end: there, checksums are compared.
    back = np.ones(len(steps) + 1, np.bool_)
    back[1:-1] = (steps[1:] < steps[:-1]) | (wall_times[1:] < wall_times[:-1])
    known &= ~(back[:-1] | back[1:])
    nothing = np.zeros(0, np.int64)
    table = Table((), nothing, nothing, np.zeros(0, np.float32))
    return ScannedRecords(bounds, known, steps, wall_times, table, buffer, at, None)
