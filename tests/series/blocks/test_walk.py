"""Records that are walked in step: value for value what protobuf reads of each."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf.internal import api_implementation
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format import framing, wire
from rec_summary.records.format.bounds import UNDECODABLE
from rec_summary.records.format.framing import frame
from rec_summary.records.format.limits import LONGEST_TAG
from rec_summary.series.batch import SCALAR
from rec_summary.series.blocks.scan import scan
from rec_summary.series.blocks.walk import Walked, walk
from tests.support.record_dirs import START, event, histo, scalar

Form = tuple[str, str, bytes]  # kind, tag, and the bytes of the value

COLLIDING = "z2a2rtxkmetrics", "vbv0bhc0adGpUcO"  # tags that have the same hash
TAGS = [
    *("a", "b", "loss/auto", "ünïcode", "汉" * 42, "🎉" * 200, "nul\0", "\0", "a\x1d", *COLLIDING),
    *("x" * size for size in (6, 7, 8, 15, 63, 126, 127, 128, 129, LONGEST_TAG)),
]
FIELDS = Summary.Value.DESCRIPTOR.fields_by_name


def messages() -> dict[str, list[bytes]]:
    """Some contents of each kind but scalars, as protobuf writes them."""
    made = {
        name: [b""]
        for name, field in FIELDS.items()
        if field.message_type is not None and name not in ("image", "tensor")
    }
    made["histogram"] = [histo("w", numbers).histogram.SerializeToString() for numbers in ([1], [])]
    image = Summary.Image(height=2, width=5, colorspace=3, encoded_image=bytes(20_000))
    made["image"] = [image.SerializeToString()]
    made["metric_table"] = [b"\x0a\x03a,b\x10\x02"]
    return made


OTHERS = [(kind, content) for kind, contents in messages().items() for content in contents]
BITS = st.one_of(
    st.floats(width=32).map(lambda number: struct.pack("<f", number)),
    st.binary(min_size=4, max_size=4),
    st.sampled_from([b"\1\0\x80\x7f", b"\1\0\xc0\xff", bytes(4), b"\0\0\0\x80"]),
)
values = st.tuples(
    st.sampled_from(TAGS),
    st.one_of(BITS.map(lambda bits: (SCALAR, bits)), st.sampled_from(OTHERS)),
).map(lambda drawn: (drawn[1][0], drawn[0], drawn[1][1]))


def field_of(kind: str, content: bytes) -> bytes:
    number = FIELDS[kind].number
    if kind == SCALAR:
        return wire.key(number, wire.FIXED32) + content
    return wire.bytes_field(number, content)


def longer(number: int) -> bytes:
    """An integer in one byte more than it needs."""
    short = wire.varint(number)
    return short[:-1] + bytes([short[-1] | 0x80, 0])


@st.composite
def odd_values(draw: st.DrawFn) -> bytes:
    """A value as nobody writes it, with its key and length."""
    kind, tag, content = draw(values)
    name, field = wire.bytes_field(1, tag.encode()), field_of(kind, content)
    how = draw(st.integers(0, 11))
    parts = [
        field + name,
        name,
        name + field + b"\x58\x05",  # unknown fields, behind, between and before
        name + b"\x5a\0" + field,
        b"\x58\x05" + name + field,
        name + field + field,
        name + name + field,
        wire.bytes_field(1, b"a\xff") + field,
        wire.bytes_field(1, b"") + field,
        wire.bytes_field(1, b"x" * (LONGEST_TAG + 1)) + field,
        b"\x0a" + longer(len(tag.encode())) + tag.encode() + field,
        name + wire.bytes_field(77, content),
    ][how]
    key = draw(st.sampled_from([b"\x0a", b"\x0a", b"\x12", b"\x8a\0"]))
    length = draw(st.sampled_from([wire.varint, wire.varint, longer]))
    return key + length(len(parts)) + parts


def payload_of(wall_time: float, step: int, content: bytes, odd: int = 0) -> bytes:
    """A record of encoded values; `odd` is a form that has to be decoded by protobuf."""
    at = b"\x09" + struct.pack("<d", wall_time)
    number, summary = b"\x10" + wire.varint(step), wire.bytes_field(5, content)
    return [
        at + number + summary,
        number + at + summary,
        at + summary,
        at + summary + number,
        at + number + summary + b"\xc0\x3e\x05",
        at + number + summary + wire.bytes_field(5, content),
        at + number + b"\x2a" + longer(len(content)) + content,
        at + b"\x10" + longer(step) + summary,
        at + number + wire.bytes_field(3, b"MindSpore.Event:1"),
        at + number,
        b"",
        (at + number + summary)[:-1],
        number + summary,
    ][odd]


def encoded(value: Form) -> bytes:
    kind, tag, content = value
    return wire.bytes_field(1, wire.bytes_field(1, tag.encode()) + field_of(kind, content))


@st.composite
def recorded(draw: st.DrawFn) -> list[bytes]:
    """The payloads of some records: most of them as they are written."""
    payloads, step = [], 1
    repertoire = draw(st.lists(values, min_size=1, max_size=9))
    for _ in range(draw(st.integers(0, 50))):
        step += draw(st.sampled_from([0, 1, 1, 1, 130, 20_000, 1 << 21, -1]))
        chosen = draw(st.lists(st.sampled_from(repertoire), max_size=7))
        content = [encoded(value) for value in chosen]
        if not draw(st.integers(0, 20)):
            content.insert(draw(st.integers(0, len(content))), draw(odd_values()))
        odd = draw(st.integers(0, 12)) if not draw(st.integers(0, 20)) else 0
        at = draw(st.sampled_from([START] * 20 + [0.0, -0.0, -5.5, math.nan, math.inf, -math.inf]))
        steps = [0, 1, 127, 128, (1 << 35) - 1, 1 << 35, -1, -step]
        which = draw(st.sampled_from(steps)) if not draw(st.integers(0, 10)) else step
        payloads.append(payload_of(at, which, b"".join(content), odd))
    return payloads


def read(payload: bytes) -> tuple[float, int, list[Form]] | None:
    """Reads a record through protobuf alone; None if it is one for the slow way."""
    try:
        made = Event.FromString(payload)
    except UNDECODABLE:
        return None
    found: list[Form] = []
    for value in made.summary.value:
        kind = value.WhichOneof("value")
        if kind is None or isinstance(value.tag, bytes) or not 0 < len(value.tag) <= LONGEST_TAG:
            return None
        of_kind = value.SerializeToString()[len(wire.bytes_field(1, value.tag.encode())) :]
        content = getattr(value, kind)
        bits = of_kind[1:5] if kind == SCALAR else content.SerializeToString()
        found.append((kind, value.tag, bits))
    if len({each[:2] for each in found}) < len(found) or not 0 < made.step < 1 << 35:
        return None
    if not found or not math.isfinite(made.wall_time):
        return None
    plain = payload_of(made.wall_time, made.step, b"".join(map(encoded, found)))
    return (made.wall_time, made.step, found) if plain == payload else None


def bounds_of(payloads: list[bytes]) -> Any:
    return np.cumsum([0, *(len(each) + framing.OVERHEAD_BYTES for each in payloads)])


def compare(buffer: bytes, walked: Walked, payloads: list[bytes | None]) -> None:
    """Compares records with those of payloads, None where one is damaged."""
    may_give_up = any(tag.encode() in buffer for tag in COLLIDING)
    ends = walked.rows.searchsorted(np.arange(len(payloads) + 1))
    assert ends[-1] == len(walked.rows) == len(walked.codes) == len(walked.values)
    assert len(set(walked.series)) == len(walked.series)
    for number, payload in enumerate(payloads):
        known = bool(walked.known[number])
        expected = None if payload is None else read(payload)
        if not known and not may_give_up:
            assert expected is None
        if not known:
            assert ends[number] == ends[number + 1]
            assert walked.steps[number] == walked.wall_times[number] == 0
            continue
        assert expected is not None
        assert expected[:2] == (walked.wall_times[number], walked.steps[number])
        found = []
        for place in range(ends[number], ends[number + 1]):
            begin = walked.contents[place]
            content = buffer[begin : begin + walked.sizes[place]]
            kind, tag = walked.series[walked.codes[place]]
            found.append((kind, tag, content))
            if kind == SCALAR:
                assert walked.values[place : place + 1].tobytes() == content
        assert found == expected[2]


# Protobuf in Python reads every NaN as the same one.
pytestmark = pytest.mark.skipif(
    api_implementation.Type() == "python", reason="protobuf in Python changes the bits of a NaN"
)


@given(recorded(), st.binary(max_size=5))
@settings(max_examples=200)
@example([], b"")
def test_the_same_values_as_protobuf(payloads: list[bytes], before: bytes) -> None:
    buffer = before + b"".join(map(frame, payloads))
    walked = walk(buffer, len(before), bounds_of(payloads))
    compare(buffer, walked, list(payloads))


@given(recorded(), st.data())
@settings(max_examples=150)
def test_the_same_values_of_damaged_records(payloads: list[bytes], data: st.DataObject) -> None:
    """Bytes are flipped in the payloads and their checksums; a header ends what is scanned."""
    bounds = bounds_of(payloads)
    content = bytearray(b"".join(map(frame, payloads)))
    sound: list[bytes | None] = list(payloads)
    for _ in range(data.draw(st.integers(1, 5)) if payloads else 0):
        number = data.draw(st.integers(0, len(payloads) - 1))
        first = int(bounds[number]) + framing.HEADER_BYTES
        content[data.draw(st.integers(first, int(bounds[number + 1]) - 1))] ^= 1 << data.draw(
            st.integers(0, 7)
        )
        end = int(bounds[number + 1]) - framing.FOOTER_BYTES
        is_sound = content[bounds[number] : bounds[number + 1]] == frame(payloads[number])
        sound[number] = bytes(content[first:end]) if is_sound else None
    compare(bytes(content), walk(bytes(content), 0, bounds), sound)


@given(recorded(), st.data())
@settings(max_examples=200)
def test_scanned_records_whose_end_or_header_is_damaged(
    payloads: list[bytes], data: st.DataObject
) -> None:
    """What is before it is there, and nothing else is."""
    content = bytearray(b"".join(map(frame, payloads)))
    bounds = bounds_of(payloads)
    whole = len(payloads)
    if content and data.draw(st.booleans()):
        whole = data.draw(st.integers(0, len(payloads) - 1))
        content[bounds[whole] + data.draw(st.integers(0, framing.HEADER_BYTES - 1))] ^= 64
    else:
        del content[data.draw(st.integers(0, len(content))) :]
        whole = int(bounds.searchsorted(len(content), "right")) - 1
    scanned = scan(bytes(content), 0, 0, frames=False)
    if scanned is not None:
        assert scanned.bounds.tolist() == bounds[: whole + 1].tolist()
        assert not scanned.known[[read(each) is None for each in payloads[:whole]]].any()


def test_names_of_the_same_hash_are_not_mixed_up() -> None:
    one, other = COLLIDING
    payloads = [event(n, scalar(one, n)).SerializeToString() for n in range(1, 20)]
    payloads[7] = event(8, scalar(other, 5.0)).SerializeToString()
    buffer = b"".join(map(frame, payloads))
    walked = walk(buffer, 0, bounds_of(payloads))
    assert np.flatnonzero(~walked.known).tolist() == [7]
    assert walked.series == ((SCALAR, one),)
    assert walked.values.tolist() == [float(n) for n in range(1, 20) if n != 8]


@pytest.mark.parametrize("count", [31, 32, 40])
@pytest.mark.parametrize("size", [60, 5000])
def test_records_of_very_many_values(count: int, size: int) -> None:
    """Of few such records each is decoded by itself, wherever it is among others."""
    wide = [scalar(f"tag{n}", n) for n in range(size)]
    payloads = [event(n, scalar("loss", n)).SerializeToString() for n in range(1, 9000)]
    for place in range(100, 100 + 7 * count, 7):
        payloads[place] = event(place + 1, *wide).SerializeToString()
    buffer = b"".join(map(frame, payloads))
    walked = walk(buffer, 0, bounds_of(payloads))
    together = size < 64 or count >= 32
    counts = np.ones(len(payloads), np.int64)
    counts[100 : 100 + 7 * count : 7] = size if together else 0
    assert walked.known.tolist() == (counts > 0).tolist()
    assert np.bincount(walked.rows).tolist() == counts.tolist()


def test_more_series_than_are_told_apart() -> None:
    payloads = [event(n, scalar(f"tag{n}", n)).SerializeToString() for n in range(1, 30_000)]
    buffer = b"".join(map(frame, payloads))
    walked = walk(buffer, 0, bounds_of(payloads))
    assert 10_000 < len(walked.series) < 20_000
    assert walked.known[: len(walked.series)].all()
    assert not walked.known[len(walked.series) :].any()


@pytest.mark.parametrize("size", [5, 3000, 20_000])
@pytest.mark.parametrize("count", [1, 7, 8, 5000])
def test_damaged_records_among_others_of_one_size(size: int, count: int) -> None:
    payloads = [
        payload_of(START, 128 + n, encoded(("tensor", "t", bytes(size))))
        for n in range(min(count, 3_000_000 // size))
    ]
    framed = [bytearray(frame(each)) for each in payloads]
    damaged = {0, len(framed) // 2, len(framed) - 1}
    for number in damaged:
        framed[number][-1 - 3 * (number % 9)] ^= 16
    walked = walk(b"".join(framed), 0, bounds_of(payloads))
    assert set(np.flatnonzero(~walked.known).tolist()) == damaged
