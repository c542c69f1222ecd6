"""Blocks of scalars: the same bytes and the same report as record by record."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from google.protobuf.internal import api_implementation
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.framing import crc32c, frame, masked, unmasked
from rec_summary.series.blocks.scan import _headers, _starts, scan
from rec_summary.series.options import ExportOptions, Selection, Since
from rec_summary.values.summary import TENSOR, SummaryValue
from tests.support.blocks import both
from tests.support.images import to_image
from tests.support.record_dirs import START, event, histo, scalar

TAGS = ["a", "b", "loss/auto", "loss/mean", "ünïcode", "x" * 130, "_hparams_/taken"]


# Protobuf in Python reads every NaN as the same one; a block keeps the bits of each.
if api_implementation.Type() == "python":
    numbers = st.floats(width=32).map(lambda number: math.nan if math.isnan(number) else number)
else:
    numbers = st.floats(width=32)

spread = st.one_of(
    st.builds(
        lambda seed, size: np.random.default_rng(seed).normal(size=size).astype(np.float32),
        st.integers(0, 99),
        st.sampled_from([1, 2, 30, 2000, 50_000]),
    ),
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=8),
    st.lists(st.sampled_from([0.0, 1.0, math.nan, math.inf]), min_size=1, max_size=4),
)


PNG = to_image(np.zeros((1, 3, 2, 5), np.uint8)).encoded_image
pictures = st.builds(
    lambda tag, height, width, channels, data: Summary.Value(
        tag=tag,
        image=Summary.Image(height=height, width=width, colorspace=channels, encoded_image=data),
    ),
    st.sampled_from(["input", "a", "i" * 200]),
    st.sampled_from([2, 2, 2, 300, 0, -1]),
    st.sampled_from([5, 5, 1 << 30]),
    st.sampled_from([3, 3, 1, 0]),
    st.sampled_from([PNG, PNG, PNG + b"x" * 200, PNG[:20], b"", b"GIF89a\1\0\1\0"]),
)


def change(histogram: Any, how: int) -> None:
    """Makes a histogram of another writer's of it."""
    if not histogram.buckets or how == 0:
        histogram.Clear()
    elif how == 1:
        histogram.buckets[0].count = 0
    elif how == 2:
        histogram.buckets[-1].count = -5
    elif how == 3:
        histogram.buckets[-1].width = math.inf
    elif how == 4:
        histogram.ClearField("max")
    elif how == 5:
        histogram.nan_count = 3
    elif how == 6:
        histogram.buckets[0].count = 1 << 40
    elif how == 7:
        histogram.min = 0.0
    elif how == 8:
        histogram.sum = math.nan
    else:
        histogram.count = -1


@st.composite
def recorded(draw: st.DrawFn) -> list[bytes]:
    """The payloads of a summary file: mostly scalars of steps that go on."""
    payloads, step = [Event(wall_time=START, version="MindSpore.Event:1").SerializeToString()], 1
    for _ in range(draw(st.integers(0, 40))):
        step += draw(st.sampled_from([0, 1, 1, 1, 1, 7, 130, 20_000, -1, -50]))
        tags = draw(st.lists(st.sampled_from(TAGS), min_size=1, max_size=3, unique=True))
        values = [scalar(tag, draw(numbers)) for tag in tags]
        if draw(st.integers(0, 2)) == 0:
            values.append(histo(draw(st.sampled_from(["a", "w", "v"])), draw(spread)))
            if draw(st.booleans()):
                population = draw(st.sampled_from([0, 5, 127, 8000, 70_000, 1 << 62, -1]))
                values[-1].histogram.population = population
        if draw(st.integers(0, 3)) == 0:
            values.append(draw(pictures))
        if draw(st.integers(0, 30)) == 0 and values[-1].HasField("histogram"):
            change(values[-1].histogram, draw(st.integers(0, 9)))
        at = draw(st.sampled_from([None] * 12 + [0.0, math.nan, START - 7.5]))
        payload = event(step, *values, at=at).SerializeToString()
        if draw(st.integers(0, 30)) == 0:
            payload = payload[:-1]
        payloads.append(payload)
    return payloads


@given(recorded(), st.data())
@settings(max_examples=200)
def test_blocks_give_the_same_bytes(payloads: list[bytes], data: st.DataObject) -> None:
    content = b"".join(map(frame, payloads))
    cut = data.draw(st.integers(0, len(payloads)))
    first = b"".join(map(frame, payloads[:cut]))
    if data.draw(st.booleans()):  # a damaged byte
        place = data.draw(st.integers(0, len(content) - 1))
        content = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        both([content])
    else:
        both([first, content] if data.draw(st.booleans()) and first else [content])


@pytest.mark.parametrize("how", range(10))
def test_histograms_of_another_writer(how: int) -> None:
    payloads = []
    for step in range(1, 60):
        value = histo("w", [1.0, 2.0, 3.5, 9.0])
        if step > 9:
            change(value.histogram, how)
        payloads.append(event(step, scalar("a", 1.0), value).SerializeToString())
    both([b"".join(map(frame, payloads))])


