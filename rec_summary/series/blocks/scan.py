"""Records of scalars and histograms, many at a time.

A record of scalars has the same bytes in MindSpore's format and in an event file, but for the key
of each number. In a training, thousands of records differ only in their time, step and numbers. So
records are grouped by their fixed bytes, and checked and converted as columns: a few dozen
operations of NumPy do for thousands of records. All other records are taken one by one: decoded
by protobuf, and where events of an event file are asked for, their histograms are converted
together.

Checksums of many records are compared with one: a CRC is linear, so that all byte strings of one
length, each with its own CRC after it, have the same CRC. Records of one length, one after the
other, have the CRC of as many others. One that is damaged changes it in any case, and two or more
do not by a chance of 2^-32, as with the CRC of one record.

A record of any other form is left out, and decoded by itself; both ways give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Bytes, Flags, Floats, Integers
from rec_summary.records.format import framing
from rec_summary.records.format.framing import crc32c, masked, unmasked
from rec_summary.series.batch import SCALAR, Series, Table
from rec_summary.series.blocks.block import ScannedRecords
from rec_summary.series.blocks.decoding import (
    DecodedRecord,
    Layout,
    decode,
    encode_events,
    layout_of,
)

_WORDS: Final = 1 << 16  # searched at a time: they fit the cache of a core
_LONGEST: Final = 2048  # bytes of a payload
_LARGE: Final = 4096  # bytes of a payload; walking over longer ones takes less than a search
_MOST_LAYOUTS: Final = 128  # of the records of one length
_MOST_LENGTHS: Final = 64
_ROWS: Final = 4096  # gathered at a time: they fit the cache of a core
_FEW: Final = 32  # fewer records of one layout cost less one by one
_MOST_POOR: Final = 64  # layouts of few records, in a block
_MOST_OTHERS: Final = 8  # records of other kinds, of one length, before scalars are given up
_DECODED: Final = 1 << 19  # bytes at a time, of records whose histograms are converted together
_STEP_AT: Final = 10  # in a payload, after the time and the key of the step
_STEP_BYTES: Final = 5  # at most, as steps are below `MOST_STEPS`
_LONGEST_HEAD: Final = _STEP_AT + 7  # time, step, the key of the summary, and one byte
_ENDS: Final = 0x80_8080_8080  # the bit of each byte of a step that says that more follow
_WALL_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A  # keys
_SHOWN: Final = 0x15  # the key of a number in an event file


def scan(
    buffer: bytes, at: int, offset: int, *, frames: bool = True, steps_only: bool = False
) -> ScannedRecords | None:
    """Reads the whole records in a buffer.

    Args:
        buffer: A piece of a record file.
        at: Where in it a record begins.
        offset: Where in the file that is.
        frames: Whether to make the events of an event file as well.
        steps_only: Whether to read steps and times only, of any values; checksums are not
            compared as long as both ascend.

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
        scanned = _Scan(buffer, at, bounds, frames).run()
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
        scanned = _Scan(joined, 0, bounds, frames=False).run(records[:-1])
        for number, first, last in zip(chosen, records, records[1:], strict=False):
            results[number] = _worth(scanned.part(first, last, 0))
    return results


def _worth(scanned: ScannedRecords) -> ScannedRecords | None:
    """Returns records; None if more than half of them could not be read: their steps are 0."""
    return scanned if np.count_nonzero(scanned.steps) * 2 >= len(scanned.steps) else None


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


def unaligned(buffer: bytes, form: str, offset: int = 0) -> Any:
    """Returns the values of a form that begin at each byte from an offset on."""
    count = max(len(buffer) - offset - np.dtype(form).itemsize + 1, 0)
    return np.ndarray((count,), form, buffer, offset if count else 0, (1,))


