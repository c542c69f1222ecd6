from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.tables import count_min
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from tests.support.laws import assert_counts_add_up, assert_equal_states, refused

EXACT = FrequencyOptions(50, unknown_id=7, sample_one_in=1)
SKETCH = dataclasses.replace(EXACT, exact_rows=0, width=16)
OPEN = FrequencyOptions(None, unknown_id=-1, sample_one_in=1, width=16)

BATCHES = st.lists(st.lists(st.integers(-5, 60), max_size=30), min_size=3, max_size=3)


def state(options: FrequencyOptions, *batches: list[int] | np.ndarray) -> IdFrequency:
    found = IdFrequency(options)
    for batch in batches:
        found.add(batch)
    return found


def zipf_ids(count: int, size: int, exponent: float, seed: int = 0) -> np.ndarray:
    """Returns ids of which id r has a frequency that goes with ``(r + 1)**-exponent``."""
    weights = np.arange(1, size + 1) ** -exponent
    cumulated = np.cumsum(weights) / weights.sum()
    draws = np.random.default_rng(seed).random(count)
    return np.minimum(np.searchsorted(cumulated, draws), size - 1)


@pytest.mark.parametrize("options", [EXACT, SKETCH, OPEN])
@given(BATCHES)
def test_laws(options: FrequencyOptions, batches: list[list[int]]) -> None:
    assert_counts_add_up(lambda batch: state(options, batch), batches)


@given(st.lists(st.integers(-5, 60)), st.integers(0, 12))
def test_small_tables_are_counted_exactly(ids: list[int], count: int) -> None:
    found = state(EXACT, ids)
    assert found.seen == len(ids)
    assert found.unknown == ids.count(7)
    assert found.out_of_range == sum(not 0 <= i < 50 for i in ids)
    exact = Counter(i for i in ids if 0 <= i < 50 and i != 7)
    expected = sorted(exact.items(), key=lambda item: (-item[1], item[0]))[:count]
    top = found.top(count)
    assert list(zip(top.ids.tolist(), top.counts.tolist(), strict=True)) == expected
    np.testing.assert_allclose(top.low, top.counts)
    np.testing.assert_allclose(top.high, top.counts)


@pytest.mark.parametrize("exact_rows", [49, 50])
@pytest.mark.parametrize("unknown_id", [-1, 0, 7, 49, 50])
def test_an_unknown_id_is_counted_apart_wherever_it_is(unknown_id: int, exact_rows: int) -> None:
    options = FrequencyOptions(50, unknown_id, sample_one_in=1, exact_rows=exact_rows)
    assert options.exact == (exact_rows == 50)
    rows = [row for row in (0, 1, 48, 49) if row != unknown_id]
    found = state(options, [unknown_id, *rows, unknown_id, -2, 51], rows)
    assert (found.seen, found.unknown, found.out_of_range) == (4 + 2 * len(rows), 2, 2)
    top = found.top(5)
    assert (top.ids.tolist(), top.counts.tolist()) == (rows, [2] * len(rows))
    assert found.top_share(1) == 1 / len(rows)  # all are counted, so two lookups are no chance


def test_a_sample_without_a_draw_knows_no_id() -> None:
    found = state(FrequencyOptions(50), [1, 2])
    assert found.top().ids.size == 0
    assert np.isnan(found.top_share(5))


def test_each_sixteenth_id_is_drawn_also_where_the_stored_draws_end() -> None:
    found = state(FrequencyOptions(50), *[np.arange(700_000) % 50] * 3)
    assert found.arrays()["totals"].tolist() == [2_100_000, 0, 0, 131_250, 0, 131_250]


def test_a_merged_sample_goes_on_where_the_longer_one_ends() -> None:
    few, many = (state(FrequencyOptions(50, sample_one_in=4), [1] * size) for size in (6, 9))
    for one, other in ((few, many), (many, few)):
        merged = one.copy()
        merged.merge(other)
        assert merged.arrays()["totals"].tolist() == [15, 0, 0, 3, 2, 2]


@pytest.mark.parametrize("size", [None, 10**9, 200_000])
def test_the_sketch_finds_frequent_ids_within_its_bounds(size: int | None) -> None:
    # Scattered, so that their prefixes differ.
    names = np.random.default_rng(1).permutation(200_000)
    ids = names[zipf_ids(300_000, 200_000, 1.1)] * (1 if size == 200_000 else 4_999)
    found = state(FrequencyOptions(size, sample_one_in=1), *np.array_split(ids, 20))
    top = found.top(100)
    exact = Counter(ids.tolist())
    truth = np.array([exact[i] for i in top.ids.tolist()])
    assert (top.high >= truth).all()
    assert (top.low <= truth).mean() >= 0.95  # each with 98 %
    assert (top.low <= top.counts).all()
    assert (top.counts <= top.high).all()
    allowed = count_min.excess(found.options.width) * ids.size
    assert (truth[0] - 2 * allowed <= top.low[0]) & (top.low[0] > 0)
    sure = {i for i, n in exact.items() if n > ids.size * (1 / 2048 + allowed / ids.size)}
    assert len(sure) > 20
    assert sure <= set(top.ids.tolist())


