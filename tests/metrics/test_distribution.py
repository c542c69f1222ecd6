from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rec_summary.metrics.distribution import (
    Distribution,
    categories_of,
    edges_of,
    jensen_shannon,
    psi,
    psi_by_chance,
)
from rec_summary.metrics.hashing import mix
from tests.support.laws import (
    assert_counts_add_up,
    assert_equal_states,
    assert_three_parts,
    refused,
)

COUNTS = hnp.arrays(np.int64, 6, elements=st.integers(0, 10**6))
NUMBERS = st.lists(st.floats(-3, 3) | st.just(math.nan) | st.just(math.inf), max_size=20)
EDGES = [-1.0, 0.0, 2.5]


def numbers(values: list[float]) -> Distribution:
    found = Distribution(EDGES)
    found.add(np.array(values, float))
    return found


def categories(values: list[int]) -> Distribution:
    found = Distribution(buckets=8)
    found.add(np.array(values, np.int64))
    return found


@given(st.lists(NUMBERS, min_size=3, max_size=3))
def test_laws_of_numbers(batches: list[list[float]]) -> None:
    assert_counts_add_up(numbers, batches)


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1)), min_size=3, max_size=3))
def test_laws_of_categories(batches: list[list[int]]) -> None:
    assert_counts_add_up(categories, batches)
    assert categories(batches[0]).counts[:-1].sum() == len(batches[0])


@given(NUMBERS)
def test_bins_are_those_of_numpy(values: list[float]) -> None:
    there = [value for value in values if not math.isnan(value)]
    expected, _ = np.histogram(np.clip(there, -9, 9), [-10, *EDGES, 10])
    assert numbers(values).counts.tolist() == [*expected.tolist(), len(values) - len(there)]


WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, 3.5, 2.0**20, -1.0, 2.0**20 + 1, math.inf, math.nan])
KNOWN = [-5, 3, 9]
ROWS = st.lists(st.tuples(st.sampled_from([*EDGES, *KNOWN, 0.5, 12, math.nan]), WEIGHTS))


@given(ROWS, st.booleans(), st.booleans())
@example([(12, 1.0), (9, 1.0), (9, 2.0**20), (9, 2.0**20 + 1), (math.nan, 3.5)], True, True)
def test_bins_have_the_weights_of_their_values(rows, weighted, of_numbers) -> None:
    if not of_numbers:  # values of categories are integers
        rows = [(int(value), weight) for value, weight in rows if value == value]
    values, weights = [value for value, _ in rows], [weight for _, weight in rows]
    if of_numbers:
        found, missing = Distribution(EDGES), len(EDGES) + 1
    else:
        found, missing = Distribution(buckets=4, categories=KNOWN), len(KNOWN) + 4
    found.add(values, np.array(weights) if weighted else None)
    counts, squares = defaultdict(Fraction), Fraction()
    for value, weight in rows:
        exact = Fraction(weight if 0 <= weight <= 2**20 else 0) if weighted else 1
        if value != value:
            place = missing
        elif of_numbers:
            place = sum(value >= edge for edge in EDGES)
        elif value in KNOWN:
            place = KNOWN.index(value)
        else:
            place = len(KNOWN) + int(mix(np.array([value]))[0]) % 4
        counts[place] += exact
        squares += exact**2 if place < missing else 0
    assert found.counts.tolist() == [counts[place] for place in range(missing + 1)]
    assert found.squares == squares
    kish = (found.counts[:-1].sum() ** 2 / float(squares)) if squares else 0
    assert found.sample().sum() == pytest.approx(kish)


def test_float32_and_booleans_are_numbers() -> None:
    found = Distribution([0.5])
    found.add(np.array([[True, False], [True, True]]))
    found.add(np.array([0.5, 0.25, np.nan], np.float32))
    assert found.counts.tolist() == [2, 4, 1]


