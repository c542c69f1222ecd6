"""Single records for a block: what is in them, and the events of an event file made of them."""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format import wire
from rec_summary.records.format.bounds import UNDECODABLE
from rec_summary.records.format.limits import LONGEST_TAG, MOST_PIXELS
from rec_summary.series.batch import HISTOGRAM, IMAGE, SCALAR, Series
from rec_summary.series.blocks.histograms import convert

_TAG, _SHOWN_SCALAR, _SHOWN_IMAGE, _SHOWN_HISTOGRAM = 1, 2, 4, 5  # fields of an event file's values
_SUMMARY: Final = wire.number_of(Event, "summary")  # these have the same number there
_VALUE: Final = wire.number_of(Summary, "value")
_ENCODED_IMAGE: Final = wire.number_of(Summary.Image, "encoded_image")
_EVENT: Final = wire.Fields(Event)
_IMAGE: Final = wire.Fields(Summary.Image)
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_SIZE: Final = struct.Struct(">8s4x4sII")  # the signature, then the header chunk
MOST_STEPS: Final = 1 << 35


class DecodedRecord(NamedTuple):
    """What a block holds of a record.

    Attributes:
        wall_time: In seconds since the epoch; finite.
        step: Above 0.
        series: Its series, in order, each once.
        scalars: The values of the scalars among them.
        event: The record.
    """

    wall_time: float
    step: int
    series: tuple[Series, ...]
    scalars: list[float]
    event: Event


def decode(payload: bytes) -> DecodedRecord | None:
    """Decodes a record; None if it is no summary, or one that a block cannot hold.

    Required fields may be missing: protobuf takes longer to look for those of all buckets than to
    decode them.
    """
    try:
        event = Event.FromString(payload)
    except UNDECODABLE:
        return None
    step, wall_time = event.step, event.wall_time
    if not 0 < step < MOST_STEPS or not math.isfinite(wall_time):
        return None
    series, scalars = [], []
    for value in event.summary.value:  # none if it is no summary
        kind, tag = value.WhichOneof("value"), value.tag
        # Protobuf hands out bytes for a tag that is not UTF-8.
        if kind is None or not tag or isinstance(tag, bytes) or len(tag) > LONGEST_TAG:
            return None
        series.append((kind, sys.intern(tag)))
        if kind == SCALAR:
            scalars.append(value.scalar_value)
    if not series or len(set(series)) < len(series):
        return None
    return DecodedRecord(wall_time, step, tuple(series), scalars, event)


def encode_events(records: Sequence[DecodedRecord]) -> list[bytes | None]:
    """Returns records as events of an event file.

    The histograms of all records are converted together.

    Returns:
        For each its bytes; None if a value has to be converted by itself.
    """
    histograms = [
        value.histogram
        for record in records
        for value in record.event.summary.value
        if value.HasField(HISTOGRAM)
    ]
    converted = iter(convert(histograms))
    return [_encode(record, converted) for record in records]


def _encode(record: DecodedRecord, converted: Iterator[bytes | None]) -> bytes | None:
    """Returns an event; `converted` has its histograms next. A picture is copied once."""
    summary: list[bytes] = []
    is_whole = record.wall_time != 0  # an event has no field for a time of 0
    for (kind, tag), value in zip(record.series, record.event.summary.value, strict=True):
        content: list[bytes] = []
        if kind == SCALAR:
            content = [wire.float_field(_SHOWN_SCALAR, value.scalar_value)]
        elif kind == HISTOGRAM:
            histogram = next(converted)
            if histogram is not None:
                content = wire.message_field(_SHOWN_HISTOGRAM, [histogram])
        elif kind == IMAGE:
            content = _plain_image(value.image)
        is_whole = is_whole and bool(content)
        summary += wire.message_field(_VALUE, [_tag(tag), *content])
    if not is_whole:
        return None
    head = _EVENT(wall_time=record.wall_time, step=record.step)
    return b"".join([head, *wire.message_field(_SUMMARY, summary)])


@functools.lru_cache(maxsize=4096)
def _tag(tag: str) -> bytes:
    return wire.bytes_field(_TAG, tag.encode())


def _plain_image(image: Summary.Image) -> list[bytes]:
    """Returns the field of a PNG that can be shown, with its size and channels; else nothing."""
    encoded = image.encoded_image
    declared = png_size(encoded)
    size = {name: getattr(image, name) for name in ("height", "width", "colorspace")}
    if min(size.values()) <= 0 or declared is None or declared[0] * declared[1] > MOST_PIXELS:
        return []
    content = [_IMAGE(**size), *wire.message_field(_ENCODED_IMAGE, [encoded])]
    return wire.message_field(_SHOWN_IMAGE, content)


def png_size(data: bytes) -> tuple[int, int] | None:
    """Returns the width and height that a PNG states; None if it is none, or cut off."""
    if not data.startswith(_PNG) or len(data) < _PNG_SIZE.size:
        return None
    _, chunk, width, height = _PNG_SIZE.unpack_from(data)
    return (width, height) if chunk == b"IHDR" else None
