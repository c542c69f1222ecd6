"""The sample of lists: which examples meet in a list, and what stays of too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.metrics.lists.list_quality import pairs_in_lists, pairs_of_all, top_of_lists
from rec_summary.metrics.lists.ranked_lists import RankedLists, SampledExamples
from tests.support.laws import assert_counts_add_up, assert_equal_states, refused, updated

EXAMPLES = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from([0.0, -0.0, 0.25, 1.0, -7.5, 1e-300, 1e150, np.nan, np.inf, 1e151]),
        st.sampled_from([0.0, 1.0, 2.0]),
    ),
    max_size=30,
)


def counted(examples: list[tuple[int, float, float]]) -> RankedLists:
    state = RankedLists(16, 4)
    lists, scores, labels = (
        np.array([each[place] for each in examples], dtype)
        for place, dtype in enumerate((np.int64, np.float64, np.float64))
    )
    state.update(lists, scores, labels)
    return state


@settings(max_examples=30)
@given(a=EXAMPLES, b=EXAMPLES, c=EXAMPLES)
def test_the_laws_hold_for_long_lists_and_extreme_numbers(a, b, c) -> None:
    assert_counts_add_up(counted, (a, b, c))


def test_examples_without_a_usable_score_and_label_are_refused_and_counted() -> None:
    state = RankedLists()
    state.update([1] * 5, [np.nan, 1e151, 0.5, 0.5, 0.5], [1, 1, np.nan, -1e151, 1])
    assert state.refused == 4
    assert state.sampled().rows.size == 1
    state.update([2, 2], [1e150, 0.5], [1, -1e150])  # the largest ones
    assert state.refused == 4


def test_zeros_of_both_signs_are_stored_as_one() -> None:
    state = updated(RankedLists(), [1, 1, 2], [-0.0, 0.0, -0.0], [1, 1, -0.0])
    stored = state.arrays()
    assert stored["counts"].sum() == 3
    assert len(stored["scores"]) == 2
    assert not np.signbit([stored["scores"], stored["labels"]]).any()


def test_a_list_is_the_same_however_its_examples_are_spread() -> None:
    random = np.random.default_rng(0)
    lists, scores = random.integers(0, 50, 1000), random.random(1000)
    labels = (random.random(1000) < 0.2).astype(float)
    whole, parts = RankedLists(), RankedLists()
    whole.update(lists, scores, labels)
    for start in range(0, 1000, 10):
        at = slice(start, start + 10)
        parts.update(lists[at], scores[at], labels[at])
    one, other = whole.sampled(), parts.sampled()
    assert top_of_lists(one, 5) == top_of_lists(other, 5)
    assert pairs_in_lists(one) == pairs_in_lists(other)


def test_a_list_that_is_too_long_is_left_out() -> None:
    state = updated(RankedLists(64, 8), ["long"] * 9 + ["short"] * 8, np.arange(17), [1] * 17)
    found = state.sampled()
    assert (found.too_long, len(found.starts), found.rows.size) == (1, 1, 8)
    state.update(["long"], [0.5], [1])
    assert state.sampled().too_long == 1
    state.update(["short"] * 100, [9.0] * 100, [1] * 100)  # equal examples are one row
    assert state.sampled().rows.counts.sum() == 108


def test_lists_that_become_too_long_keep_their_room() -> None:
    state = updated(RankedLists(16, 4), np.repeat(np.arange(4), 4), np.arange(16), np.ones(16))
    found = state.sampled()
    assert (found.rows.size, found.rate) == (16, 1)
    state.update(np.repeat(np.arange(4), 2), np.arange(16, 24), np.ones(8))
    found = state.sampled()
    assert (found.rows.size, found.too_long) == (0, 3)
    assert found.rate < 1


def test_the_count_of_a_list_that_is_too_long_does_not_depend_on_the_order() -> None:
    merged, turned = counted([(1, score, 1.0) for score in range(6)]), RankedLists(16, 4)
    turned.update([1] * 3, [3, 4, 5], [1] * 3)
    turned.update([1] * 3, [2, 1, 0], [1] * 3)
    assert_equal_states(merged, turned)
    assert merged.arrays()["counts"].tolist() == [6]


def test_the_sample_is_of_whole_lists_and_gives_the_metric_of_all() -> None:
    random = np.random.default_rng(1)
    lists, scores = np.repeat(np.arange(5000), 10), random.random(50_000)
    labels = (random.random(50_000) < 0.5 * scores).astype(float)
    every, sample = RankedLists(1 << 20), RankedLists(4096)
    for state in (every, sample):
        state.update(lists, scores, labels)
    found, expected = sample.sampled(), top_of_lists(every.sampled(), 10)
    assert found.rows.size <= 4096
    assert found.rate == pytest.approx(len(found.starts) / 5000, rel=0.1)
    assert (np.diff(np.append(found.starts, found.rows.size)) == 10).all()
    drawn = top_of_lists(found, 10)
    assert 0 < drawn.standard_errors[0] < 0.02
    assert drawn.ndcg == pytest.approx(expected.ndcg, abs=4 * drawn.standard_errors[0])
    assert expected.standard_errors[0] == 0


def test_equal_examples_are_in_few_rows() -> None:
    state, scores, labels = SampledExamples(), [0.0, -0.0, 1.0, 0.0], [1, 1, 1, 2]
    rows = state.prepare(np.zeros(4, int), scores, labels)
    assert rows.lists[0] == rows.lists[1]
    assert len(set(rows.lists.tolist())) == 3
    half = state.prepare(np.zeros(4, int), np.float16(scores), labels)
    assert (half.lists == rows.lists).all()
    state.update(np.arange(100_000), np.repeat([0.5, 0.25], 50_000), np.ones(100_000))
    found = state.sampled()
    assert (found.rate, found.rows.counts.sum()) == (1, 100_000)
    assert found.rows.size < 50


@pytest.mark.parametrize("parts", [1, 16])
@pytest.mark.parametrize("heavy", [0.0, 0.12, 0.6])
def test_a_heavy_example_is_sampled_as_often_as_others(heavy, parts) -> None:
    random = np.random.default_rng(5)
    labels = random.exponential(60, 200_000)
    scores = labels * np.exp(random.normal(0, 1.2, 200_000))
    equal = random.random(200_000) < heavy
    labels[equal] = scores[equal] = 0
    state, every = SampledExamples(4096), RankedLists(1 << 20, 1 << 18)
    for part in np.array_split(np.arange(200_000), parts):
        other = updated(SampledExamples(4096), part, scores[part], labels[part])
        state.merge(other)
    every.update(np.zeros(200_000, int), scores, labels)
    found = state.sampled()
    assert 2048 < found.rows.size <= 4096
    assert found.rows.counts.sum() == pytest.approx(found.rate * 200_000, rel=0.05)
    assert pairs_of_all(found) == pytest.approx(pairs_of_all(every.sampled()), abs=0.015)
    assert found.too_long == 0


def test_mistakes_are_reported() -> None:
    refused(TypeError, "lists is invalid", RankedLists().update, [1.5], [0.5], [1])
    refused(ValueError, "labels is invalid", RankedLists().update, [1], [0.5], [1, 0])
    refused(ValueError, "rows is invalid", RankedLists, 15, 8)
    refused(ValueError, "at is invalid", RankedLists, at=(0,))
    with pytest.raises(ValueError, match="setting at of a state to merge"):
        RankedLists(at=(1,)).merge(RankedLists(at=(2,)))
    stored = counted([(1, 0.5, 1.0), (2, 0.5, 1.0)]).arrays()
    with pytest.raises(ValueError, match="lists is invalid"):
        RankedLists.from_arrays({**stored, "lists": stored["lists"][::-1].copy()})
    with pytest.raises(ValueError, match="lists is invalid"):
        RankedLists.from_arrays({**stored, "limit": stored["lists"][-1]})


@pytest.mark.parametrize("at", [(1001,), (0,), tuple(range(1, 66))])
def test_places_that_would_take_much_memory_are_refused(at) -> None:
    arrays = RankedLists(16, 4, at=(1000,)).arrays()
    with pytest.raises(ValueError, match="at is invalid"):
        RankedLists.from_arrays({**arrays, "at": np.array(at, np.int64)})
