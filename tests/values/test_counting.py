"""The fast way of counting gives numpy's counts, exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rec_summary.values import histogram
from rec_summary.values.counting import count_float32

EPS = float(np.finfo(np.float32).eps)


def both(values, bins):
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high, bins + 1, dtype=np.float32)
    ours = count_float32(values, low, high, edges, max(abs(low), abs(high)) * EPS)
    if ours is None:
        return None, None  # newer numpy refuses some of these
    theirs, their_edges = np.histogram(values, bins, (low, high))
    assert np.array_equal(edges, their_edges)
    return ours, theirs


@given(
    hnp.arrays(
        np.float32,
        st.integers(2, 400),
        elements=st.floats(-1000, 1000, width=32) | st.sampled_from([0.0, 0.5, 1.0, 1.5]),
    ),
    st.integers(1, 254),
)
def test_counts_are_numpys(values, bins):
    if not values.max() - values.min() >= 1e-30 * bins:
        return
    ours, theirs = both(values, bins)
    if ours is not None:
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("size", [2, 3, 90, 1 << 15, (1 << 15) + 1, (1 << 17) - 1, (1 << 17) + 1])
@pytest.mark.parametrize("bins", [1, 2, 90, 254])
def test_blocks_and_pairs(size, bins):
    random = np.random.default_rng(size + bins)
    for values in (
        random.normal(size=size).astype(np.float32),
        random.integers(0, bins + 1, size).astype(np.float32),  # on the edges themselves
        np.linspace(-1, 1, size, dtype=np.float32),
    ):
        if values.min() < values.max():
            ours, theirs = both(values, bins)
            assert ours is not None
            assert ours.tolist() == theirs.tolist()
            assert ours.sum() == size


def test_bins_that_float32_does_not_separate_are_not_counted():
    values = np.array([1e6, 1e6 + 1], np.float32)
    assert both(values, 90)[0] is None


def test_histograms_do_not_count_narrow_bins_in_float32(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("bins of less than 1e-30")

    monkeypatch.setattr(histogram, "count_float32", refuse)
    found = histogram.histogram(np.array([0, 2.0**-126], np.float32))
    assert [bucket.count for bucket in found.buckets] == [1, 1]
    assert histogram.MAX_BINS <= 254