def _scan_steps(buffer: bytes, at: int, bounds: Integers) -> ScannedRecords:
    """Returns all summaries, as if they had no values."""
    begins = at + bounds[:-1] + framing.HEADER_BYTES
    begins = np.minimum(begins, len(buffer) - _LONGEST_HEAD)
    wall_times = unaligned(buffer, "<f8", 1)[begins]
    words = unaligned(buffer, "<u8", _STEP_AT - 1)[begins]
    known = unaligned(buffer, "u1")[begins] == _WALL_TIME
    known &= (words & 0xFF == _STEP) & np.isfinite(wall_times)
    words >>= np.uint64(8)
    # The first byte below 0x80 is the last one of the step; the key of the summary follows.
    ends = ~words & np.uint64(_ENDS)
    behind = (ends & (~ends + np.uint64(1))) << np.uint64(1)
    known &= (ends != 0) & (words & behind * np.uint64(0xFF) == behind * np.uint64(_SUMMARY))
    steps = np.where(known, _unpacked(words & (behind - np.uint64(1))), 0)
    # Damage shows where steps or times go back, or at an end: there, checksums are compared.
    back = np.ones(len(steps) + 1, np.bool_)
    back[1:-1] = (steps[1:] < steps[:-1]) | (wall_times[1:] < wall_times[:-1])
    known &= ~(back[:-1] | back[1:])
    nothing = np.zeros(0, np.int64)
    table = Table((), nothing, nothing, np.zeros(0, np.float32))
    return ScannedRecords(bounds, known, steps, wall_times, table, buffer, at, None, {})


