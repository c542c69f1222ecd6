"""Records of scalars and histograms, many at a time.

A record of scalars has the same bytes in MindSpore's format and in an event file, but for the key
of each number. In a training, thousands of records differ only in their time, step and numbers. So
records are grouped by their fixed bytes, and checked and converted as columns: a few dozen
operations of NumPy do for thousands of records. All other records are taken one by one: decoded
by protobuf, or, where events of an event file are asked for, taken apart on the wire, and their
histograms are converted together.

A record of any other form is left out, and decoded by itself; both ways give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.records.format import framing
from rec_summary.records.format.framing import contribution, masked, row_checksums
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

_NO_LENGTH: Final = framing.crc32c(bytes(8))  # the checksum of a length of 0
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

    A header is known by six zero bytes, since a length is mostly below 65,536, and by its checksum.
    All headers are found together. What looks like one inside a record does not count: each record
    begins where the one before ends.
    """
    data = np.frombuffer(buffer, np.uint8)[at:]
    zero = data == 0
    pairs = zero[:-1] & zero[1:]
    begins = np.flatnonzero(pairs[2:-4] & pairs[4:-2] & pairs[6:] & ~pairs[:-6])
    begins = begins[begins <= len(data) - framing.HEADER_BYTES]
    low, high = data[begins], data[begins + 1]
    checksums = contribution(8, 0)[low] ^ contribution(8, 1)[high] ^ np.uint32(_NO_LENGTH)
    begins = begins[unaligned(buffer, "<u4", at + 8)[begins] == masked(checksums)]
    lengths = data[begins] | data[begins + 1].astype(np.int64) << 8
    ends = begins + lengths + framing.OVERHEAD_BYTES
    breaks = np.append(np.flatnonzero(begins[1:] != ends[:-1]) + 1, len(begins))
    found, end = [], 0
    while end <= len(data) - framing.OVERHEAD_BYTES:
        first = int(np.searchsorted(begins, end))
        if first < len(begins) and begins[first] == end:
            last = breaks[np.searchsorted(breaks, first, "right")]
            found.append(begins[first:last])
            end = int(ends[last - 1])
            continue
        length = framing.unpack_header(buffer[at + end : at + end + framing.HEADER_BYTES])
        if length is None or length > len(data) - end - framing.OVERHEAD_BYTES:
            break  # it may be beyond 64 bits
        found.append(np.array([end]))
        end += length + framing.OVERHEAD_BYTES
    starts: Integers = np.concatenate([*found, np.array([end])])
    return starts if end <= len(data) else starts[:-1]


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
        words &= behind - np.uint64(1)
        steps: Integers = np.zeros(len(words), np.int64)
        for number in range(_STEP_BYTES):
            steps |= (words >> np.uint64(number) & np.uint64(0x7F << 7 * number)).astype(np.int64)
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
        goes_back = np.diff(steps, prepend=steps[0]) < 0
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
            breaks=np.flatnonzero((group < 0) | goes_back),
        )

    @cached_property
    def _sorted(self) -> list[tuple[Integers, npt.NDArray[np.float32]]]:
        """The numbers of the records of each group, ascending, and their scalars."""
        found = []
        for group in self.groups:
            where, values = np.concatenate(group.places), np.concatenate(group.values)
            kept = self.group[where] >= 0
            order = np.argsort(where[kept], kind="stable")
            found.append((where[kept][order], values[kept][order]))
        return found

    def leave_repetitions(self, begins: Sequence[int] = ()) -> None:
        """Excludes the steps in which a series may have several values.

        Only a step within one stretch counts: a batch ends where steps go back.

        Args:
            begins: The numbers of records with which another file begins.
        """
        known = self.group >= 0
        ends = ~known | (np.diff(self.steps, prepend=self.steps[0]) < 0)
        ends[list(begins)] = True
        keys = np.cumsum(ends)[known] * MOST_STEPS + self.steps[known]
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
        payloads = rows[:, framing.HEADER_BYTES : -framing.FOOTER_BYTES]
        checksums = row_checksums(payloads, _variable(first))
        stored = _column(rows, "<u4", -framing.FOOTER_BYTES)
        wall_times = _column(payloads, "<f8", 1)
        bits = np.empty((len(rows), len(first.contents)), np.uint32)
        for number, (at, _) in enumerate(first.contents):
            bits[:, number] = _column(payloads, "<u4", at)
        steps: Integers = np.zeros(len(payloads), np.int64)
        for at in range(_STEP_AT, first.head):
            steps |= (payloads[:, at].astype(np.int64) & 0x7F) << 7 * (at - _STEP_AT)
        # Events of event files have no field for a step or a time of zero, and a step in its
        # shortest form. A signalling NaN becomes a quiet one as a Python float.
        sound = (stored == masked(checksums)) & np.isfinite(wall_times)
        sound &= (steps != 0) & (wall_times != 0) & (payloads[:, first.head - 1] != 0)
        sound &= (((bits & 0x7FC0_0000) != 0x7F80_0000) | (bits & 0x3F_FFFF == 0)).all(axis=1)
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
            begin, end = (
                self._at + int(self._bounds[place]),
                self._at + int(self._bounds[place + 1]),
            )
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
        length = rows.shape[1] - framing.OVERHEAD_BYTES
        for number, _ in first.contents:
            rows[:, framing.HEADER_BYTES + number - 1] = _SHOWN
            checksums = checksums ^ contribution(length, number - 1)[_RECORDED ^ _SHOWN]
        footers = masked(checksums).astype("<u4").reshape(-1, 1).view(np.uint8)
        rows[:, -framing.FOOTER_BYTES :] = footers
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
    same: npt.NDArray[np.bool_] = np.ones(count, np.bool_)
    for at in sorted({*range(0, size - 7, 8), size - 8}):
        mask = _column(fixed[None], "<u8", at)[0]
        if mask:
            words = _column(rows, "<u8", at)
            same &= (words ^ words[0]) & mask == 0
    return same


def _column(rows: Bytes, form: str, at: int) -> npt.NDArray[Any]:
    """Returns the values of a form that begin at a column of rows."""
    part = rows[:, at : at + np.dtype(form).itemsize or None]
    return np.ascontiguousarray(part).view(form)[:, 0]
