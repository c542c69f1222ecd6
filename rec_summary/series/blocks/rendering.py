"""Records as events of an event file, all those of a piece of a file together.

Records of scalars alone have the same bytes there, but for the key of each number. They are copied,
and the checksums change with the keys. Of others, heads (framing, time and step) whose numbers take
equally many bytes are the rows of one matrix, and so are values with equally long tags and
contents. Each row is copied to its place among the events.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.arrays import Array, Bytes, Flags, Integers
from rec_summary.records.format import framing, wire
from rec_summary.records.format.bounds import UNDECODABLE
from rec_summary.records.format.framing import crc32c
from rec_summary.records.format.limits import MOST_PIXELS
from rec_summary.series.batch import HISTOGRAM, IMAGE, SCALAR
from rec_summary.series.blocks.histograms import convert, matrix
from rec_summary.series.blocks.walk import Walked

_IMAGE: Final = wire.Fields(Summary.Image)
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_SIZE: Final = struct.Struct(">8s4x4sII")  # the signature, then the header chunk
# These fields have the same number in an event file.
_WALL_TIME: Final = wire.key(wire.number_of(Event, "wall_time"), wire.FIXED64)
_STEP: Final = wire.key(wire.number_of(Event, "step"), wire.VARINT)
_SUMMARY: Final = wire.key(wire.number_of(Event, "summary"), wire.LENGTH)
_VALUE: Final = wire.key(wire.number_of(Summary, "value"), wire.LENGTH)
_TAG: Final = wire.key(wire.number_of(Summary.Value, "tag"), wire.LENGTH)
_SHOWN_SCALAR, _SHOWN_IMAGE, _SHOWN_HISTOGRAM = 0x15, 0x22, 0x2A  # keys there
_SHOWN: Final = {SCALAR: _SHOWN_SCALAR, IMAGE: _SHOWN_IMAGE, HISTOGRAM: _SHOWN_HISTOGRAM}
_FLOAT_BYTES: Final = 4
_HEADER: Final = f"V{framing.HEADER_BYTES}"
_KEY_CHANGE: Final = bytes([0x1D ^ _SHOWN_SCALAR])
_QUIET: Final = 1 << 22  # the bit of a float with which a NaN does not signal
_TAG_BITS: Final = 12  # of the size of a tag: 1,000 characters have up to 4,000 bytes
_LONGEST: Final = 4096  # bytes of a record of scalars whose checksum is changed


class Rendered(NamedTuple):
    """Events of an event file, framed.

    Attributes:
        known: Which records have one, of shape [n]; a value of the others has to be converted by
            itself.
        data: The events, one behind the other.
        bounds: Where in `data` the event of each record begins, and where the last one ends, of
            shape [n + 1].
    """

    known: Flags
    data: Bytes
    bounds: Integers


def render(buffer: bytes, begins: Integers, walked: Walked) -> Rendered:
    """Returns records as events of an event file.

    Args:
        buffer: A piece of a record file.
        begins: Where in it each record begins, and where the last one ends, of shape [n + 1].
        walked: What was found there.
    """
    return _Rendering(buffer, begins, walked).run()


class _Rendering:
    """The work on one piece of a file."""

    def __init__(self, buffer: bytes, begins: Integers, walked: Walked) -> None:
        self._buffer, self._begins, self._walked = buffer, begins, walked
        rows = walked.rows
        # Of each value: the key of its content, how many bytes this takes, and those of the tag.
        shown = np.array([_SHOWN.get(kind, 0) for kind, _ in walked.series], np.uint8)
        self._keys = shown[walked.codes]
        self._sizes, self._messages = self._contents()
        tag_sizes = np.array([len(tag.encode()) for _, tag in walked.series], np.int64)
        self._tag_sizes = tag_sizes[walked.codes]
        self._known = walked.known & (walked.wall_times != 0)  # no event has a field for 0
        self._known[rows[self._sizes == 0]] = False

        # The sizes of values without key and length; and of summaries, heads and events.
        self._inner = 2 + wire.lengths(self._tag_sizes) + self._tag_sizes + self._sizes
        self._inner += np.where(self._keys == _SHOWN_SCALAR, 0, wire.lengths(self._sizes))
        whole = np.where(self._known[rows], 1 + wire.lengths(self._inner) + self._inner, 0)
        ends = whole.cumsum()
        before = np.append(0, ends)[rows.searchsorted(np.arange(len(self._known) + 1))]
        self._summaries = np.diff(before)
        heads = 11 + wire.lengths(walked.steps) + wire.lengths(self._summaries)
        self._payloads = heads + self._summaries
        framed = np.where(self._known, framing.OVERHEAD_BYTES + self._payloads, 0)
        self._bounds = np.append(0, framed.cumsum())
        self._data = np.empty(self._bounds[-1], np.uint8)
        # Where in the data each value ends.
        self._ends = ends + (self._bounds[:-1] + framing.HEADER_BYTES + heads - before[:-1])[rows]

    def run(self) -> Rendered:
        walked = self._walked
        is_quiet = ~np.isnan(walked.values) | (walked.values.view("<u4") & _QUIET != 0)
        is_plain = self._known & (np.diff(self._bounds) == np.diff(self._begins))
        is_plain &= self._payloads <= _LONGEST
        is_plain[walked.rows[(self._keys != _SHOWN_SCALAR) | ~is_quiet]] = False
        for records, handle in ((is_plain, self._copy), (self._known & ~is_plain, self._compose)):
            if records.any():
                handle(np.flatnonzero(records), np.flatnonzero(records[walked.rows]))
        return Rendered(self._known, self._data, self._bounds)

    def _contents(self) -> tuple[Integers, list[tuple[Integers, Bytes]]]:
        """Returns how many bytes the content of each value takes; 0 if it cannot be converted.

        Also returns these bytes, unless it is a scalar, for values of the same size.
        """
        walked = self._walked
        sizes = np.where(self._keys == _SHOWN_SCALAR, _FLOAT_BYTES, 0)
        messages = []
        places = np.flatnonzero(self._keys == _SHOWN_HISTOGRAM)
        if len(places):
            at, found = walked.contents[places], walked.sizes[places]
            messages += [
                (places[numbers], rows) for numbers, rows in convert(self._buffer, at, found)
            ]
        for place in np.flatnonzero(self._keys == _SHOWN_IMAGE):
            begin = walked.contents[place]
            image = _plain_image(self._buffer[begin : begin + walked.sizes[place]])
            if image:
                messages.append((place[None], np.frombuffer(image, np.uint8)[None]))
        for places, rows in messages:
            sizes[places] = rows.shape[1]
        return sizes, messages

    def _copy(self, records: Integers, values: Integers) -> None:
        """Makes events of records of scalars alone: other keys, and so other checksums."""
        for group in _groups(self._payloads[records]):
            form = f"V{self._payloads[records[group[0]]] + framing.OVERHEAD_BYTES}"
            found = wire.unaligned(self._buffer, form)[self._begins[records[group]]]
            wire.unaligned(self._data, form)[self._bounds[records[group]]] = found
        keys = self._ends[values] - _FLOAT_BYTES - 1
        self._data[keys] = _SHOWN_SCALAR
        rows, footers = self._walked.rows[values], self._bounds[1:] - framing.FOOTER_BYTES
        changes = _changes()[footers[rows] - keys]
        changes = np.bitwise_xor.reduceat(changes, rows.searchsorted(records))
        checksums, footers = wire.unaligned(self._data, "<u4"), footers[records]
        changed = framing.unmasked(checksums[footers]) ^ changes
        checksums[footers] = framing.masked(changed)

    def _compose(self, records: Integers, values: Integers) -> None:
        """Makes events of other records."""
        self._compose_heads(records)
        self._compose_values(values)
        for places, rows in self._messages:
            chosen = self._known[self._walked.rows[places]]
            begins = self._ends[places[chosen]] - rows.shape[1]
            _put(self._data, begins, rows[chosen])
        raw = self._data.tobytes()  # a slice of it takes less time than one of an array
        begins = (self._bounds[records] + framing.HEADER_BYTES).tolist()
        footers = self._bounds[records + 1] - framing.FOOTER_BYTES
        value = google_crc32c.value
        checksums = [
            value(raw[begin:end]) for begin, end in zip(begins, footers.tolist(), strict=True)
        ]
        wire.unaligned(self._data, "<u4")[footers] = framing.masked(np.array(checksums, "<u4"))

    def _compose_heads(self, records: Integers) -> None:
        """Writes framing, times and steps of events, and the sizes of their summaries."""
        payloads, numbers = np.unique(self._payloads[records], return_inverse=True)
        headers = np.frombuffer(b"".join(map(framing.header, payloads.tolist())), _HEADER)[numbers]
        wall_times, steps = self._walked.wall_times[records], self._walked.steps[records]
        summaries = self._summaries[records]
        step_sizes, summary_sizes = wire.lengths(steps), wire.lengths(summaries)
        for group in _groups(step_sizes << 8 | summary_sizes):
            first = group[0]
            parts: list[bytes | Array] = [
                *(headers[group], _WALL_TIME, wall_times[group]),
                *(_STEP, _varints(steps[group], step_sizes[first])),
                *(_SUMMARY, _varints(summaries[group], summary_sizes[first])),
            ]
            _put(self._data, self._bounds[records[group]], matrix(parts))

    def _compose_values(self, values: Integers) -> None:
        """Writes values; of those with a message, what is before it."""
        tags = [tag.encode() for _, tag in self._walked.series]
        data, begins = b"".join(tags), np.cumsum([0, *map(len, tags)])
        keys, sizes, tag_sizes = self._keys[values], self._sizes[values], self._tag_sizes[values]
        numbers = self._walked.values[values].view("<u4")
        numbers[np.isnan(numbers.view("<f4"))] |= _QUIET
        for group in _groups((sizes << _TAG_BITS | tag_sizes) << 8 | keys):
            first = group[0]
            chosen, key, size, tag_size = values[group], keys[first], sizes[first], tag_sizes[first]
            inner = wire.varint(int(self._inner[chosen[0]])) + _TAG + wire.varint(int(tag_size))
            names = wire.unaligned(data, f"V{tag_size}")[begins[self._walked.codes[chosen]]]
            parts = [_VALUE + inner, names, bytes([key])]
            ends = self._ends[chosen]
            if key == _SHOWN_SCALAR:
                parts.append(numbers[group])
            else:
                parts.append(wire.varint(int(size)))
                ends = ends - size
            rows = matrix(parts)
            _put(self._data, ends - rows.shape[1], rows)


def _put(data: Bytes, begins: Integers, rows: Bytes) -> None:
    """Writes each row to a place of its own."""
    form = f"V{rows.shape[1]}"
    wire.unaligned(data, form)[begins] = rows.view(form)[:, 0]


def _groups(keys: Integers) -> list[Integers]:
    """Returns where each of the keys is."""
    order = keys.argsort(kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)


def _varints(numbers: Integers, size: int) -> Bytes:
    """Returns integers that take `size` bytes each, of shape [integers, bytes]."""
    digits = numbers[:, None] >> 7 * np.arange(size) & 0x7F
    digits[:, :-1] |= 0x80
    return digits.astype(np.uint8)


@lru_cache(maxsize=1)
def _changes() -> npt.NDArray[np.uint32]:
    """Returns how a checksum changes with a key of a scalar, by the bytes from there to the end."""
    changed, zeros = crc32c(_KEY_CHANGE), crc32c(b"\0")
    changes = [0]
    for _ in range(_LONGEST):
        changes.append(changed ^ zeros)
        changed, zeros = crc32c(b"\0", changed), crc32c(b"\0", zeros)
    return np.array(changes, np.uint32)


def _plain_image(content: bytes) -> bytes:
    """Returns a PNG that can be shown, with its size and channels; else nothing."""
    try:
        image = Summary.Image.FromString(content)
    except UNDECODABLE:
        return b""
    encoded = image.encoded_image
    declared = png_size(encoded)
    size = {name: getattr(image, name) for name in ("height", "width", "colorspace")}
    if min(size.values()) <= 0 or declared is None or declared[0] * declared[1] > MOST_PIXELS:
        return b""
    return _IMAGE(**size, encoded_image=encoded)


def png_size(data: bytes) -> tuple[int, int] | None:
    """Returns the width and height that a PNG states; None if it is none, or cut off."""
    if not data.startswith(_PNG) or len(data) < _PNG_SIZE.size:
        return None
    _, chunk, width, height = _PNG_SIZE.unpack_from(data)
    return (width, height) if chunk == b"IHDR" else None
