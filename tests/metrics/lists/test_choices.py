"""The rank of the true one among candidates, beside scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import metrics

from rec_summary.metrics.lists.choices import MOST_K, ChoiceQuality
from tests.support.laws import assert_equal_states, assert_laws, refused, updated


def classes(seed: int, size: int = 400, width: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of classes, and the true one."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, width, size)
    logits = random.normal(size=(size, width)) + 1.5 * np.eye(width)[labels]
    odds = np.exp(logits)
    return odds / odds.sum(axis=1, keepdims=True), labels


def counted(seed: int) -> ChoiceQuality:
    return updated(ChoiceQuality(), *classes(seed))


def test_classes_are_judged_as_by_scikit_learn() -> None:
    scores, labels = classes(1)
    weights = np.random.default_rng(2).integers(1, 4, len(labels)).astype(float)
    state = updated(ChoiceQuality(), scores, labels, weights)
    best = scores.argmax(axis=1)
    assert state.top(1).recall == metrics.accuracy_score(labels, best, sample_weight=weights)
    loss = metrics.log_loss(labels, scores, sample_weight=weights)
    assert state.log_loss() == pytest.approx(loss, rel=1e-12)
    for k in (2, 4):
        expected = metrics.top_k_accuracy_score(labels, scores, k=k, sample_weight=weights)
        assert state.top(k).recall == pytest.approx(expected)


def test_a_retrieval_is_judged_as_by_scikit_learn() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=(64, 64)) + 2 * np.eye(64)
    state = updated(ChoiceQuality(0, at=(10,)), scores, np.arange(64))
    top = state.top(10)
    assert top.ndcg == pytest.approx(metrics.ndcg_score(np.eye(64), scores, k=10))
    whole = metrics.label_ranking_average_precision_score(np.eye(64), scores)
    assert state.top(64).mrr == pytest.approx(whole)
    assert top.recall == metrics.top_k_accuracy_score(np.arange(64), scores, k=10)
    assert state.candidates() == 64
    assert math.isnan(state.log_loss())


def test_equal_scores_win_nothing_and_a_missing_candidate_is_none() -> None:
    state = updated(ChoiceQuality(0), [[0.5, 0.5, 0.5]], [0])
    assert (state.top(1).recall, state.top(3).mrr) == (0, 1 / 3)
    state = updated(ChoiceQuality(0), [[0.5, np.nan, 0.7], [np.nan, 0.1, np.nan]], [2, 1])
    assert (state.top(1).recall, state.candidates()) == (1, 1.5)
    wide = np.arange(MOST_K + 50.0)[None]
    state.update(wide, [0])
    assert state.ranks[-1] == 1


def test_scores_of_half_precision_and_whole_numbers_are_judged_as_those_of_double() -> None:
    scores, labels = classes(4)
    scores[0], labels[0] = [0, 0, 1, 0, 0], 0  # the least likely one
    half, weights = scores.astype(np.float16), np.random.default_rng(5).random(400).astype("f2")
    for is_classes in (0, 1):
        narrow, wide = ChoiceQuality(is_classes), ChoiceQuality(is_classes)
        narrow.update(half, labels, weights)
        wide.update(half.astype(np.float64), labels, weights.astype(np.float64))
        assert wide.refused == 0
        assert_equal_states(narrow, wide)
    whole = updated(ChoiceQuality(0), np.argsort(scores), labels)
    wide = updated(ChoiceQuality(0), np.argsort(scores).astype(np.float64), labels)
    assert_equal_states(whole, wide)


def test_a_certain_class_and_the_least_and_largest_weights_are_counted() -> None:
    state = ChoiceQuality(at=range(1, 65))
    assert math.isnan(state.log_loss())
    state.update([[1, 0], [0, 1], [0, 1]], [0, 1, 0], [2**20, 0, 2**20])
    assert (state.refused, state.weight, state.top(1).recall) == (0, 2**21, 0.5)
    assert state.log_loss() == pytest.approx(-math.log(1e-7) / 2)
    assert state.candidates() == 2


def test_what_is_no_choice_is_refused_and_counted() -> None:
    state = ChoiceQuality()
    batch, reasons = state.prepare(
        [[0.5, 0.5], [0.5, 0.5], [np.nan, 1], [np.inf, 0], [3, -2], [0.9, 0.9], [0.4, 0.6]],
        [2, 0.5, 0, 1, 0, 0, 1],
        [1, 1, 1, 1, 1, 1, -1],
    )
    assert list(reasons.values()) == [2, 2, 2, 1]
    state.count(batch)
    assert (state.refused, state.weight) == (7, 0)
    assert math.isnan(state.top(1).recall)
    assert math.isnan(state.candidates())
    refused(ValueError, "scores is invalid", state.update, [0.5, 0.5], [0, 1])
    refused(ValueError, "scores is invalid", state.update, np.zeros((2, 0)), [0, 1])
    refused(TypeError, "scores is invalid", state.update, [["a", "b"]], [0])
    refused(ValueError, "k is invalid", state.top, 0)


def test_the_laws_hold() -> None:
    assert_laws(counted(1), counted(2), counted(3))
    halved = counted(1)
    halved.scale(0.5)
    assert halved.weight == 200
    assert halved.log_loss() == pytest.approx(counted(1).log_loss())
    stored = counted(1).arrays()
    stored["ranks"][0] = 1
    refused(ValueError, "ranks is invalid", ChoiceQuality.from_arrays, stored)