@pytest.mark.parametrize(
    "options",
    [
        {"tags": "loss"},
        {"since": 5},
        {"since": Since(wall_time=START + 9.5)},
        {"since": Since(wall_time=START + 9.5), "tags": "loss"},
        {"since": 9, "until": Since(wall_time=START + 20.5)},
        {"max_points": 10},
        {"plugins": ["histograms"]},
    ],
)
def test_choices_hold(options: dict[str, Any]) -> None:
    ExportOptions(**options)
    payloads = [event(n, scalar("loss", n), scalar("b", -n)).SerializeToString() for n in range(99)]
    # A clock that goes back, and a type of record of its own.
    payloads[50] = event(50, scalar("loss", 0), at=START).SerializeToString()
    payloads[51] = event(51, scalar("b", 0), histo("w", [1, 2]), at=START).SerializeToString()
    both([b"".join(map(frame, payloads))], **options)


def test_what_was_written_before_a_time_is_not_selected() -> None:
    """Also where the clock has gone back."""
    times = {n: START + n % 7 for n in range(1, 40)}
    payloads = [
        event(n, scalar("a" if n % 3 else "b", n), at=at).SerializeToString()
        for n, at in times.items()
    ]
    framed = [*map(frame, payloads)]
    scanned = scan(b"".join(framed), 0, 0)
    assert scanned is not None
    expected = [n for n, at in times.items() if at >= START + 3]
    selection = Selection(ExportOptions(since=Since(wall_time=START + 3)))
    block = scanned.block("file", 0, scanned.end(0)).select(selection)
    assert len(block) == block.count == len(expected)
    assert block.steps.tolist() == block.scalars().steps.tolist() == expected
    assert [record.step for record in block.records()] == expected
    assert block.offsets.tolist() == [sum(map(len, framed[: n - 1])) for n in expected]
    part = block.part(2, 9).select(Selection(ExportOptions(until=expected[6])))
    assert part.scalars().values.tolist() == expected[2:7]
    assert block.frames() is None


def test_most_records_of_a_training_are_taken_in_blocks() -> None:
    payloads = [event(n, scalar("loss", n)).SerializeToString() for n in range(1, 3000)]
    payloads[1000] = event(1001, histo("w", [1.0, 2.0])).SerializeToString()
    content = b"".join(map(frame, payloads))
    block = scan(content, 0, 0)
    assert block is not None
    assert block.known.all()
    assert block.steps[:3].tolist() == [1, 2, 3]
    assert block.end(0) == 2999
    assert block.block("file", 0, 2999).frames() is not None
    unframed = scan(content, 0, 0, frames=False)
    assert unframed is not None
    assert unframed.block("file", 0, 2999).frames() is None
    series, rows, codes, numbers = block.table
    assert series == (("scalar_value", "loss"), ("histogram", "w"))
    assert np.flatnonzero(codes).tolist() == [1000]
    assert rows.tolist() == [*range(2999)]
    assert numbers[:3].tolist() == [1, 2, 3]


def test_a_restart_behind_a_long_training() -> None:
    """Steps of one, two and three bytes, that go back into each other."""
    steps = [*range(1, 500), *range(90, 700), *range(16_000, 17_000), *range(100, 20_000, 150)]
    payloads = [event(steps[0], scalar("loss", 0.0), scalar("a", 1)).SerializeToString()]
    for place, step in enumerate(steps):
        tag = "loss" if place % 3 else "a"
        payloads.append(event(step, scalar(tag, place)).SerializeToString())
    content = b"".join(map(frame, payloads))
    both([content])
    both([content[: len(content) // 3], content])


def test_counts_of_nan_that_have_just_begun_go_on() -> None:
    """The first of them is still held when the next record comes in a block."""
    spreads = [[1.0, 2.0], [1.0, 2.0], [1.0, math.nan, 3.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    payloads = [
        event(n, scalar("a", n), histo("w", spread)).SerializeToString()
        for n, spread in enumerate(spreads, start=1)
    ]
    both([b"".join(map(frame, payloads))])


def test_what_is_no_record_of_scalars_is_left_alone() -> None:
    assert scan(b"", 0, 0) is None
    assert scan(b"no record at all, but rather long", 0, 0) is None
    value = SummaryValue(TENSOR, "t", np.zeros(3))
    tensor = Summary.Value.FromString(value.encode())
    payloads = [event(n, tensor).SerializeToString() for n in range(1, 50)]
    assert scan(b"".join(map(frame, payloads)), 0, 0) is None
    for seed in range(200):
        noise = random.Random(seed).randbytes(60)
        assert scan(frame(noise) * 3, 0, 0) is None or seed < 0
        tail = event(3, scalar("loss", 1)).SerializeToString()
        for cut in range(len(tail)):
            scan(frame(tail[:cut] + noise[:5]) * 3, 0, 0)


@given(st.binary(max_size=40))
def test_a_checksum_is_masked_and_back(data: bytes) -> None:
    assert unmasked(masked(crc32c(data))) == crc32c(data)


def test_lengths_of_one_and_of_two_bytes_are_found_at_any_place() -> None:
    """Behind each of four places, and with zero bytes before and inside of records."""
    payloads = [
        event(n, scalar("x" * (1 + n * 7 % 280), 0.0), at=float(START)).SerializeToString()
        for n in range(1, 900)
    ]
    content = b"".join(map(frame, payloads))
    expected = np.cumsum([0, *(len(each) + 16 for each in payloads)])
    for before in range(4):
        begins = _headers(bytes(before) + content, before)[0] - before
        assert begins.tolist() == expected[:-1].tolist()
        assert _starts(bytes(before) + content, before).tolist() == expected.tolist()
