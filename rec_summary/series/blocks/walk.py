"""Summary records of a piece of a file, walked in step: the first values of all, then the second.

The records of a training differ in which values they have, and in their sizes, so nothing is at
the same place in all of them. But each value says where the next one begins: an array of places,
one of each record, goes on from value to value, with a few dozen operations of NumPy for thousands
of records. Records are begun as others end, so that the array stays about as long as the caches of
a core allow.

A series is found by a hash of the tag and the key behind it. The bytes are compared with those that
had this hash first. A record of another form than MindSpore's and ours is left to protobuf.

Checksums of many records are compared with one: a CRC is linear, so that all byte strings of one
length, each with its own CRC after it, have the same CRC. Records of one length, one after the
other, have the CRC of as many others. One that is damaged changes it in any case, and two or more
do not by a chance of 2^-32, as with the CRC of one record.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.arrays import Array, Bytes, Flags, Floats, Integers
from rec_summary.records.format import framing, wire
from rec_summary.records.format.framing import crc32c, masked, unmasked
from rec_summary.records.format.limits import LONGEST_TAG
from rec_summary.records.format.wire import unaligned
from rec_summary.series.batch import SCALAR, Series

_PIECE: Final = 4096  # records that are begun at a time: what is walked fits the cache of a core
_LEAST: Final = 2048  # records to be walked together, as long as there are more
_FEW: Final = 32  # so few records take less time one by one, where they have
_MOST_ALONE: Final = 64  # values or more behind the last record that was begun
_ROWS: Final = 4096  # whose checksums are compared at a time
_FEW_ROWS: Final = 8  # of one length; fewer take less time one by one
_NAME_BYTES: Final = 128  # of a tag and a key; longer ones are looked up one by one
_MOST_SERIES: Final = 1 << 14  # in a piece of a file
_PADDING: Final = 64 + _NAME_BYTES  # bytes that may be read behind the last record
_STEP_AT: Final = 10  # in a payload, after the time and the key of the step
_STEP_BYTES: Final = 5  # at most, as steps are below 2^35
HEAD_BYTES: Final = _STEP_AT + _STEP_BYTES + 2  # with the key of the summary, and one more
_WALL_TIME, _STEP, _SUMMARY, _MESSAGE = 0x09, 0x10, 0x2A, 0x0A  # keys
_SCALAR: Final = 0x1D
_BEYOND: Final = 1 << 40  # a length that nothing has
_MULTIPLIER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
_KINDS: Final = {
    wire.key(field.number, wire.FIXED32 if field.name == SCALAR else wire.LENGTH): field.name
    for field in Summary.Value.DESCRIPTOR.oneofs_by_name["value"].fields
}


class Walked(NamedTuple):
    """The records and values that were found, of shape [n] and [v].

    Attributes:
        known: Which records are undamaged and of the expected form, of shape [n]. All others have
            no values here.
        steps: The training steps, from 1 up to 2^35 - 1, of shape [n]; 0 where not known.
        wall_times: Seconds since the epoch, finite, of shape [n]; 0 where not known.
        series: Each once, in the order in which they begin.
        rows: The number of the record that holds each value, ascending, of shape [v].
        codes: The number of each value's series in `series`, of shape [v].
        contents: Where in the buffer the value begins: the four bytes of a scalar, or a message
            behind its length, of shape [v]. Messages are not looked into.
        sizes: The bytes of each value, of shape [v].
        values: The scalars; of other values, any number, of shape [v].
    """

    known: Flags
    steps: Integers
    wall_times: Floats
    series: tuple[Series, ...]
    rows: Integers
    codes: Integers
    contents: Integers
    sizes: Integers
    values: npt.NDArray[np.float32]


def walk(buffer: bytes, at: int, bounds: Integers, names: Names | None = None) -> Walked:
    """Reads the records of scalars and other values in a buffer.

    Args:
        buffer: A piece of a record file.
        at: Where in it the first record begins.
        bounds: Where the records begin, and where the last one ends, counted from `at`, of shape
            [n + 1].
        names: What was learnt from the pieces of the file before.
    """
    return _Walk(buffer, at + bounds, names or Names()).run()


class _Walk:
    """The work on one piece of a file."""

    def __init__(self, buffer: bytes, bounds: Integers, names: Names) -> None:
        count = len(bounds) - 1
        self._data = data = buffer + bytes(_PADDING)
        self._bytes = np.frombuffer(data, np.uint8)
        self._bounds = bounds
        self._names = names
        names.begin(data)
        self._known = _sound(data, bounds)
        self._steps: Integers = np.zeros(count, np.int64)
        self._wall_times: Floats = np.zeros(count, np.float64)
        # Of each value: record, place in it, series, where the value begins and ends.
        self._found: list[tuple[Integers, ...]] = []

    def run(self) -> Walked:
        count, begun, alone = len(self._known), 0, 0
        rows = places = positions = np.zeros(0, np.int64)
        while len(rows) or begun < count:
            if len(rows) < _LEAST and begun < count:
                records = np.arange(begun, min(begun + _PIECE, count))
                records, first = self._begin(records[self._known[records]])
                rows = np.concatenate([rows, records])
                places = np.concatenate([places, np.zeros(len(records), np.int64)])
                positions = np.concatenate([positions, first])
                begun, alone = begun + _PIECE, 0
                continue
            alone += 1
            if alone > _MOST_ALONE and len(rows) < _FEW:
                self._known[rows] = False
                break
            rows, places, positions = self._go_on(rows, places, positions)
        return self._walked()

    def _begin(self, rows: Integers) -> tuple[Integers, Integers]:
        """Reads time and step; returns the records with values, and where these begin."""
        begins = self._bounds[rows] + framing.HEADER_BYTES
        ends = self._bounds[rows + 1] - framing.FOOTER_BYTES
        good, steps, wall_times, sizes = heads(self._data, begins)
        lengths, positions = self._varints(begins + _STEP_AT + sizes + 1)
        good &= (steps > 0) & (wire.lengths(steps) == sizes)
        good &= (lengths > 0) & (positions + lengths == ends)
        self._known[rows[~good]] = False
        rows = rows[good]
        self._steps[rows], self._wall_times[rows] = steps[good], wall_times[good]
        return rows, positions[good]

    def _go_on(
        self, rows: Integers, places: Integers, positions: Integers
    ) -> tuple[Integers, Integers, Integers]:
        """Reads one value of each record; returns the records that have more."""
        data = self._bytes
        limits = self._bounds[rows + 1] - framing.FOOTER_BYTES
        lengths, inner = self._varints(positions + 1)
        ends = inner + lengths
        sizes, tags = self._varints(inner + 1)
        keys = tags + sizes
        good = (data[positions] == _MESSAGE) & (data[inner] == _MESSAGE)
        good &= (ends <= limits) & (keys < ends) & (sizes > 0)
        if not good.all():
            rows, places, limits, ends, tags, keys = self._keep(
                good, rows, places, limits, ends, tags, keys
            )
        first = data[keys]
        contents, good = keys + 1, first != 0
        if not (first == _SCALAR).all():
            two = first >= 0x80
            good &= ~two | (data[contents] != 0)
            contents += two
            lengths, behind = self._varints(contents)
            np.copyto(lengths, 4, where=first == _SCALAR)
            contents = np.where(first == _SCALAR, contents, behind)
            names = keys + 1 + two
        else:
            lengths, names = np.full(len(keys), 4), contents
        good &= contents + lengths == ends
        if not good.all():
            rows, places, limits, ends, tags, names, contents = self._keep(
                good, rows, places, limits, ends, tags, names, contents
            )
        codes = self._names.codes(tags, names - tags)
        good = codes >= 0
        if not good.all():
            rows, places, limits, ends, codes, contents = self._keep(
                good, rows, places, limits, ends, codes, contents
            )
        self._found.append((rows, places, codes, contents, ends))
        more = ends < limits
        places = places + 1
        if more.all():
            return rows, places, ends
        return rows[more], places[more], ends[more]

    def _keep(self, good: Flags, rows: Integers, *others: Integers) -> list[Integers]:
        """Gives up all other records; returns the numbers and more of those that stay."""
        self._known[rows[~good]] = False
        return [each[good] for each in (rows, *others)]

    def _varints(self, at: Integers) -> tuple[Integers, Integers]:
        """Returns integers of up to four bytes, and where they end; what is longer is `_BEYOND`."""
        values: Integers = self._bytes[at].astype(np.int64)
        long = np.flatnonzero(values >= 0x80)
        ends = at + 1
        if not len(long):
            return values, ends
        numbers, sizes = wire.varints(unaligned(self._data, "<u8")[at[long]])
        # Nobody writes more bytes than are needed.
        numbers[(sizes > 4) | (wire.lengths(numbers) != sizes)] = _BEYOND
        values[long] = numbers
        ends[long] += np.maximum(sizes, 1) - 1
        return values, ends

    def _walked(self) -> Walked:
        """Returns what was found, record by record."""
        known = self._known
        counts = np.zeros(len(known), np.int64)
        for rows, places, *_ in self._found:
            counts[rows] = places + 1
        counts[~known] = 0
        first = np.cumsum(counts) - counts
        codes, contents, ends = np.empty((3, counts.sum()), np.int64)
        for found in self._found:
            chosen = known[found[0]]
            rows, places, *columns = found if chosen.all() else (each[chosen] for each in found)
            places = places + first[rows]
            codes[places], contents[places], ends[places] = columns
        rows = np.repeat(np.arange(len(known)), counts)
        again = _repeated(rows, codes, len(self._names.series))
        if len(again):
            known[again] = False
            chosen = known[rows]
            rows, codes, contents, ends = (each[chosen] for each in (rows, codes, contents, ends))
        self._steps[~known] = self._wall_times[~known] = 0
        series, codes = _in_order(self._names.series, codes)
        values = unaligned(self._data, "<f4")[contents]
        return Walked(
            *(known, self._steps, self._wall_times, series),
            *(rows, codes, contents, ends - contents, values),
        )


def _repeated(rows: Integers, codes: Integers, count: int) -> Integers:
    """Returns the records that have several values of one of `count` series."""
    keys = rows * count + codes
    if (keys[1:] > keys[:-1]).all():
        return rows[:0]
    keys.sort()
    again: Integers = keys[1:][keys[1:] == keys[:-1]] // count
    return again


def _in_order(series: list[Series], codes: Integers) -> tuple[tuple[Series, ...], Integers]:
    """Returns the series that have values, in the order of the first ones, and new codes."""
    first = np.full(len(series), len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    order = first.argsort(kind="stable")[: np.count_nonzero(first < len(codes))]
    numbers = np.zeros(len(series), np.int64)
    numbers[order] = np.arange(len(order))
    return tuple(series[number] for number in order.tolist()), numbers[codes]


class Names:
    """The series of a file, by their names there: a tag, and the key of the value.

    Attributes:
        series: The series.
    """

    def __init__(self) -> None:
        """Knows no series."""
        self._forget()

    def begin(self, data: bytes) -> None:
        """Begins with a piece of the file; forgets the series before it if they are many."""
        self._data = data
        if len(self._numbers) > _MOST_SERIES // 2:
            self._forget()

    def _forget(self) -> None:
        self.series: list[Series] = []
        self._numbers: dict[bytes, int] = {}
        # Names that are not long, by ascending hash; behind them one that no name equals.
        self._hashes = np.array([(1 << 64) - 1], np.uint64)
        self._codes = np.array([-1])
        # The size and the words of the name of each code; the last one is that of the code -1.
        self._words = np.zeros((1 + _NAME_BYTES // 8, 64), np.uint64)

    def codes(self, at: Integers, sizes: Integers) -> Integers:
        """Returns the numbers of the series with names at some places; -1 where there is none."""
        is_long = sizes > _NAME_BYTES
        if not is_long.any():
            return self._hashed(at, sizes)
        codes = np.empty(len(at), np.int64)
        codes[~is_long] = self._hashed(at[~is_long], sizes[~is_long])
        places = zip(at[is_long].tolist(), sizes[is_long].tolist(), strict=True)
        codes[is_long] = [self._number(self._data[begin : begin + size]) for begin, size in places]
        return codes

    def _hashed(self, at: Integers, sizes: Integers) -> Integers:
        if not len(at):
            return at
        count = (int(sizes.max()) + 7) // 8
        names = unaligned(self._data, f"V{8 * count}")[at].view("<u8").reshape(-1, count)
        hashes = sizes.astype(np.uint64)
        words = [hashes.copy()]
        for number in range(count):
            word = names[:, number] & _MASKS.take(sizes - 8 * number, mode="clip")
            words.append(word)
            hashes ^= word
            hashes *= _MULTIPLIER
            hashes ^= hashes >> np.uint64(29)
        codes, other = self._look_up(hashes, words)
        if len(other):
            first = other[:1]
            if not (hashes[other] == hashes[other[0]]).all():
                first = other[np.unique(hashes[other], return_index=True)[1]]
            for row in first.tolist():
                self._add(int(at[row]), hashes[row], [word[row] for word in words])
            codes[other], still = self._look_up(hashes[other], [word[other] for word in words])
            codes[other[still]] = -1  # the name of another series has this hash
        return codes

    def _look_up(self, hashes: Array, words: list[Array]) -> tuple[Integers, Integers]:
        """Returns the codes of hashes, and which rows have other words."""
        codes: Integers = self._codes.take(self._hashes.searchsorted(hashes))
        different = np.zeros(len(hashes), np.uint64)
        for word, known in zip(words, self._words, strict=False):
            different |= known.take(codes, mode="wrap") ^ word
        return codes, np.flatnonzero(different)

    def _add(self, at: int, hash_: Any, words: list[Any]) -> None:
        """Adds the name at a place, of a hash that no other one has, if it is one of a series."""
        code = self._number(self._data[at : at + int(words[0])])
        place = int(self._hashes.searchsorted(hash_))
        if code < 0 or self._hashes[place] == hash_:
            return
        if code >= self._words.shape[1] - 1:
            self._words = np.hstack([self._words, np.zeros_like(self._words)])
        self._words[: len(words), code] = words
        self._hashes = _inserted(self._hashes, place, hash_)
        self._codes = _inserted(self._codes, place, code)

    def _number(self, name: bytes) -> int:
        """Returns the number of the series of a name; -1 if there is none."""
        number = self._numbers.get(name)
        if number is None:
            series = _series(name) if len(self.series) < _MOST_SERIES else None
            number = self._numbers[name] = -1 if series is None else len(self.series)
            if series is not None:
                self.series.append(series)
        return number


def _inserted(array: Array, place: int, value: Any) -> Array:
    return np.concatenate([array[:place], np.array([value], array.dtype), array[place:]])


def _series(name: bytes) -> Series | None:
    """Returns the series of a tag with the key of a value behind it; None if it cannot be one."""
    for size in (1, 2):
        kind = _KINDS.get(name[-size:])
        if kind is not None:
            break
    else:
        return None
    try:
        tag = name[:-size].decode()
    except UnicodeDecodeError:
        return None
    return (kind, sys.intern(tag)) if tag and len(tag) <= LONGEST_TAG else None


def _sound(data: bytes, bounds: Integers) -> Flags:
    """Returns which records have the checksums that are written behind them."""
    sizes = np.diff(bounds)
    order = np.argsort(sizes, kind="stable")
    found = np.zeros(len(sizes), np.bool_)
    alone = [order[:0]]
    for group in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        for start in range(0, len(group), _ROWS):
            records = group[start : start + _ROWS]
            if len(records) >= _FEW_ROWS and _are_sound(data, bounds[records], sizes[records[0]]):
                found[records] = True
            else:
                alone.append(records)
    records = np.concatenate(alone)
    footers = bounds[records + 1] - framing.FOOTER_BYTES
    places = zip((bounds[records] + framing.HEADER_BYTES).tolist(), footers.tolist(), strict=True)
    checksums = np.array([crc32c(data[begin:end]) for begin, end in places], np.uint32)
    found[records] = masked(checksums) == unaligned(data, "<u4")[footers]
    return found


def _are_sound(data: bytes, begins: Integers, size: int) -> bool:
    """Whether no record of those of one size is damaged."""
    rows = unaligned(data, f"V{size}")[begins].view(np.uint8).reshape(-1, size)
    footers = rows[:, -framing.FOOTER_BYTES :]
    checksums = unmasked(np.ascontiguousarray(footers).view("<u4"))
    footers[:] = checksums.astype("<u4").view(np.uint8)
    return crc32c(rows.data) == _joint_checksum(int(size), len(rows))


@lru_cache(maxsize=256)
def _joint_checksum(size: int, count: int) -> int:
    """Returns the checksum of sound records of a size, with checksums that are not masked."""
    payload = bytes(size - framing.OVERHEAD_BYTES)
    sample = framing.frame(payload)[: -framing.FOOTER_BYTES]
    return crc32c((sample + crc32c(payload).to_bytes(framing.FOOTER_BYTES, "little")) * count)


def heads(data: bytes, begins: Integers) -> tuple[Flags, Integers, Floats, Bytes]:
    """Reads the beginnings of payloads, of up to `HEAD_BYTES`.

    Returns:
        Which are those of a summary with a finite time, the steps, the wall times, and how many
        bytes each step takes.
    """
    wall_times = unaligned(data, "<f8")[begins + 1]
    words = unaligned(data, "<u8")[begins + _STEP_AT - 1]
    known = unaligned(data, "u1")[begins] == _WALL_TIME
    known &= (words & 0xFF == _STEP) & np.isfinite(wall_times)
    words >>= np.uint64(8)
    steps, sizes = wire.varints(words)
    known &= (sizes <= _STEP_BYTES) & (words >> np.uint64(8) * sizes & 0xFF == _SUMMARY)
    return known, steps, wall_times, sizes
