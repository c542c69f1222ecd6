"""The metrics of lists, beside scikit-learn, and beside all orders of ties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn")

from sklearn.metrics import label_ranking_average_precision_score, ndcg_score, roc_auc_score

from rec_summary.metrics.lists.list_quality import pairs_in_lists, pairs_of_all, top_of_lists
from rec_summary.metrics.lists.ranked_lists import RankedLists, SampledLists
from tests.support.laws import updated

SCORES = {
    "all different": lambda random, size: random.random(size),
    "many ties": lambda random, size: np.round(random.random(size), 1),
    "one score": lambda random, size: np.full(size, 0.5),
    "near 0": lambda random, size: random.random(size) * 1e-300,
    "near 1": lambda random, size: 1 - random.random(size) * 1e-15,
    "both signs": lambda random, size: np.ldexp(
        random.normal(size=size), random.integers(-400, 400, size)
    ),
}


def sampled(lists: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> SampledLists:
    state = updated(RankedLists(1 << 16), lists, scores, labels)
    return state.sampled()


def stream(kind: str, graded: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    lists = random.zipf(1.3, 2000) % 150
    labels = random.integers(0, 5 if graded else 2, 2000) * (random.random(2000) < 0.3)
    return lists, SCORES[kind](random, 2000), labels.astype(float)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("kind", SCORES)
def test_ndcg_is_that_of_scikit_learn(kind: str, graded: bool) -> None:
    lists, scores, labels = stream(kind, graded)
    found = sampled(lists, scores, labels)
    for k in (1, 5, 50):
        expected = [
            ndcg_score(labels[None, of], scores[None, of], k=k) if of.sum() > 1 else 1.0
            for of in (lists == each for each in np.unique(lists))
            if labels[of].any()
        ]
        top = top_of_lists(found, k)
        assert top.ndcg == pytest.approx(np.mean(expected), abs=1e-9)
        assert top.lists == len(expected)
        assert top.lists + top.without == len(np.unique(lists))


def test_mrr_of_one_relevant_example_is_the_label_ranking_precision() -> None:
    random = np.random.default_rng(4)
    scores = random.random((200, 20))
    labels = np.eye(20)[random.integers(0, 20, 200)]
    top = top_of_lists(sampled(np.repeat(np.arange(200), 20), scores, labels), 20)
    assert top.mrr == pytest.approx(label_ranking_average_precision_score(labels, scores))
    assert (top.recall, top.hit_rate, top.precision) == (1, 1, 0.05)


@settings(max_examples=40)
@given(
    examples=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
    k=st.integers(1, 7),
)
def test_of_ties_each_metric_is_the_mean_over_all_orders(examples, k) -> None:
    scores, labels = (np.array(each, float) for each in zip(*examples, strict=True))
    top = top_of_lists(sampled(np.zeros(len(scores), int), scores, labels), k)
    if not labels.any():
        assert math.isnan(top.recall)
        assert top.without == 1
        return
    found = []
    for order in itertools.permutations(range(len(scores))):
        placed = labels[sorted(order, key=lambda place: -scores[place])][:k]
        first = np.flatnonzero(placed)[:1]
        found.append(
            (placed.sum() / labels.sum(), placed.sum() / k, len(first), (1 / (first + 1)).sum())
        )
    expected = np.mean(found, axis=0)
    assert (top.recall, top.precision, top.hit_rate, top.mrr) == pytest.approx(tuple(expected))


def test_a_relevant_one_among_four_equal_ones_behind_the_first() -> None:
    lists, scores = np.zeros(5, int), np.array([0.9, 0.5, 0.5, 0.5, 0.5])
    top = top_of_lists(sampled(lists, scores, np.array([0.0, 1, 0, 0, 0])), 3)
    assert top.hit_rate == pytest.approx(1 / 2)  # at the second or the third place
    assert top.mrr == pytest.approx((1 / 2 + 1 / 3) / 4)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("kind", SCORES)
def test_pairs_are_those_of_numpy(kind: str, graded: bool) -> None:
    lists, scores, labels = stream(kind, graded)

    def counted(of: np.ndarray) -> tuple[float, float]:
        higher = labels[of][:, None] > labels[of]
        right = (scores[of][:, None] > scores[of])[higher].sum()
        tied = (scores[of][:, None] == scores[of])[higher].sum()
        return right + tied / 2, higher.sum()

    found = sampled(lists, scores, labels)
    right, pairs = np.sum([counted(lists == each) for each in np.unique(lists)], axis=0)
    assert pairs_in_lists(found).share == pytest.approx(right / pairs, abs=1e-12)
    right, pairs = counted(np.ones(len(lists), bool))
    assert pairs_of_all(found) == pytest.approx(right / pairs, abs=1e-12)
    if not graded:
        assert pairs_of_all(found) == pytest.approx(roc_auc_score(labels, scores))


def test_nothing_is_nan() -> None:
    found = RankedLists().sampled()
    assert math.isnan(top_of_lists(found, 3).ndcg)
    assert math.isnan(pairs_in_lists(found).share)
    assert math.isnan(pairs_of_all(sampled([1, 1], [0.1, 0.2], [1, 1])))


def test_a_dislike_has_no_gain_and_its_list_counts() -> None:
    random = np.random.default_rng(0)
    labels = random.choice([-1.0, 0.0, 1.0, 2.0], (300, 10), p=[0.2, 0.5, 0.2, 0.1])
    labels[0] = -1.0
    scores, lists = random.normal(labels), np.repeat(np.arange(300), 10)
    top = top_of_lists(sampled(lists, scores.ravel(), labels.ravel()), 5)
    gains = np.maximum(labels, 0)
    judged = gains.any(axis=1)
    assert (top.lists, top.without) == (judged.sum(), (~judged).sum())
    assert top.ndcg == pytest.approx(ndcg_score(gains[judged], scores[judged], k=5))
    without = top_of_lists(sampled(lists, scores.ravel(), gains.ravel()), 5)
    assert top.means == pytest.approx(without.means)
    # A dislike above the others is a mistake all the same.
    pairs = pairs_in_lists(sampled([1, 1], [0.2, 0.1], [-1.0, 0.0])).share
    right = pairs_in_lists(sampled([1, 1], [0.1, 0.2], [-1.0, 0.0])).share
    assert (pairs, right) == (0, 1)


def test_the_errors_of_a_sample_of_lists_are_the_spread_of_samples() -> None:
    random = np.random.default_rng(5)
    sizes = random.integers(4, 40, 3000)
    lists, skill = np.repeat(np.arange(3000), sizes), np.repeat(random.normal(1, 1, 3000), sizes)
    labels = (random.random(len(lists)) < 0.3).astype(float)
    scores = random.normal(skill * labels)
    every = sampled(lists, scores, labels)
    drawn = []
    for seed in range(60):
        state = updated(RankedLists(4096, 512), lists + (seed << 32), scores, labels)
        drawn.append(state.sampled())
    found = [(top_of_lists(each, 5), pairs_in_lists(each)) for each in drawn]
    truth = (*top_of_lists(every, 5).means, pairs_in_lists(every).share)
    values = np.array([(*top.means, pairs.share) for top, pairs in found])
    errors = [(*top.standard_errors, pairs.standard_error) for top, pairs in found]
    distances = (values - truth) / errors
    assert np.sqrt((distances**2).mean(0)) == pytest.approx(np.ones(6), abs=0.3)
    # Those by chance are larger, and there also if every list is in the sample.
    top, pairs = found[0]
    assert (np.array(top.chance_errors) > top.standard_errors).all()
    assert pairs.chance_error > pairs.standard_error
    assert top_of_lists(every, 5).standard_errors == (0,) * 5
    assert pairs_in_lists(every).standard_error == 0 < pairs_in_lists(every).chance_error


def test_the_error_of_one_list_is_not_known_unless_it_is_the_only_one() -> None:
    one = sampled([1, 1], [0.1, 0.2], [0, 1])
    assert (pairs_in_lists(one).standard_error, top_of_lists(one, 1).standard_errors[0]) == (0, 0)
    assert math.isnan(pairs_in_lists(one).chance_error)
    assert math.isnan(pairs_in_lists(one._replace(rate=0.5)).standard_error)
