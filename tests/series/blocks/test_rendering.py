"""Records as events of an event file: the same bytes as protobuf makes of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from google.protobuf.internal import api_implementation
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2, summary_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.format.framing import frame
from rec_summary.series.blocks.rendering import render
from rec_summary.series.blocks.walk import walk
from rec_summary.tensorboard.dashboards.histograms import to_histogram_proto
from rec_summary.values.summary import TENSOR, SummaryValue
from tests.support.images import to_image
from tests.support.record_dirs import START, event, histo, picture, scalar

tags = st.sampled_from(["a", "b", "loss/auto", "ünïcode", "x" * 99, "x" * 130, "y" * 1000])
# Protobuf in Python reads every NaN as the same one.
numbers = st.floats(width=32, allow_nan=api_implementation.Type() != "python")
spreads = st.builds(
    lambda seed, size: np.random.default_rng(seed).normal(3, size=size).astype(np.float32),
    st.integers(0, 99),
    st.sampled_from([1, 7, 30, 2000]),
)
odd_spreads = st.lists(st.sampled_from([0.0, 1.0, -1.0, math.nan]), max_size=3)
PNG = to_image(np.zeros((1, 3, 2, 5), np.uint8)).encoded_image
images = st.builds(
    lambda height, padding: Summary.Image(
        height=height, width=5, colorspace=3, encoded_image=PNG + bytes(padding)
    ),
    st.sampled_from([2, 300]),
    st.sampled_from([0, 0, 1, 20_000]),
)
plain = st.one_of(
    st.builds(scalar, tags, numbers),
    st.builds(histo, tags, spreads),
    st.builds(lambda tag, image: Summary.Value(tag=tag, image=image), tags, images),
)
odd = st.one_of(
    st.builds(histo, tags, odd_spreads),
    st.builds(picture, tags),
    st.just(Summary.Value.FromString(SummaryValue(TENSOR, "t", np.zeros(3)).encode())),
)
steps = st.sampled_from([1, 127, 128, 20_000, (1 << 35) - 1])


def shown(value: Any) -> Any:
    """The value of an event file, or None if something in it has no field there."""
    kind = value.WhichOneof("value")
    if kind == "scalar_value":
        return summary_pb2.Summary.Value(tag=value.tag, simple_value=value.scalar_value)
    if kind == "histogram":
        histogram = to_histogram_proto(value.histogram)
        fields = ("min", "max", "num", "sum", "sum_squares")
        is_whole = len(histogram.bucket) == len(value.histogram.buckets) > 0
        is_whole &= all(getattr(histogram, field) for field in fields)
        is_whole &= not value.histogram.nan_count
        return summary_pb2.Summary.Value(tag=value.tag, histo=histogram) if is_whole else None
    image = value.image
    if kind != "image" or not image.encoded_image:
        return None
    content = summary_pb2.Summary.Image(
        height=image.height,
        width=image.width,
        colorspace=image.colorspace,
        encoded_image_string=image.encoded_image,
    )
    return summary_pb2.Summary.Value(tag=value.tag, image=content)


@given(
    st.lists(
        st.tuples(
            steps,
            st.sampled_from([START, START, 0.0]),
            st.lists(plain, min_size=1, max_size=4) | st.lists(plain | odd, min_size=1, max_size=3),
        ),
        max_size=30,
    ),
    st.binary(max_size=9),
)
@settings(max_examples=200)
def test_events_are_those_that_protobuf_makes(
    records: list[tuple[int, float, list[Any]]], before: bytes
) -> None:
    events, framed = [], [before]
    for step, wall_time, recorded in records:
        values = [*{(each.WhichOneof("value"), each.tag): each for each in recorded}.values()]
        framed.append(frame(event(step, *values, at=wall_time).SerializeToString()))
        made = [*map(shown, values)]
        is_whole = wall_time != 0 and None not in made
        expected = event_pb2.Event(
            wall_time=wall_time, step=step, summary=summary_pb2.Summary(value=filter(None, made))
        )
        events.append(frame(expected.SerializeToString()) if is_whole else None)
    begins = np.cumsum([*map(len, framed)])
    buffer = b"".join(framed)
    rendered = render(buffer, begins, walk(buffer, len(before), begins - len(before)))
    assert rendered.known.tolist() == [each is not None for each in events]
    found = rendered.data.tobytes()
    for row, expected in enumerate(events):
        begin, end = rendered.bounds[row : row + 2].tolist()
        assert found[begin:end] == (expected or b"")


def test_scalars_of_long_records_are_rendered() -> None:
    """Far from the end of a record, it is not known how a key changes the checksum."""
    values = [scalar(f"{n:0100d}", n) for n in range(60)]
    buffer = frame(event(5, *values).SerializeToString()) * 3
    begins = np.arange(4) * (len(buffer) // 3)
    rendered = render(buffer, begins, walk(buffer, 0, begins))
    summary = summary_pb2.Summary(value=map(shown, values))
    expected = event_pb2.Event(wall_time=START + 1.25, step=5, summary=summary)
    assert rendered.data.tobytes() == frame(expected.SerializeToString()) * 3