@given(COUNTS, COUNTS)
@example(np.array([20, 27, 5, 0, 0, 0]), np.array([0, 0, 0, 20, 27, 5]))  # 1 but for rounding
@example(np.zeros(6), np.ones(6))
@example(np.ones(6), np.zeros(6))
def test_jensen_shannon_is_that_of_scipy(p: np.ndarray, q: np.ndarray) -> None:
    distance = pytest.importorskip("scipy.spatial.distance")
    with np.errstate(all="raise"):
        found = jensen_shannon(p, q)
    if p.sum() and q.sum():
        # scipy's is a square root, which makes the rounding of a small difference large.
        assert found == pytest.approx(distance.jensenshannon(p, q, base=2) ** 2, abs=1e-9)
        assert 0 <= found <= 1
    else:
        assert math.isnan(found)


def test_jensen_shannon_at_its_ends() -> None:
    one, other = np.array([5, 5, 0, 0]), np.array([0, 0, 1, 7])
    assert jensen_shannon(one, 3 * one) == 0
    assert jensen_shannon(one, other) == 1


@given(COUNTS, COUNTS)
@example(np.array([1, 0, 1, 0, 9, 9]), np.array([0, 1, 1, 0, 9, 9]))
@example(np.array([0.25, 0, 1, 0, 9, 9]), np.array([0, 0.5, 1, 0, 9, 9]))  # effective numbers
def test_psi_is_the_formula(p: np.ndarray, q: np.ndarray) -> None:
    found = psi(p, q)
    if not (p.sum() and q.sum()):
        assert math.isnan(found)
        assert math.isnan(psi_by_chance(p, q))
        return
    occurred = p + q > 0
    p, q = p[occurred], q[occurred]
    half = p.size / 2
    shares = [[(n + 0.5) / (side.sum() + half) for n in side.tolist()] for side in (p, q)]
    expected = sum((y - x) * math.log(y / x) for x, y in zip(*shares, strict=True))
    assert found == pytest.approx(expected, abs=1e-12)
    assert found >= 0
    assert found == pytest.approx(psi(q, p))


def test_psi_of_two_samples_of_one_distribution_is_what_chance_says() -> None:
    random = np.random.default_rng(5)
    shares = random.dirichlet(np.full(10, 5.0))
    pairs = [
        (random.multinomial(5_000, shares), random.multinomial(2_000, shares)) for _ in "x" * 400
    ]
    found = np.mean([psi(p, q) for p, q in pairs])
    assert found == pytest.approx(psi_by_chance(*pairs[0]), rel=0.15)
    # Bins without values do not count, and others do whichever counts they have.
    counts = np.append(pairs[0][0], [0, 0])
    assert psi_by_chance(counts, counts) == pytest.approx(9 * (2 / 5_000))


@given(hnp.arrays(np.float64, st.integers(1, 300), elements=st.floats(-5, 5)), st.integers(2, 12))
@example(np.repeat([0.0, 1.0], [3, 4]), 4)
@example(np.repeat([0.0, 1.0, 2.0], [3, 5, 5]), 6)
def test_edges_of_a_sample(values: np.ndarray, bins: int) -> None:
    edges = edges_of(values, bins)
    assert 1 <= edges.size < bins
    assert (np.diff(edges) > 0).all()
    found = Distribution(edges)
    found.add(values)
    assert found.counts[0] > 0 or edges.size == 1  # a bin below all values says nothing
    if np.unique(values).size == values.size >= 10 * bins:
        assert found.counts[:-1].max() <= math.ceil(values.size / bins) + 2


def test_edges_of_a_sample_with_one_value() -> None:
    assert edges_of([3.0, 3.0, math.nan], 10).tolist() == [3.0]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(2, 20))