def test_the_bounds_of_a_sample_hold_the_truth() -> None:
    ids = zipf_ids(400_000, 5_000, 1.1)
    found = state(FrequencyOptions(5_000), *np.array_split(ids, 100))
    top = found.top(50)
    truth = np.bincount(ids, minlength=5_000)[top.ids]
    # 99.7 % each; that the top was chosen by the same sample makes it a little less.
    assert ((top.low <= truth) & (truth <= top.high)).mean() >= 0.96
    assert top.counts[0] == pytest.approx(truth[0], rel=0.05)
    assert ((top.high - top.low)[:5] < truth[:5]).all()


def test_the_bounds_of_a_sample_are_those_of_wilson() -> None:
    stats = pytest.importorskip("scipy.stats")
    found = state(FrequencyOptions(4, sample_one_in=2), [0, 1, 1, 2, 2, 2] * 20)
    sampled, top = found.arrays()["counters"], found.top()
    for row, low, high in zip(top.ids, top.low, top.high, strict=True):
        test = stats.binomtest(int(sampled[row]), int(sampled.sum()))
        interval = test.proportion_ci(math.erf(3 / math.sqrt(2)), "wilson")
        assert (low, high) == pytest.approx((120 * interval.low, 120 * interval.high))


def test_the_sample_is_of_all_places_of_a_batch() -> None:
    # Every 16th place is another feature: a sample of every 16th id would see that or nothing.
    batch = np.tile(np.arange(16), 256)
    found = state(FrequencyOptions(16), *[batch] * 50)
    top = found.top(16)
    assert sorted(top.ids.tolist()) == list(range(16))
    np.testing.assert_allclose(top.counts, 50 * 256, rtol=0.2)
    assert top.counts.sum() == pytest.approx(50 * 4096)


def test_the_rate_of_the_sample_holds_for_small_batches() -> None:
    found = state(FrequencyOptions(4), *[[1, 2, 3]] * 160)
    assert found.arrays()["totals"].tolist() == [480, 0, 0, 30, 0, 30]


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("exact_rows", [0, 2**17])
def test_the_share_of_the_most_frequent_ids_is_found(exponent: float, exact_rows: int) -> None:
    ids = zipf_ids(1_000_000, 2_000, exponent)
    found = state(FrequencyOptions(2_000, sample_one_in=1, exact_rows=exact_rows), ids)
    truth = np.sort(np.bincount(ids))[::-1][:100].sum() / ids.size
    assert found.top_share(100) == pytest.approx(truth, abs=0.05)


def test_the_share_of_nothing_is_unknown() -> None:
    for options in (EXACT, SKETCH):
        assert np.isnan(state(options, [7, -3]).top_share(100))


@pytest.mark.parametrize(("number", "known"), [(4_000, False), (400_000, True)])
def test_a_small_sample_has_no_share_of_the_most_frequent_ids(number: int, known: bool) -> None:
    # 100 of 250 draws are much more than the most frequent ids have.
    ids = zipf_ids(number, 2_000, 1.0)
    share = state(FrequencyOptions(2_000), ids).top_share(100)
    truth = np.sort(np.bincount(ids))[::-1][:100].sum() / number
    assert share == pytest.approx(truth, abs=0.03) if known else np.isnan(share)


def test_beside_frequent_items_of_datasketches() -> None:
    datasketches = pytest.importorskip("datasketches")
    ids = zipf_ids(100_000, 10_000, 1.2)
    theirs = datasketches.frequent_items_sketch(12)
    for value in ids.tolist():
        theirs.update(value)
    found = theirs.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
    for size, surplus in ((10_000, 0), (None, 0.0007 * ids.size)):  # without a size, a sketch
        top = state(FrequencyOptions(size, sample_one_in=1), ids).top(10)
        for (item, _, low, high), ours, count in zip(found, top.ids, top.counts, strict=False):
            assert item == ours
            assert low <= count <= high + surplus


@pytest.mark.parametrize(
    "other",
    [{"size": 51}, {"unknown_id": None}, {"sample_one_in": 2}, {"exact_rows": 7}, {"width": 32}],
)
def test_other_settings_are_not_merged(other: dict[str, int | None]) -> None:
    a, b = IdFrequency(EXACT), IdFrequency(dataclasses.replace(EXACT, **other))
    refused(ValueError, "options of a state to merge is invalid", a.merge, b)


@pytest.mark.parametrize("options", [EXACT, SKETCH])
def test_counters_that_contradict_the_totals(options: FrequencyOptions) -> None:
    arrays = state(options, [1, 2]).arrays()
    arrays["counters"].flat[3] += 1
    refused(ValueError, "a sum of 2", IdFrequency.from_arrays, arrays)
    arrays = state(options, [1, 2]).arrays()
    arrays["totals"][1:3] = 2, 1
    refused(ValueError, "parts of at most the whole", IdFrequency.from_arrays, arrays)


