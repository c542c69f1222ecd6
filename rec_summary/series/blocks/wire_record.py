"""Single records for a block: decoded, or taken apart on the wire and put together again."""

from __future__ import annotations

import math
import struct
import sys
from typing import Final, NamedTuple

from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.format import wire
from rec_summary.records.format.bounds import UNDECODABLE
from rec_summary.series.batch import HISTOGRAM, IMAGE, SCALAR, SUMMARY, Series
from rec_summary.series.blocks.image_size import png_size
from rec_summary.series.limits import LONGEST_TAG, MOST_PIXELS

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_WALL_TIME, _STEP, _SUMMARY, _VALUE, _TAG = 0x09, 0x10, 0x2A, 0x0A, 0x0A
_RECORDED_SCALAR, _RECORDED_HISTOGRAM, _IMAGE = 0x1D, 0x4A, 0x22
_SHOWN_SCALAR, _SHOWN_HISTOGRAM = b"\x15", 5
_IMAGE_KEYS: Final = (0x08, 0x10, 0x18)  # height, width, channels; then the image itself
_ENCODED: Final = 0x22
_HEADER_BYTES: Final = 64  # enough for the size that a PNG declares
MOST_STEPS: Final = 1 << 35


class WireRecord(NamedTuple):
    """Where everything is in a record of scalars, histograms and images.

    Attributes:
        start: Where its payload begins.
        wall_time: In seconds since the epoch; finite, not 0.
        step: Above 0.
        head: Where the fields of time and step end.
        series: Its series, in order.
        scalars: The values of the scalars among them.
        tags: Where each value's field of the tag begins and ends.
        contents: Where each value's content begins and ends, without key and length.
        histograms: Those of them that are histograms.
    """

    start: int
    wall_time: float
    step: int
    head: int
    series: tuple[Series, ...]
    scalars: list[float]
    tags: list[tuple[int, int]]
    contents: list[tuple[int, int]]
    histograms: list[tuple[int, int]]

    def holds_only(self, kind: str) -> bool:
        """Whether all values are of one kind; of images, TensorBoard has the same bytes."""
        return all(each == kind for each, _ in self.series)

    def rebuild(self, data: bytes, histograms: list[bytes | None]) -> bytes | None:
        """Returns the event of an event file; None if a histogram was not converted."""
        parts, following = [], iter(histograms)
        for (kind, _), (begin, end), (start, stop) in zip(
            self.series, self.tags, self.contents, strict=True
        ):
            if kind == SCALAR:
                content = data[begin:end] + _SHOWN_SCALAR + data[start:stop]
            elif kind == IMAGE:
                content = data[begin:end] + wire.bytes_field(_IMAGE >> 3, data[start:stop])
            else:
                converted = next(following)
                if converted is None:
                    return None
                content = data[begin:end] + wire.bytes_field(_SHOWN_HISTOGRAM, converted)
            parts.append(wire.bytes_field(1, content))
        return data[self.start : self.head] + wire.bytes_field(5, b"".join(parts))


class DecodedRecord(NamedTuple):
    """What a block holds of a record of any kinds. Attributes as in `WireRecord`."""

    wall_time: float
    step: int
    series: tuple[Series, ...]
    scalars: list[float]


