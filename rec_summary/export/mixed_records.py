"""Records with histograms among their values, taken apart on the wire and put together again."""

from __future__ import annotations

import math
import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.export.limits import LONGEST_TAG
from rec_summary.values import wire

Series = tuple[str, str]
"""A kind of value, by its field's name in the records' protobuf, and a tag."""

SCALAR: Final = "scalar_value"
HISTOGRAM: Final = "histogram"

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_WALL_TIME, _STEP, _SUMMARY, _VALUE, _TAG = 0x09, 0x10, 0x2A, 0x0A, 0x0A
_RECORDED_SCALAR, _RECORDED_HISTOGRAM = 0x1D, 0x4A
_SHOWN_SCALAR, _SHOWN_HISTOGRAM = b"\x15", 5
_LONGEST_STEP: Final = 1 << 35


class MixedRecord(NamedTuple):
    """A record of scalars and histograms.

    Attributes:
        start: Where its payload begins.
        wall_time: In seconds since the epoch; finite, not 0.
        step: Above 0.
        head: Where the fields of time and step end.
        series: Its series, in order.
        tags: Where each value's field of the tag begins and ends.
        contents: Where each value's content begins and ends, without key and length.
        histograms: Those of them that are histograms.
    """

    start: int
    wall_time: float
    step: int
    head: int
    series: tuple[Series, ...]
    tags: list[tuple[int, int]]
    contents: list[tuple[int, int]]
    histograms: list[tuple[int, int]]

    def scalars(self, data: bytes) -> npt.NDArray[np.float32]:
        """Returns the scalars, of shape [1, scalars]."""
        found = [
            _FLOAT.unpack_from(data, start)[0]
            for (kind, _), (start, _) in zip(self.series, self.contents, strict=True)
            if kind == SCALAR
        ]
        return np.array([found], np.float32)

    def rebuild(self, data: bytes, histograms: list[bytes | None]) -> bytes | None:
        """Returns the event as TensorBoard has it; None if a histogram was not converted."""
        parts, following = [], iter(histograms)
        for (kind, _), (begin, end), (start, stop) in zip(
            self.series, self.tags, self.contents, strict=True
        ):
            if kind == SCALAR:
                content = data[begin:end] + _SHOWN_SCALAR + data[start:stop]
            else:
                converted = next(following)
                if converted is None:
                    return None
                content = data[begin:end] + wire.bytes_field(_SHOWN_HISTOGRAM, converted)
            parts.append(wire.bytes_field(1, content))
        return data[self.start : self.head] + wire.bytes_field(5, b"".join(parts))


def take_apart(data: bytes, start: int, end: int) -> MixedRecord | None:
    """Takes a record apart; None if it is anything else than scalars and histograms.

    Args:
        data: What it is in.
        start: Where its payload begins.
        end: Where that ends.
    """
    if end - start < 16 or data[start] != _WALL_TIME or data[start + 9] != _STEP:
        return None
    wall_time = _DOUBLE.unpack_from(data, start + 1)[0]
    step, at = _varint(data, start + 10, end)
    if not 0 < step < _LONGEST_STEP or not math.isfinite(wall_time) or not wall_time:
        return None
    head = at
    if at >= end or data[at] != _SUMMARY:
        return None
    size, at = _varint(data, at + 1, end)
    if at + size != end:
        return None
    series: dict[Series, None] = {}  # in order; there may be very many
    tags: list[tuple[int, int]] = []
    contents: list[tuple[int, int]] = []
    histograms: list[tuple[int, int]] = []
    while at < end:
        if data[at] != _VALUE:
            return None
        size, at = _varint(data, at + 1, end)
        value_end = at + size
        if size < 2 or value_end > end or data[at] != _TAG:
            return None
        tag_start = at
        size, at = _varint(data, at + 1, value_end)
        tag_end = at + size
        if size < 1 or tag_end + 2 > value_end:
            return None
        key = data[tag_end]
        if key == _RECORDED_SCALAR:
            kind, content = SCALAR, tag_end + 1
            if content + 4 != value_end or _is_signal(data, content):
                return None
        elif key == _RECORDED_HISTOGRAM:
            kind = HISTOGRAM
            size, content = _varint(data, tag_end + 1, value_end)
            if size < 0 or content + size != value_end:
                return None
            histograms.append((content, value_end))
        else:
            return None
        try:
            tag = data[at:tag_end].decode("utf-8")
        except UnicodeDecodeError:
            return None
        if len(tag) > LONGEST_TAG or (kind, tag) in series:
            return None
        series[kind, tag] = None
        tags.append((tag_start, tag_end))
        contents.append((content, value_end))
        at = value_end
    if not histograms:
        return None
    place = start, wall_time, step, head
    return MixedRecord(*place, tuple(series), tags, contents, histograms)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns a number of up to five bytes in its shortest form, and where it ends; else -1."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, at) if byte or not shift else (-1, at)
    return -1, end


def _is_signal(data: bytes, at: int) -> bool:
    """Whether a float32 is a signalling NaN, which becomes another one in Python's hands."""
    bits = int.from_bytes(data[at : at + 4], "little")
    return bits & 0x7FC0_0000 == 0x7F80_0000 and bits & 0x3F_FFFF != 0