class _Scan:
    """The work on one piece of a file.

    A group is a sequence of series; all records of a group have a value of each of them.
    """

    def __init__(self, buffer: bytes, at: int, bounds: Integers, frames: bool) -> None:
        count = len(bounds) - 1
        self._buffer, self._at, self._bounds = buffer, at, bounds
        # The events of an event file; copied when the first one is to be changed.
        self._data = np.frombuffer(buffer, np.uint8)[at : at + bounds[-1]] if frames else None
        self._larger: dict[int, bytes] = {}
        self._steps: Integers = np.zeros(count, np.int64)
        self._wall_times: Floats = np.zeros(count, np.float64)
        self._group: Integers = np.full(count, -1, np.int64)  # -1 is that of no group
        self._groups: dict[tuple[Series, ...], int] = {}
        # What was taken, of one group each: the numbers of the records, the group, the scalars.
        self._taken: list[tuple[Integers, int, npt.NDArray[np.float32]]] = []
        self._poor = 0  # layouts of few records so far

    def run(self, begins: Sequence[int] = ()) -> ScannedRecords:
        """Reads the records.

        Args:
            begins: The numbers of records with which another file begins.
        """
        sizes = np.diff(self._bounds)
        counts = np.bincount(sizes[sizes <= _LONGEST], minlength=_LONGEST + 1)
        for size in np.argsort(-counts, kind="stable")[:_MOST_LENGTHS].tolist():
            if size > framing.OVERHEAD_BYTES and counts[size]:
                records = np.flatnonzero(sizes == size)
                for start in range(0, len(records), _ROWS):
                    self._take_length(records[start : start + _ROWS], size)
        if self._poor <= _MOST_POOR:
            others = np.flatnonzero(self._group < 0)
            groups = np.maximum(sizes[others], _LARGE).cumsum() // _DECODED
            for records in np.split(others, np.flatnonzero(np.diff(groups)) + 1):
                self._take_others(records)
        table = self._table()
        return ScannedRecords(
            bounds=self._bounds,
            known=(self._group >= 0) & ~self._repeated(table, begins),
            steps=self._steps,
            wall_times=self._wall_times,
            table=table,
            buffer=self._buffer,
            start=self._at,
            data=self._data,
            larger=self._larger,
        )

    def _table(self) -> Table:
        """Returns the values of all records, in order."""
        codes: dict[Series, int] = {}
        of_groups = [
            np.array([codes.setdefault(series, len(codes)) for series in group], np.int64)
            for group in self._groups
        ]
        counts = np.array([*map(len, of_groups), 0])[self._group]
        ends = np.cumsum(counts)
        table = Table(
            tuple(codes),
            np.repeat(np.arange(len(counts)), counts),
            np.zeros(counts.sum(), np.int64),
            np.zeros(counts.sum(), np.float32),
        )
        first = ends - counts
        for records, group, scalars in self._taken:
            columns = iter(range(scalars.shape[1]))
            for index, code in enumerate(of_groups[group].tolist()):
                positions = first[records] + index
                table.codes[positions] = code
                if table.series[code][0] == SCALAR:
                    table.values[positions] = scalars[:, next(columns)]
        return table

    def _repeated(self, table: Table, begins: Sequence[int]) -> Flags:
        """Returns the records of the steps in which a series has several values.

        Only a step within one stretch counts: a batch ends where steps go back.
        """
        changes = (self._group < 0) | (np.diff(self._steps, prepend=0) != 0)
        changes[list(begins)] = True
        if changes.all():
            return np.zeros(len(changes), np.bool_)
        stretches = np.cumsum(changes)  # of records of one step
        keys = np.sort(stretches[table.rows] * len(table.series) + table.codes)
        again = keys[1:][keys[1:] == keys[:-1]] // len(table.series)
        return np.isin(stretches, again)

    def _take_length(self, records: Integers, size: int) -> None:
        """Takes the records of scalars of one size, layout by layout."""
        rows: Bytes | None = None
        others = 0
        for _ in range(_MOST_LAYOUTS):
            if not len(records) or self._poor > _MOST_POOR or others > _MOST_OTHERS:
                return
            begin = self._at + int(self._bounds[records[0]])
            payload = self._buffer[
                begin + framing.HEADER_BYTES : begin + size - framing.FOOTER_BYTES
            ]
            layout = layout_of(payload)
            if layout is None:
                records, rows = records[1:], None if rows is None else rows[1:]
                others += 1
                continue
            if rows is None:
                rows = unaligned(self._buffer, f"V{size}", self._at)[self._bounds[records]]
                rows = rows.view(np.uint8).reshape(-1, size)
            same = _alike(rows, layout)
            count = np.count_nonzero(same)
            self._poor += count < _FEW
            if count == len(records):
                self._take(records, rows, layout)
                return
            self._take(records[same], rows[same], layout)
            records, rows = records[~same], rows[~same]

    def _take(self, records: Integers, rows: Bytes, layout: Layout) -> None:
        """Takes records of one layout."""
        checksums = unmasked(_column(rows, "<u4", -framing.FOOTER_BYTES))
        wall_times = _column(rows, "<f8", framing.HEADER_BYTES + 1)
        bits = np.empty((len(rows), len(layout.value_offsets)), np.uint32)
        for column, offset in enumerate(layout.value_offsets):
            bits[:, column] = _column(rows, "<u4", framing.HEADER_BYTES + offset)
        words = _column(rows, "<u8", framing.HEADER_BYTES + _STEP_AT - 1) >> np.uint64(8)
        words &= np.uint64((1 << 8 * (layout.head - _STEP_AT)) - 1)
        steps = _unpacked(words)
        # Events of event files have no field for a step or a time of zero, and a step in its
        # shortest form. A signalling NaN becomes a quiet one as a Python float.
        sound = _undamaged(rows, checksums) & np.isfinite(wall_times) & (wall_times != 0)
        sound &= words >> np.uint64(8 * (layout.head - _STEP_AT - 1)) != 0
        if (large := bits & 0x7F80_0000 == 0x7F80_0000).any():
            quiet = (bits & 0x40_0000 != 0) | (bits & 0x3F_FFFF == 0)
            sound &= (quiet | ~large).all(axis=1)
        if not sound.all():
            records, rows, bits = records[sound], rows[sound], bits[sound]
            checksums, wall_times, steps = checksums[sound], wall_times[sound], steps[sound]
        if not len(records):
            return
        self._put(records, layout.series, steps, wall_times, bits.view("<f4"))
        if self._data is not None:
            self._convert(records, rows, checksums, layout)

    def _put(
        self,
        records: Integers,
        series: tuple[Series, ...],
        steps: Integers,
        wall_times: Floats,
        scalars: npt.NDArray[np.float32],
    ) -> None:
        """Adds records of a group."""
        self._steps[records], self._wall_times[records] = steps, wall_times
        self._group[records] = group = self._groups.setdefault(series, len(self._groups))
        self._taken.append((records, group, scalars))

    def _take_others(self, records: Integers) -> None:
        """Decodes records one by one, and makes events of an event file of them together."""
        decoded: list[tuple[int, bytes, DecodedRecord]] = []
        begins = (self._at + self._bounds[records]).tolist()
        ends = (self._at + self._bounds[1:][records]).tolist()
        for number, begin, end in zip(records.tolist(), begins, ends, strict=True):
            footer = end - framing.FOOTER_BYTES
            payload = self._buffer[begin + framing.HEADER_BYTES : footer]
            if framing.footer_matches(payload, self._buffer[footer:end]):
                record = decode(payload)
                # Only what has all required fields becomes an event.
                if record is not None and (self._data is not None or record.event.IsInitialized()):
                    decoded.append((number, payload, record))
        if self._data is not None:
            events = encode_events([record for _, _, record in decoded])
            known = [
                (*each, event)
                for each, event in zip(decoded, events, strict=True)
                if event is not None
            ]
            for number, payload, _, event in known:
                if event != payload:
                    self._larger[number] = framing.frame(event)
            decoded = [(number, payload, record) for number, payload, record, _ in known]
        alike: dict[tuple[Series, ...], list[tuple[Any, ...]]] = {}
        for number, _, record in decoded:
            row = number, record.step, record.wall_time, record.scalars
            alike.setdefault(record.series, []).append(row)
        for series, rows in alike.items():
            if series in self._groups or len(self._groups) < _MOST_LAYOUTS:
                numbers, steps, wall_times, scalars = map(np.array, zip(*rows, strict=True))
                self._put(numbers, series, steps, wall_times, scalars.astype(np.float32))

    def _convert(
        self, records: Integers, rows: Bytes, checksums: npt.NDArray[np.uint32], layout: Layout
    ) -> None:
        """Makes events of an event file of records of scalars."""
        assert self._data is not None
        payload = slice(framing.HEADER_BYTES, -framing.FOOTER_BYTES)
        before = crc32c(rows[0, payload].tobytes())
        for offset in layout.value_offsets:
            rows[:, framing.HEADER_BYTES + offset - 1] = _SHOWN
        # The same bytes change by the same bits in each row, and so do the checksums.
        changed = np.uint32(before ^ crc32c(rows[0, payload].tobytes()))
        _put_checksums(rows, masked(checksums ^ changed))
        if not self._data.flags.writeable:
            self._data = self._data.copy()
        self._data[self._bounds[records][:, None] + np.arange(rows.shape[1])] = rows


