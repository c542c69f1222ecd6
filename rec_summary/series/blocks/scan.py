"""Records of scalars and histograms, many at a time.

A record of scalars has the same bytes in MindSpore's format and in an event file, but for the key
of each number. In a training, thousands of records differ only in their time, step and numbers. So
records are grouped by their fixed bytes, and checked and converted as columns: a few dozen
operations of NumPy do for thousands of records. All other records are taken one by one: decoded
by protobuf, or, where events of an event file are asked for, taken apart on the wire, and their
histograms are converted together.

Checksums of many records are compared with one: a CRC is linear, so that all byte strings of one
length, each with its own CRC behind it, have the same CRC. Records of one length, one behind the
other, have the CRC of as many others. One that is damaged changes it in any case, and two or more
do not by a chance of 2^-32, as with the CRC of one record.

A record of any other form is left out, and decoded by itself; both ways give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.records.format import framing
from rec_summary.records.format.framing import crc32c, masked, unmasked
from rec_summary.series.batch import IMAGE, SCALAR, Bytes, Floats, Integers, Series
from rec_summary.series.blocks.block import ScannedRecords
from rec_summary.series.blocks.histograms import convert
from rec_summary.series.blocks.wire_record import (
    MOST_STEPS,
    DecodedRecord,
    WireRecord,
    decode,
    take_apart,
)

_WORDS: Final = 1 << 16  # that are searched at a time: they fit the cache of a core
_LONGEST: Final = 2048  # of a payload
_MOST_LAYOUTS: Final = 128  # of the records of one length
_MOST_LENGTHS: Final = 64
_ROWS: Final = 4096  # that are gathered at a time: they fit the cache of a core
_FEW: Final = 32  # of fewer records of one layout, one by one costs less
_MOST_POOR: Final = 64  # layouts of few records, in a block
_MOST_OTHERS: Final = 8  # records of other kinds, of one length, before scalars are given up
_STEP_AT: Final = 10  # in a payload, behind the time and the key of the step
_STEP_BYTES: Final = 5  # at most, as steps are below `MOST_STEPS`
_LONGEST_HEAD: Final = _STEP_AT + 7  # time, step, the key of the summary, and one byte
_ENDS: Final = 0x80_8080_8080  # the bit of each byte of a step that says that more follow
_WALL_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A  # keys
_RECORDED, _SHOWN = 0x1D, 0x15  # the keys of a number in a record and in an event file


def scan(
    buffer: bytes, at: int, offset: int, *, frames: bool = True, steps_only: bool = False
) -> ScannedRecords | None:
    """Reads the whole records in a buffer.

    Args:
        buffer: A piece of a record file.
        at: Where in it a record begins.
        offset: Where in the file that is.
        frames: Whether to make the events of an event file as well.
        steps_only: Whether to read steps and times only, of any values; their checksums are not
            compared.

    Returns:
        The records up to the first that is incomplete or has a wrong header; None if there
        is none, or if hardly any is of scalars alone.
    """
    bounds = _starts(buffer, at)
    if len(bounds) < 2:
        return None
    found = _Scan(buffer, at, bounds, frames)
    if steps_only:
        found.take_steps()
        return found.part(0, len(bounds) - 1, offset)
    found.run()
    found.leave_repetitions()
    return found.part(0, len(bounds) - 1, offset)


def scan_files(buffers: Sequence[bytes]) -> list[ScannedRecords | None]:
    """Reads several short record files at once, which takes the time of one of their total size.

    Args:
        buffers: The whole content of each file.

    Returns:
        What `scan` returns for each of them, from its beginning; also None if the file does not end
        at the end of a record.
    """
    chosen = list(range(len(buffers)))
    joined, bounds, begins = _joined(buffers)
    if not np.isin(begins, bounds).all():
        chosen = [
            number for number, each in enumerate(buffers) if _starts(each, 0)[-1] == len(each)
        ]
        joined, bounds, begins = _joined([buffers[number] for number in chosen])
    results: list[ScannedRecords | None] = [None] * len(buffers)
    if chosen:
        found = _Scan(joined, 0, bounds, frames=False)
        found.run()
        places = np.searchsorted(bounds, begins).tolist()
        found.leave_repetitions(places[:-1])
        for number, first, last in zip(chosen, places, places[1:], strict=False):
            results[number] = found.part(first, last, 0)
    return results


def _joined(buffers: Sequence[bytes]) -> tuple[bytes, Integers, Integers]:
    """Returns buffers as one, where records begin in it, and where the buffers begin and end."""
    joined = b"".join(buffers)
    return joined, _starts(joined, 0), np.cumsum([0, *map(len, buffers)])


def _starts(buffer: bytes, at: int) -> Integers:
    """Returns where records begin, and where the last whole one ends, from `at` on.

    All headers are found together. What looks like one inside a record does not count: each record
    begins where the one before ends.
    """
    begins, lengths = _headers(buffer, at)
    ends = begins + lengths + framing.OVERHEAD_BYTES
    breaks = np.append(np.flatnonzero(begins[1:] != ends[:-1]) + 1, len(begins))
    found, end = [], at
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
    # Where the high byte of a length is not zero, the zeros begin behind it.
    others = np.flatnonzero(checksums[begins] != expected[lengths])
    begins[others] -= 1
    lengths[others] = unaligned(buffer, "<u2")[begins[others]]
    others = others[checksums[begins[others]] != expected[lengths[others]]]
    return np.delete(begins, others), np.delete(lengths, others)


@lru_cache(maxsize=1)
def _header_checksums() -> npt.NDArray[np.uint32]:
    """Returns the masked checksum of each length below 65,536."""
    low, high = (
        np.array([crc32c((number << shift).to_bytes(8, "little")) for number in range(256)], "u4")
        for shift in (0, 8)
    )
    checksums: npt.NDArray[np.uint32] = masked((high ^ high[0])[:, None] ^ low).ravel()
    return checksums


def unaligned(buffer: bytes | Bytes, form: str, offset: int = 0, stride: int = 1) -> Any:
    """Returns the values of a form that begin at every `stride`-th byte from an offset on."""
    count = max(len(buffer) - offset - np.dtype(form).itemsize + stride, 0) // stride
    return np.ndarray((count,), form, buffer if count else b"", offset if count else 0, (stride,))


class _Group(NamedTuple):
    """The records of a group, in pieces. Attributes as in `ScannedRecords`."""

    places: list[Integers]
    values: list[npt.NDArray[np.float32]]

    def add(self, places: Integers, values: npt.NDArray[np.float32]) -> None:
        self.places.append(places)
        self.values.append(values)


_Found = tuple[int, bytes, WireRecord | DecodedRecord, bytes | None]
"""A record: its number, payload, content, and event if that has another size."""


class _Scan:
    """The work on one block.

    Attributes:
        data: What TensorBoard has.
    """

    def __init__(self, buffer: bytes, at: int, bounds: Integers, frames: bool) -> None:
        count = len(bounds) - 1
        self._buffer, self._at, self._frames = buffer, at, frames
        # Copied when the first record is to be changed.
        self.data: Bytes = np.frombuffer(buffer, np.uint8)[at : at + bounds[-1]]
        self._bounds = bounds
        self.group: Integers = np.full(count, -1, np.int64)
        self.steps: Integers = np.zeros(count, np.int64)
        self.wall_times: Floats = np.zeros(count, np.float64)
        self.series: list[tuple[Series, ...]] = []
        self.larger: dict[int, bytes] = {}
        self.groups: list[_Group] = []
        self._numbers: dict[tuple[Series, ...], int] = {}  # of the groups
        self._poor = 0  # layouts of few records so far
        self._taken: npt.NDArray[np.bool_]  # which records have a group before any is excluded

    def run(self) -> None:
        sizes = np.diff(self._bounds)
        counts = np.bincount(sizes[sizes <= _LONGEST], minlength=_LONGEST + 1)
        for size in np.argsort(-counts, kind="stable")[:_MOST_LENGTHS].tolist():
            if size > framing.OVERHEAD_BYTES and counts[size]:
                places = np.flatnonzero(sizes == size)
                for start in range(0, len(places), _ROWS):
                    self._take_length(places[start : start + _ROWS], size)
        self._take_others()
        self._taken = self.group >= 0

    def take_steps(self) -> None:
        """Takes all summaries, as if they had no values."""
        begins = self._at + self._bounds[:-1] + framing.HEADER_BYTES
        begins = np.minimum(begins, len(self._buffer) - _LONGEST_HEAD)
        wall_times = unaligned(self._buffer, "<f8", 1)[begins]
        words = unaligned(self._buffer, "<u8", _STEP_AT - 1)[begins]
        sound = unaligned(self._buffer, "u1")[begins] == _WALL_TIME
        sound &= (words & 0xFF == _STEP) & np.isfinite(wall_times)
        words >>= np.uint64(8)
        # The first byte below 0x80 is the last one of the step; the key of the summary follows.
        ends = ~words & np.uint64(_ENDS)
        behind = (ends & (~ends + np.uint64(1))) << np.uint64(1)
        sound &= (ends != 0) & (words & behind * np.uint64(0xFF) == behind * np.uint64(_SUMMARY))
        steps = _unpacked(words & (behind - np.uint64(1)))
        self.steps[sound], self.wall_times[sound] = steps[sound], wall_times[sound]
        self.group[sound] = self._group_of(())
        nothing = np.zeros((np.count_nonzero(sound), 0), np.float32)
        self.groups[0].add(np.flatnonzero(sound), nothing)
        self._taken = sound

    def part(self, first: int, last: int, offset: int) -> ScannedRecords | None:
        """Returns the records from number `first` up to, not including, `last`.

        Args:
            first: The number of the first record.
            last: The number behind the last record.
            offset: Where in the file the first record begins, in bytes.

        Returns:
            The records; None if hardly any is of scalars alone.
        """
        if np.count_nonzero(self._taken[first:last]) * 2 < last - first:
            return None
        group, steps = self.group[first:last], self.steps[first:last]
        bounds = self._bounds[first : last + 1]
        places, values = [], []
        series: list[tuple[Series, ...]] = []
        numbers = np.full(len(self.groups) + 1, -1, np.int64)  # the last one is that of no group
        for number, (where, scalars) in enumerate(self._sorted):
            among = slice(*np.searchsorted(where, (first, last)))
            if among.start < among.stop:
                numbers[number] = len(series)
                places.append(where[among] - first)
                values.append(scalars[among])
                series.append(self.series[number])
        larger = {number: event for number, event in self.larger.items() if first <= number < last}
        breaks = group < 0
        breaks[1:] |= steps[1:] < steps[:-1]
        return ScannedRecords(
            bounds=bounds + (offset - bounds[0]),
            group=numbers[group],
            series=tuple(series),
            steps=steps,
            wall_times=self.wall_times[first:last],
            places=tuple(places),
            values=tuple(values),
            buffer=self._buffer,
            start=self._at + int(bounds[0]),
            data=self.data if self._frames else None,
            larger=larger,
            cuts=np.array(sorted(larger), np.int64),
            breaks=np.flatnonzero(breaks),
        )

    @cached_property
    def _sorted(self) -> list[tuple[Integers, npt.NDArray[np.float32]]]:
        """The numbers of the records of each group, ascending, and their scalars."""
        found = []
        for group in self.groups:
            where, values = np.concatenate(group.places), np.concatenate(group.values)
            kept = self.group[where] >= 0
            if not kept.all():
                where, values = where[kept], values[kept]
            if (where[1:] < where[:-1]).any():
                order = np.argsort(where, kind="stable")
                where, values = where[order], values[order]
            found.append((where, values))
        return found

    def leave_repetitions(self, begins: Sequence[int] = ()) -> None:
        """Excludes the steps in which a series may have several values.

        Only a step within one stretch counts: a batch ends where steps go back.

        Args:
            begins: The numbers of records with which another file begins.
        """
        known = self.group >= 0
        steps = self.steps[known]
        if (steps[1:] > steps[:-1]).all():
            return
        ends = ~known | (np.diff(self.steps, prepend=self.steps[0]) < 0)
        ends[list(begins)] = True
        keys = np.cumsum(ends)[known] * MOST_STEPS + steps
        shared = len(set(chain(*self.series))) < sum(map(len, self.series))
        count = 1 if shared else len(self.series)
        found, counts = np.unique(
            keys if shared else keys * count + self.group[known], return_counts=True
        )
        if len(found) < len(keys):
            repeated = found[counts > 1] // count
            self.group[np.flatnonzero(known)[np.isin(keys, repeated)]] = -1

    def _take_length(self, places: Integers, size: int) -> None:
        """Takes the records of scalars of one size, layout by layout."""
        rows: Bytes | None = None
        others = 0
        for _ in range(_MOST_LAYOUTS):
            if not len(places) or self._poor > _MOST_POOR or others > _MOST_OTHERS:
                return
            begin = self._at + int(self._bounds[places[0]])
            payload = self._buffer[
                begin + framing.HEADER_BYTES : begin + size - framing.FOOTER_BYTES
            ]
            first = take_apart(payload, 0, len(payload))
            if first is None or not first.holds_only(SCALAR):
                places, rows = places[1:], None if rows is None else rows[1:]
                others += 1
                continue
            if rows is None:
                rows = unaligned(self._buffer, f"V{size}", self._at)[self._bounds[places]]
                rows = rows.view(np.uint8).reshape(-1, size)
            same = _alike(rows, first)
            count = np.count_nonzero(same)
            self._poor += count < _FEW
            if count == len(places):
                self._take(places, rows, first)
                return
            self._take(places[same], rows[same], first)
            places, rows = places[~same], rows[~same]

    def _take(self, places: Integers, rows: Bytes, first: WireRecord) -> None:
        """Takes records that have the layout of the first one."""
        checksums = unmasked(_column(rows, "<u4", -framing.FOOTER_BYTES))
        wall_times = _column(rows, "<f8", framing.HEADER_BYTES + 1)
        bits = np.empty((len(rows), len(first.contents)), np.uint32)
        for number, (at, _) in enumerate(first.contents):
            bits[:, number] = _column(rows, "<u4", framing.HEADER_BYTES + at)
        words = _column(rows, "<u8", framing.HEADER_BYTES + _STEP_AT - 1) >> np.uint64(8)
        words &= np.uint64((1 << 8 * (first.head - _STEP_AT)) - 1)
        steps = _unpacked(words)
        # Events of event files have no field for a step or a time of zero, and a step in its
        # shortest form. A signalling NaN becomes a quiet one as a Python float.
        sound = _undamaged(rows, checksums) & np.isfinite(wall_times) & (wall_times != 0)
        sound &= words >> np.uint64(8 * (first.head - _STEP_AT - 1)) != 0
        if (large := bits & 0x7F80_0000 == 0x7F80_0000).any():
            quiet = (bits & 0x40_0000 != 0) | (bits & 0x3F_FFFF == 0)
            sound &= (quiet | ~large).all(axis=1)
        if not sound.all():
            places, rows, bits = places[sound], rows[sound], bits[sound]
            checksums, wall_times, steps = checksums[sound], wall_times[sound], steps[sound]
        if not len(places):
            return
        self.steps[places], self.wall_times[places] = steps, wall_times
        self.group[places] = number = self._group_of(first.series)
        self.groups[number].add(places, bits.view("<f4"))
        if self._frames:
            self._convert(places, rows, checksums, first)

    def _group_of(self, series: tuple[Series, ...]) -> int:
        number = self._numbers.setdefault(series, len(self.series))
        if number == len(self.series):
            self.series.append(series)
            self.groups.append(_Group([], []))
        return number

    def _take_others(self) -> None:
        """Takes records that are left, one by one."""
        if self._poor > _MOST_POOR:
            return
        found = self._rebuilt() if self._frames else self._decoded()
        rows: dict[int, list[tuple[int, list[float]]]] = {}  # by group
        for place, content, record, larger in found:
            end = self._at + int(self._bounds[place + 1])
            footer = self._buffer[end - framing.FOOTER_BYTES : end]
            if not framing.footer_matches(content, footer):
                continue
            if record.series not in self._numbers and len(self.series) >= _MOST_LAYOUTS:
                continue
            self.group[place] = number = self._group_of(record.series)
            self.steps[place], self.wall_times[place] = record.step, record.wall_time
            if larger is not None:
                self.larger[place] = framing.frame(larger)
            rows.setdefault(number, []).append((place, record.scalars))
        for number, each in rows.items():
            places, values = zip(*each, strict=True)
            numbers = np.array(values, np.float32).reshape(len(each), -1)
            self.groups[number].add(np.array(places, np.int64), numbers)

    def _left(self) -> Iterator[tuple[int, int, int]]:
        """Yields the records that are left: number, and where in the buffer the payload is."""
        for place in np.flatnonzero(self.group < 0).tolist():
            begin, end = (self._at + self._bounds[place : place + 2]).tolist()
            yield place, begin + framing.HEADER_BYTES, end - framing.FOOTER_BYTES

    def _decoded(self) -> Iterator[_Found]:
        """Decodes records with protobuf, which is faster than this module in Python."""
        for place, begin, end in self._left():
            content = self._buffer[begin:end]
            record = decode(content)
            if record is not None:
                yield place, content, record, None

    def _rebuilt(self) -> Iterator[_Found]:
        """Makes events of an event file of records with histograms or images."""
        data = self._buffer
        records = []
        for place, begin, end in self._left():
            record = take_apart(data, begin, end)
            if record is not None and not record.holds_only(SCALAR):
                records.append((place, begin, end, record))
        spans = [span for *_, record in records for span in record.histograms]
        converted: Iterator[bytes | None] = iter(())
        if spans:
            starts, ends = np.array(spans, np.int64).T
            converted = iter(convert(np.frombuffer(data, np.uint8), starts, ends))
        for place, begin, end, record in records:
            larger = None
            if not record.holds_only(IMAGE):
                larger = record.rebuild(data, [next(converted) for _ in record.histograms])
                if larger is None:
                    continue
            yield place, data[begin:end], record, larger

    def _convert(
        self, places: Integers, rows: Bytes, checksums: npt.NDArray[np.uint32], first: WireRecord
    ) -> None:
        payload = slice(framing.HEADER_BYTES, -framing.FOOTER_BYTES)
        before = crc32c(rows[0, payload].tobytes())
        for number, _ in first.contents:
            rows[:, framing.HEADER_BYTES + number - 1] = _SHOWN
        # The same bytes change by the same bits in each row, and so do the checksums.
        changed = np.uint32(before ^ crc32c(rows[0, payload].tobytes()))
        _put_checksums(rows, masked(checksums ^ changed))
        if not self.data.flags.writeable:
            self.data = self.data.copy()
        self.data[self._bounds[places][:, None] + np.arange(rows.shape[1])] = rows


def _variable(first: WireRecord) -> list[int]:
    """Returns the columns of a payload in which records of a layout may differ."""
    numbers = [byte for at, end in first.contents for byte in range(at, end)]
    return [*range(1, 9), *range(_STEP_AT, first.head), *numbers]


def _alike(rows: Bytes, first: WireRecord) -> npt.NDArray[np.bool_]:
    """Returns which rows have the layout of the first one, and its tags."""
    count, size = rows.shape
    fixed = np.full(size, 0xFF, np.uint8)
    fixed[[framing.HEADER_BYTES + column for column in _variable(first)]] = 0
    # Of a step, the bit of each byte that says whether more follow.
    fixed[framing.HEADER_BYTES + _STEP_AT : framing.HEADER_BYTES + first.head] = 0x80
    fixed[-framing.FOOTER_BYTES :] = 0
    different = np.zeros(count, np.uint64)
    for at in sorted({*range(0, size - 7, 8), size - 8}):
        mask = _column(fixed[None], "<u8", at)[0]
        if mask:
            words = _column(rows, "<u8", at)
            words ^= words[0]
            words &= mask
            different |= words
    same: npt.NDArray[np.bool_] = different == 0
    return same


def _column(rows: Bytes, form: str, at: int) -> npt.NDArray[Any]:
    """Returns the values of a form that begin at a column of rows that are one behind the other."""
    count, size = rows.shape
    return np.ndarray((count,), form, rows.data, at % size, (size,)).copy()


def _unpacked(words: npt.NDArray[np.uint64]) -> Integers:
    """Returns the steps that are stored as varints of up to five bytes."""
    steps = np.zeros(len(words), np.uint64)
    for number in range(_STEP_BYTES):
        steps |= words >> np.uint64(number) & np.uint64(0x7F << 7 * number)
    return steps.view(np.int64)


def _undamaged(rows: Bytes, checksums: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Returns which records of one length have these checksums, which are written into them."""
    count, size = rows.shape
    _put_checksums(rows, checksums)
    if crc32c(rows.tobytes()) == _joint_checksum(size, count):
        return np.ones(count, np.bool_)
    each = np.array([crc32c(row.tobytes()) for row in rows], np.uint32)
    sound: npt.NDArray[np.bool_] = each == _joint_checksum(size, 1)
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
