"""Histograms: against numpy in every case, against MindSpore's own code where it is there."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.values.histogram import (
    MAX_BINS,
    bin_count,
    decode_histograms,
    histogram,
    population,
)

finite32 = hnp.arrays(
    np.float32,
    hnp.array_shapes(max_dims=3, max_side=30),
    elements=st.floats(-(2.0**100), 2.0**100, width=32),
)
any_float = hnp.arrays(np.float64, st.integers(0, 200), elements=st.floats(width=64))


@given(finite32)
def test_finite_values_are_all_counted_within_their_bounds(array):
    result = histogram(array)
    assert result.count == array.size == sum(bucket.count for bucket in result.buckets)
    assert len(result.buckets) == bin_count(array.size)
    assert result.min == array.min()
    assert result.max == array.max()
    assert result.sum == pytest.approx(array.sum(dtype=np.float64), rel=1e-12, abs=1e-12)
    assert all(bucket.width > 0 for bucket in result.buckets)


@given(any_float)
def test_nan_and_infinities_are_counted_apart(array):
    result = histogram(array)
    assert result.count == array.size
    assert result.nan_count == np.isnan(array).sum()
    assert result.pos_inf_count == np.isposinf(array).sum()
    assert result.neg_inf_count == np.isneginf(array).sum()
    finite = array[np.isfinite(array)]
    assert sum(bucket.count for bucket in result.buckets) == finite.size
    if finite.size:
        assert (result.min, result.max) == (finite.min(), finite.max())


def test_buckets_hold_what_lies_in_them():
    array = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    result = histogram(array)
    assert len(result.buckets) == MAX_BINS
    for bucket in result.buckets[:-1]:
        inside = (array >= bucket.left) & (array < bucket.left + bucket.width)
        assert bucket.count == pytest.approx(inside.sum(), abs=2)  # float32 edges


@given(
    st.sampled_from([np.float32, np.float64]),
    st.floats(-1e6, 1e6),
    st.floats(2.0**-10, 2.0**20),
    st.integers(0, 2**32 - 1),
)
def test_values_at_the_edges_of_buckets_are_in_the_bucket_that_begins_there(
    kind, low, range_, seed
):
    random = np.random.default_rng(seed)
    edges = np.linspace(low, low + range_, MAX_BINS + 1).astype(kind)
    values = np.tile(edges, 12)  # some of them are one number below or above an edge
    values = np.nextafter(values, values + random.integers(-1, 2, values.size).astype(kind))
    buckets = histogram(values).buckets
    lefts = np.array([bucket.left for bucket in buckets])
    places = np.clip(lefts.searchsorted(values.astype(np.float64), "right") - 1, 0, None)
    assert len(buckets) == MAX_BINS
    counts = np.bincount(places, minlength=MAX_BINS).tolist()
    assert [bucket.count for bucket in buckets] == counts


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False, True]),
        np.array([3, 4, 5], dtype=np.int8),
        np.array([2**63 - 1, -(2**63)]),
        np.array([1.0, 2.0], dtype=np.float16),
        np.array([-1.7e308, 1.7e308]),
        np.float32(7),
    ],
)
def test_every_real_type_and_range_works(array):
    result = histogram(array)
    assert sum(bucket.count for bucket in result.buckets) == array.size
    assert all(math.isfinite(bucket.left + bucket.width) for bucket in result.buckets)


def test_equal_values_span_one_unit():
    result = histogram(np.full(20, 4.0))
    assert result.buckets[0].left == 3.5
    assert result.buckets[-1].left + result.buckets[-1].width == pytest.approx(4.5)
    assert sum(bucket.count for bucket in result.buckets) == 20


@pytest.mark.parametrize("array", [np.zeros(0), np.array([math.nan, math.inf])])
def test_without_finite_values_there_are_no_buckets(array):
    result = histogram(array)
    assert result.count == array.size
    assert len(result.buckets) == 0


@pytest.mark.mindspore
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 4, 9, 200, 5000])
def test_same_as_mindspores_for_the_same_array(seed, size):
    adapter = pytest.importorskip("mindspore.train.summary._summary_adapter")
    array = np.random.default_rng(seed).normal(0, 10.0**seed, size).astype(np.float32)
    array[::7] = [np.nan, np.inf, -np.inf, 3][seed]
    named = [{"_type": "Histogram", "name": "tag", "data": array}]
    theirs = adapter.package_summary_event(named, 1, 1.0).summary.value[0].histogram
    ours = histogram(array)
    for field in ("count", "nan_count", "pos_inf_count", "neg_inf_count", "min", "max"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.sum == pytest.approx(theirs.sum, rel=1e-12)
    assert len(ours.buckets) == len(theirs.buckets)
    for our, their in zip(ours.buckets, theirs.buckets, strict=True):
        assert our.left == pytest.approx(their.left, rel=1e-5, abs=1e-5 * 10.0**seed)
        assert our.width == pytest.approx(their.width, rel=1e-3)
        assert abs(our.count - their.count) <= 1


@pytest.mark.parametrize("sign", [1, -1])
def test_equal_values_at_the_end_of_the_range_have_a_histogram(sign):
    extreme = sign * np.finfo(np.float64).max
    found = histogram(np.array([extreme, extreme]))
    assert (found.min, found.max, found.count) == (extreme, extreme, 2)
    assert sum(bucket.count for bucket in found.buckets) == 2
    assert all(math.isfinite(bucket.left) for bucket in found.buckets)


def test_float32_values_further_apart_than_float32_reaches():
    found = histogram(np.array([-3e38, 1, 3e38, 1e38], np.float32))
    assert sum(bucket.count for bucket in found.buckets) == 4
    assert found.buckets[0].left == float(np.float32(-3e38))


@pytest.mark.parametrize("start", [1e16, -1e16, 2.0**53, 1e300, 1e-300, 5e-324, 1.0])
def test_neighbouring_values_have_a_histogram(start):
    """Between the edges of their bins there is no float64; newer numpy refuses to count these."""
    values = np.array([start] * 50 + [np.nextafter(start, np.inf)] * 60)
    found = histogram(values)
    assert (found.min, found.max, found.count) == (values.min(), values.max(), 110)
    counts = [bucket.count for bucket in found.buckets]
    assert (counts[0], counts[-1], sum(counts)) == (50, 60, 110)
    assert all(bucket.left == start for bucket in found.buckets[:1])


def test_float32_values_closer_than_float32_can_divide():
    """Bins of less than 1e-30 are counted in float64."""
    found = histogram(np.array([0, 2.0**-126], np.float32))
    assert [bucket.count for bucket in found.buckets] == [1, 1]


def decoded(contents):
    """What is read of histograms in step, by their numbers."""
    sizes = np.array([*map(len, contents)], np.int64)
    found = {}
    for numbers, left, width, counts, statistics in decode_histograms(
        b"".join(contents), sizes.cumsum() - sizes, sizes
    ):
        for row, number in enumerate(numbers.tolist()):
            buckets = [*zip(left[row], width[row], counts[row], strict=True)]
            found[number] = buckets, {name: each[row] for name, each in statistics.items()}
    return found


def expected(result):
    """The same, of a message."""
    buckets = [(bucket.left, bucket.width, bucket.count) for bucket in result.buckets]
    names = ("nan_count", "pos_inf_count", "neg_inf_count", "max", "min", "sum", "count")
    statistics = {name: getattr(result, name) for name in names}
    return buckets, statistics | {"population": population(result)}


@given(st.lists(st.tuples(any_float, st.sampled_from([None, 0, 127, 128, 1 << 55])), max_size=20))
def test_histograms_are_decoded_in_step(recorded):
    """All but those without buckets, and with counts of values not finite that take two bytes."""
    results = [histogram(array) for array, _ in recorded]
    for result, (_, sampled) in zip(results, recorded, strict=True):
        if sampled is not None:
            result.population = sampled
    found = decoded([result.SerializeToString() for result in results])
    for number, result in enumerate(results):
        rest = (result.nan_count, result.pos_inf_count, result.neg_inf_count)
        assert (number in found) == (bool(result.buckets) and max(rest) < 128)
        assert number not in found or found[number] == expected(result)


@given(st.lists(any_float, min_size=2, max_size=5), st.data())
def test_what_is_decoded_in_step_of_other_bytes_is_what_protobuf_decodes(arrays, data):
    """Bytes that are changed, cut out or put in; none has a histogram behind it."""
    contents = []
    for array in arrays:
        content = bytearray(histogram(array).SerializeToString())
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, max(len(content) - 1, 0)))
            end = at + data.draw(st.integers(0, 30))
            content[at:end] = data.draw(st.binary(max_size=20) | st.just(content[at:end]))
        contents.append(bytes(content))
    for number, read in decoded(contents).items():
        result = Summary.Histogram.FromString(contents[number])
        np.testing.assert_equal(read, expected(result))


def test_very_many_histograms_beside_a_long_one_take_little_memory():
    long = Summary.Histogram(nan_count=0, pos_inf_count=0, neg_inf_count=0, count=900)
    for n in range(900):
        long.buckets.add(left=n, width=1, count=1)
    long.max, long.min, long.sum = 900, 0, 5
    contents = [b""] * 50_000
    contents[777] = long.SerializeToString()
    tracemalloc.start()
    try:
        found = decoded(contents)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert found == {777: expected(long)}
