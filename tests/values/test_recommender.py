"""Curves, frequent ids and states of metrics as record values, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rec_summary._pb.summary_pb2 import MetricStates
from rec_summary.values.recommender import buckets_value, pack_state, pr_curve_value, unpack_states

_DTYPES = st.sampled_from(["?", "u1", "<i8", ">i8", "<f8", "<f4", "<u8", "<U5"])


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=9),
        _DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0))),
        max_size=4,
    )
)
def test_arrays_come_back_as_they_were(found) -> None:
    message = MetricStates()
    pack_state(message, "quality/lifetime", "Kind", found)
    again = MetricStates.FromString(message.SerializeToString())
    kind, back = unpack_states(again)["quality/lifetime"]
    assert kind == "Kind"
    assert back.keys() == found.keys()
    for name, array in found.items():
        assert back[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(back[name], array)


def test_large_arrays_are_compressed() -> None:
    message = MetricStates()
    pack_state(message, "key", "Kind", {"counts": np.zeros(100_000, np.int64)})
    assert message.ByteSize() < 10_000


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
    message = MetricStates()
    pack_state(message, "key", "Kind", {"counts": np.arange(100)})
    [array] = message.states[0].arrays
    for name, value in damage.items():
        array.ClearField(name)
        if name == "shape":
            array.shape.extend(value)
        else:
            setattr(array, name, value)
    with pytest.raises(ValueError, match=r"Received: .*Expected: "):
        unpack_states(message)


def test_counted_bins_become_buckets() -> None:
    histogram = buckets_value("scores", [0.0, 0.25, 0.5, 1.0], [1, 2.6, 4]).histogram
    assert [(each.left, each.width, each.count) for each in histogram.buckets] == [
        (0.0, 0.25, 1),
        (0.25, 0.25, 3),
        (0.5, 0.5, 4),
    ]
    assert (histogram.count, histogram.min, histogram.max) == (8, 0.0, 1.0)


def test_a_curve_keeps_the_order_of_its_rows() -> None:
    curve = pr_curve_value("curve", np.arange(12).reshape(6, 2)).pr_curve
    assert list(curve.true_positives) == [0, 1]
    assert list(curve.recall) == [10, 11]