@example([1, 1, 1], 3)
@example([5, 4, *[1] * 40], 5)
def test_frequent_categories_have_a_bin_each(sizes: list[int], buckets: int) -> None:
    ids = 7 * np.arange(len(sizes)) - 50
    found = categories_of(np.random.default_rng(0).permutation(np.repeat(ids, sizes)), buckets)
    few = len(sizes) <= buckets
    kept = [few or size >= 5 for size in sizes]
    assert found.categories.tolist() == ids[kept].tolist()
    rest = sum(size for size, known in zip(sizes, kept, strict=True) if not known)
    # As many buckets as have ten values of the rest on average.
    assert 2 <= found.buckets <= buckets
    assert found.buckets == 2 or 10 * found.buckets <= rest
    assert found.buckets == buckets or 10 * (found.buckets + 1) > rest
    assert found.counts.sum() == 0


def test_of_too_many_frequent_categories_the_most_frequent_have_a_bin() -> None:
    ids = np.arange(5_000)
    sizes = 5 + ids % 7
    found = categories_of(np.repeat(ids, sizes), 256)
    assert found.categories.tolist() == sorted(
        sorted(ids.tolist(), key=lambda id_: -sizes[id_])[:4096]
    )
    assert found.buckets == 256


@pytest.mark.parametrize("other", [Distribution([1.0]), Distribution(buckets=3)])
def test_other_bins_are_not_merged(other: Distribution) -> None:
    refused(ValueError, "of a state to merge", numbers([1.0]).merge, other)


def test_large_weights_are_rounded_and_can_be_restored() -> None:
    for seed in range(8):
        random = np.random.default_rng(seed)
        found = Distribution(np.linspace(0.1, 0.9, 9))
        values, weights = random.random(50_000), 2.0**20 * random.random(50_000)
        found.add(values, weights)
        assert found.counts[-1] == 0  # no value is missing
        assert found.counts.sum() == pytest.approx(weights.sum())
        found.add(np.array([math.nan, 0.5]), np.array([3.0, 0.0]))
        assert found.counts[-1] == 3
        assert Distribution.from_arrays(found.arrays()).equals(found)


def test_negative_counts_are_not_restored() -> None:
    arrays = numbers([1.0]).arrays()
    arrays["counts"][0] = -1
    refused(ValueError, "counts", Distribution.from_arrays, arrays)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"edges": [1, 0]},
        {"edges": [1, 1]},
        {"edges": [math.nan]},
        {"edges": [[1, 2], [3, 4]]},
        {"edges": [1], "buckets": 1},
        {"edges": [1], "buckets": 3},
        {"edges": [1], "categories": [1]},
        {"categories": [1, 2]},
        {"buckets": 1},
        {"buckets": -2},
        {"buckets": 2**20 + 1},
        {"buckets": 2.0},
        {"buckets": 2, "categories": [1, 3, 2]},
        {"buckets": 2, "categories": [3, 3]},
        {"buckets": 2, "categories": [[3, 4]]},
    ],
)
def test_invalid_bins(wrong: dict[str, list[float]]) -> None:
    with pytest.raises((TypeError, ValueError), match="is invalid") as error:
        Distribution(**wrong)  # type: ignore[arg-type]
    assert_three_parts(error)


def test_the_fewest_and_the_most_bins() -> None:
    assert Distribution([0.5]).counts.size == 3
    assert Distribution(buckets=1, categories=[5]).counts.size == 3
    assert Distribution(buckets=2, categories=[5]).counts.size == 4
    assert Distribution(buckets=2**20).counts.size == 2**20 + 1


@pytest.mark.parametrize("empty", [Distribution([0.5]), Distribution(buckets=3)])
def test_a_batch_without_values_changes_nothing(empty: Distribution) -> None:
    before = empty.copy()
    for weights in (None, np.zeros(0)):
        empty.add([], weights)
    assert_equal_states(empty, before)


def test_invalid_values() -> None:
    refused(TypeError, "an integer dtype", Distribution(buckets=4).add, [0.5])
    refused(TypeError, "real numbers", Distribution([1.0]).add, ["a"])
