"""Curves, frequent ids and states of metrics as record values, and back."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rec_summary._pb.summary_pb2 import MetricStates, Summary
from rec_summary.values.histogram import encode_counted
from rec_summary.values.recommender import CURVE_ROWS, encode_columns, encode_state, unpack_states
from rec_summary.values.summary import encode_value
from tests.support.laws import refused

_DTYPES = st.sampled_from(["?", "u1", "<i8", ">i8", "<f8", "<f4", "<u8", "<U5"])

_NUMBERS = st.lists(st.floats(allow_nan=False), max_size=9)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=9),
        _DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0))),
        max_size=4,
    )
)
def test_arrays_come_back_as_they_were(found) -> None:
    data = encode_state("quality/lifetime", "Kind", found)
    message = MetricStates.FromString(data)
    assert message.SerializeToString() == data, "protobuf would have written the same"
    kind, back = unpack_states(message)["quality/lifetime"]
    assert kind == "Kind"
    assert back.keys() == found.keys()
    for name, array in found.items():
        assert back[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(back[name], array)


def test_large_arrays_are_compressed() -> None:
    assert len(encode_state("key", "Kind", {"counts": np.zeros(100_000, np.int64)})) < 10_000


@pytest.mark.parametrize(
    "damage",
    [
        {"dtype": "O"},
        {"dtype": "nonsense"},
        {"shape": [-1]},
        {"shape": [1 << 40]},
        {"shape": [99]},
        {"shape": [101]},
        {"data": b"no zlib"},
    ],
)
def test_damaged_arrays_are_refused(damage) -> None:
    message = MetricStates.FromString(encode_state("key", "Kind", {"counts": np.arange(100)}))
    [array] = message.states[0].arrays
    for name, value in damage.items():
        array.ClearField(name)
        if name == "shape":
            array.shape.extend(value)
        else:
            setattr(array, name, value)
    refused(ValueError, r"Received: .*Expected: ", unpack_states, message)


def test_states_that_are_too_large_together_are_refused_before_they_are_unpacked() -> None:
    arrays = {f"a{number}": np.zeros(1 << 20, np.uint8) for number in range(20)}
    message = MetricStates.FromString(encode_state("key", "Kind", arrays))
    assert message.ByteSize() < 1 << 18
    assert len(unpack_states(message, 20 << 20)["key"][1]) == 20
    tracemalloc.start()
    refused(ValueError, "20,971,520 bytes", unpack_states, message, (20 << 20) - 1)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_counted_bins_become_buckets() -> None:
    data = encode_counted(np.array([0.0, 0.25, 0.5, 1.0]), np.array([1, 2.6, 4]))
    histogram = Summary.Histogram.FromString(data)
    assert [(each.left, each.width, each.count) for each in histogram.buckets] == [
        (0.0, 0.25, 1),
        (0.25, 0.25, 3),
        (0.5, 0.5, 4),
    ]
    assert (histogram.count, histogram.min, histogram.max) == (8, 0.0, 1.0)


def test_a_curve_keeps_the_order_of_its_rows() -> None:
    curve = Summary.Value.FromString(
        encode_columns("curve", "pr_curve", np.arange(12).reshape(6, 2))
    )
    assert list(curve.pr_curve.true_positives) == [0, 1]
    assert list(curve.pr_curve.recall) == [10, 11]


@given(_NUMBERS, st.lists(st.integers(0, 1 << 40), min_size=1, max_size=70), st.text(max_size=5))
def test_values_have_the_bytes_of_protobuf(numbers, counts, tag) -> None:
    curve, reliability, top, buckets = (Summary.Value(tag=tag) for _ in range(4))
    for name in CURVE_ROWS:
        getattr(curve.pr_curve, name).extend(numbers)
    for name in ("predicted", "observed", "weights"):
        getattr(reliability.reliability, name).extend(numbers)
    curve.pr_curve.SetInParent()
    reliability.reliability.SetInParent()
    ids = [count - (1 << 20) for count in counts]
    top.top_ids.ids.extend(ids)
    for name in ("counts", "low", "high"):
        getattr(top.top_ids, name).extend(map(float, counts))
    edges = np.arange(len(counts) + 1) / 8
    histogram = buckets.histogram
    histogram.count = sum(counts)
    histogram.nan_count = histogram.pos_inf_count = histogram.neg_inf_count = 0
    histogram.min, histogram.max = edges[0], edges[-1]
    histogram.sum = float(np.array(counts, np.float64) @ ((edges[1:] + edges[:-1]) / 2))
    for left, count in zip(edges.tolist(), counts, strict=False):
        histogram.buckets.add(left=left, width=0.125, count=count)
    assert encode_columns(tag, "pr_curve", [numbers] * 6) == curve.SerializeToString()
    assert encode_columns(tag, "reliability", [numbers] * 3) == reliability.SerializeToString()
    assert encode_columns(tag, "top_ids", [ids, counts, counts, counts]) == top.SerializeToString()
    content = encode_counted(edges, np.array(counts, np.float64))
    assert encode_value(tag, "histogram", content) == buckets.SerializeToString()