@pytest.mark.parametrize(("place", "number"), [(4, 16), (4, 2**40), (5, 2**63 - 1), (0, 2**63 - 1)])
def test_totals_with_which_counting_cannot_go_on(place: int, number: int) -> None:
    arrays = state(FrequencyOptions(50), [1, 2]).arrays()
    arrays["totals"][4] = 15
    IdFrequency.from_arrays(arrays).add([1])
    arrays["totals"][place] = number
    with pytest.raises(ValueError, match="less than 16 ids owed, and counts that can rise"):
        IdFrequency.from_arrays(arrays)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"width": 100},
        {"width": 8},
        {"sample_one_in": 0},
        {"exact_rows": -1},
        {"width": 2**17},
        {"unknown_id": -(2**63) - 1},
    ],
)
def test_options_out_of_range(options: dict[str, int]) -> None:
    refused(ValueError, "is invalid", FrequencyOptions, **{"size": 9, **options})
    FrequencyOptions(1, unknown_id=-(2**63), sample_one_in=1, exact_rows=0, width=16)
    FrequencyOptions(1, width=2**16)


@pytest.mark.parametrize("size", [64, 2**20, None])
def test_errors_of_samples_average_out_over_reports(size: int | None) -> None:
    # The same ids in each interval, as in a data set that is trained again and again.
    ids = zipf_ids(2048, 64, 1.0)
    window = IdFrequency(FrequencyOptions(size))
    total = IdFrequency(FrequencyOptions(size))
    for _ in range(600):
        window.add(ids)
        total.merge(window)
        window = window.following()
    truth = np.bincount(ids, minlength=64) * 600
    top = total.top(10)
    error = np.abs(top.counts - truth[top.ids]) / truth[top.ids]
    assert error.max() <= 0.05


def test_a_sample_goes_on_after_a_restart() -> None:
    options = FrequencyOptions(2**20)
    ids = [zipf_ids(5_000, 1_000, 1.0, seed) for seed in range(30)]
    restarted = state(options, *ids[:10])
    restarted = IdFrequency.from_arrays(restarted.arrays())
    for each in ids[10:]:
        restarted.add(each)
    assert_equal_states(restarted, state(options, *ids))


def test_a_sketch_with_fewer_counters_than_ids_names_only_ids_that_were_surely_there() -> None:
    ids = [row for row in range(50) if row != 7]
    found = state(SKETCH, ids)
    assert found.top(200).ids.size == 0
    assert np.isnan(found.top_share(200))
    found.add([3] * 1000)
    top = found.top(200)
    assert top.ids.tolist() == [3]
    assert top.low[0] <= 1001 <= top.high[0]
    assert found.top_share(200) == pytest.approx(1001 / 1049, abs=0.03)


@pytest.mark.parametrize("one_in", [1, 16])
def test_collisions_of_a_table_with_equal_ids_are_no_frequent_ids(one_in: int) -> None:
    random = np.random.default_rng(0)
    found = IdFrequency(FrequencyOptions(1_000_000, sample_one_in=one_in))
    for _ in range(20):
        found.add(random.integers(0, 1_000_000, 100_000))
    top = found.top(20)
    assert top.ids.size == 0
    assert top.doubtful > 0
    assert np.isnan(found.top_share(100))
    # Ten ids with half of all lookups are found among them.
    for _ in range(20):
        found.add(random.integers(0, 10, 100_000) * 99_999)
    assert sorted(found.top(20).ids.tolist()) == [row * 99_999 for row in range(10)]
    assert found.top_share(100) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("exponent", [0.9, 1.0, 1.1, 1.3])
@pytest.mark.parametrize("size", [200_000, 1_000_000, None])
def test_the_share_of_a_sampled_table_is_right(exponent: float, size: int | None) -> None:
    names = np.random.default_rng(1).permutation(size or 1_000_000)
    ids = names[zipf_ids(4_000_000, names.size, exponent)]
    found = state(FrequencyOptions(size), *np.array_split(ids, 40))
    truth = np.sort(np.bincount(ids))[::-1][:100].sum() / ids.size
    assert found.top_share(100) == pytest.approx(truth, rel=0.03)


def test_an_id_that_was_there_once_is_found() -> None:
    top = state(SKETCH, [3]).top()
    assert (top.ids.tolist(), top.counts.tolist()) == ([3], [1])


@pytest.mark.parametrize(
    ("size", "levels"), [(1, 1), (16, 1), (17, 2), (2**20, 5), (2**20 + 1, 6), (None, 16)]
)
def test_the_sketch_of_a_smaller_table_is_smaller(size: int | None, levels: int) -> None:
    options = FrequencyOptions(size, exact_rows=0, width=64)
    assert IdFrequency(options).arrays()["counters"].shape == (levels, 4, 64)


def test_ids_of_64_bits_are_found() -> None:
    ids = np.array([2**63 + 5] * 40 + [7] * 30 + [2**64 - 1] * 20, np.uint64)
    top = state(FrequencyOptions(None, sample_one_in=1), ids).top(3)
    assert top.ids.view(np.uint64).tolist() == [2**63 + 5, 7, 2**64 - 1]
    assert top.counts.tolist() == [40, 30, 20]