def _alike(rows: Bytes, layout: Layout) -> Flags:
    """Returns which rows have the layout of the first one, and its tags."""
    count, size = rows.shape
    fixed = np.full(size, 0xFF, np.uint8)
    payload = fixed[framing.HEADER_BYTES :]
    payload[1:9] = 0  # the time, after its key
    payload[_STEP_AT : layout.head] = 0x80  # the bit of each byte that says whether more follow
    for offset in layout.value_offsets:
        payload[offset : offset + 4] = 0
    fixed[-framing.FOOTER_BYTES :] = 0
    different = np.zeros(count, np.uint64)
    for at in sorted({*range(0, size - 7, 8), size - 8}):
        mask = _column(fixed[None], "<u8", at)[0]
        if mask:
            words = _column(rows, "<u8", at)
            words ^= words[0]
            words &= mask
            different |= words
    same: Flags = different == 0
    return same


def _column(rows: Bytes, form: str, at: int) -> Array:
    """Returns the values of a form that begin at a column of rows that are one behind the other."""
    count, size = rows.shape
    return np.ndarray((count,), form, rows.data, at % size, (size,)).copy()


def _unpacked(words: npt.NDArray[np.uint64]) -> Integers:
    """Returns the steps that are stored as varints of up to five bytes."""
    steps = np.zeros(len(words), np.uint64)
    for number in range(_STEP_BYTES):
        steps |= words >> np.uint64(number) & np.uint64(0x7F << 7 * number)
    return steps.view(np.int64)


def _undamaged(rows: Bytes, checksums: npt.NDArray[np.uint32]) -> Flags:
    """Returns which records of one length have these checksums, which are written into them."""
    count, size = rows.shape
    _put_checksums(rows, checksums)
    if crc32c(rows.tobytes()) == _joint_checksum(size, count):
        return np.ones(count, np.bool_)
    each = np.array([crc32c(row.tobytes()) for row in rows], np.uint32)
    sound: Flags = each == _joint_checksum(size, 1)
    return sound


@lru_cache(maxsize=256)
def _joint_checksum(size: int, count: int) -> int:
    """Returns the checksum of sound records of a size, with checksums that are not masked."""
    payload = bytes(size - framing.OVERHEAD_BYTES)
    sample = framing.frame(payload)[: -framing.FOOTER_BYTES]
    return crc32c((sample + crc32c(payload).to_bytes(framing.FOOTER_BYTES, "little")) * count)


def _put_checksums(rows: Bytes, checksums: npt.NDArray[np.uint32]) -> None:
    footers = checksums.astype("<u4").reshape(-1, 1).view(np.uint8)
    rows[:, -framing.FOOTER_BYTES :] = footers