def take_apart(data: bytes, start: int, end: int) -> WireRecord | None:
    """Takes a record apart; None if it holds anything else, or is written in another way.

    Args:
        data: What it is in.
        start: Where its payload begins.
        end: Where that ends.
    """
    if end - start < 16 or data[start] != _WALL_TIME or data[start + 9] != _STEP:
        return None
    wall_time = _DOUBLE.unpack_from(data, start + 1)[0]
    step, at = wire.read_varint(data, start + 10, end, shortest=True)
    if not 0 < step < MOST_STEPS or not math.isfinite(wall_time) or not wall_time:
        return None
    head = at
    if at >= end or data[at] != _SUMMARY:
        return None
    size, at = wire.read_varint(data, at + 1, end, shortest=True)
    if at + size != end:
        return None
    series: dict[Series, None] = {}  # in order; there may be very many
    tags: list[tuple[int, int]] = []
    contents: list[tuple[int, int]] = []
    histograms: list[tuple[int, int]] = []
    scalars: list[float] = []
    while at < end:
        if data[at] != _VALUE:
            return None
        size, at = wire.read_varint(data, at + 1, end, shortest=True)
        value_end = at + size
        if size < 2 or value_end > end or data[at] != _TAG:
            return None
        tag_start = at
        size, at = wire.read_varint(data, at + 1, value_end, shortest=True)
        tag_end = at + size
        if size < 1 or tag_end + 2 > value_end:
            return None
        key = data[tag_end]
        if key == _RECORDED_SCALAR:
            kind, content = SCALAR, tag_end + 1
            if content + 4 != value_end or _is_signal(data, content):
                return None
            scalars.append(_FLOAT.unpack_from(data, content)[0])
        elif key in (_RECORDED_HISTOGRAM, _IMAGE):
            kind = HISTOGRAM if key == _RECORDED_HISTOGRAM else IMAGE
            size, content = wire.read_varint(data, tag_end + 1, value_end, shortest=True)
            if size < 0 or content + size != value_end:
                return None
            if kind == HISTOGRAM:
                histograms.append((content, value_end))
            elif not _is_plain_image(data, content, value_end):
                return None
        else:
            return None
        try:
            tag = sys.intern(data[at:tag_end].decode("utf-8"))
        except UnicodeDecodeError:
            return None
        if len(tag) > LONGEST_TAG or (kind, tag) in series:
            return None
        series[kind, tag] = None
        tags.append((tag_start, tag_end))
        contents.append((content, value_end))
        at = value_end
    place = start, wall_time, step, head
    if not series:
        return None
    return WireRecord(*place, tuple(series), scalars, tags, contents, histograms)


def decode(payload: bytes) -> DecodedRecord | None:
    """Decodes a record; None if it is no summary, or one that a block cannot hold."""
    try:
        event = Event.FromString(payload)
    except UNDECODABLE:
        return None
    step, wall_time = event.step, event.wall_time
    if event.WhichOneof("what") != SUMMARY or not event.IsInitialized():
        return None
    if not 0 < step < MOST_STEPS or not math.isfinite(wall_time):
        return None
    series, scalars = [], []
    for value in event.summary.value:
        kind, tag = value.WhichOneof("value"), value.tag
        # Protobuf hands out bytes for a tag that is not UTF-8.
        if kind is None or isinstance(tag, bytes) or len(tag) > LONGEST_TAG:
            return None
        series.append((kind, tag))
        if kind == SCALAR:
            scalars.append(value.scalar_value)
    if not series or len(set(series)) < len(series):
        return None
    return DecodedRecord(wall_time, step, tuple(series), scalars)


def _is_plain_image(data: bytes, at: int, end: int) -> bool:
    """Whether a field is a PNG of a size that can be shown, with that size beside it."""
    for key in _IMAGE_KEYS:
        if at >= end or data[at] != key:
            return False
        number, at = wire.read_varint(data, at + 1, end, shortest=True)
        if not 0 < number < 1 << 31:
            return False
    if at >= end or data[at] != _ENCODED:
        return False
    size, at = wire.read_varint(data, at + 1, end, shortest=True)
    if at + size != end:
        return False
    declared = png_size(data[at : min(end, at + _HEADER_BYTES)])
    return declared is not None and declared[0] * declared[1] <= MOST_PIXELS


def _is_signal(data: bytes, at: int) -> bool:
    """Whether a float32 is a signalling NaN, which becomes a quiet one as a Python float."""
    bits = int.from_bytes(data[at : at + 4], "little")
    return bits & 0x7FC0_0000 == 0x7F80_0000 and bits & 0x3F_FFFF != 0
