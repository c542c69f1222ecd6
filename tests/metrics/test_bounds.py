"""The bounds that docs/recommender.md states, on 13 hard streams, beside exact values."""

import functools
import math

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.metrics import average_precision_score, log_loss, precision_recall_curve, roc_auc_score

from rec_summary.metrics.lists.list_quality import pairs_of_all
from rec_summary.metrics.lists.ranked_lists import SampledExamples
from rec_summary.metrics.quality import score_quality
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.grouped_auc import UserScores
from tests.support.laws import updated

SIZE = 100_000
RATE = 0.1  # of non-clicks that were kept
PARTS = 16  # of a window


def sigmoid(odds):
    return np.exp(-np.logaddexp(0.0, -odds))


def calibrated(scores, random):
    return scores, random.random(len(scores)) < scores


def lognormal(random):
    return calibrated(np.minimum(1e-4 * np.exp(random.normal(-2, 2, SIZE)), 1), random)


def weighted(random):
    scores, labels = calibrated(sigmoid(random.normal(-3, 1, SIZE)), random)
    return scores, labels, np.minimum(random.pareto(1.2, SIZE) + 0.01, 1e4)


def two_valued(random):
    return calibrated(np.where(random.random(SIZE) < 0.9, 0.01, 0.3), random)


def large_odds(random):
    labels = random.random(SIZE) < 0.3
    odds = random.normal(100, 30, SIZE) + 40 * labels
    return sigmoid(odds), labels, None, odds


def ends(random):
    scores = np.where(random.random(SIZE) < 0.5, 1e-6, 1 - 1e-6) + random.normal(0, 1e-7, SIZE)
    return calibrated(scores, random)


def float16(random):
    scores, labels = calibrated(sigmoid(random.normal(-2, 1, SIZE)), random)
    return scores.astype(np.float16), labels


def opposite(random):
    scores, labels = calibrated(sigmoid(random.normal(0, 1, SIZE)), random)
    return 1 - scores, labels


STREAMS = {
    "balanced": lambda random: calibrated(sigmoid(random.normal(0, 1, SIZE)), random),
    "1e-5": lambda random: calibrated(sigmoid(random.normal(-12, 1, 5 * SIZE)), random),
    "0.99999": lambda random: calibrated(sigmoid(random.normal(12, 1, 5 * SIZE)), random),
    "lognormal": lognormal,
    "constant": lambda random: calibrated(np.full(SIZE, 0.2), random),
    "two values": two_valued,
    "heavy ties": lambda random: calibrated(
        np.where(random.random(SIZE) < 0.8, 0.1, sigmoid(random.normal(-1, 1, SIZE))), random
    ),
    "drifting": lambda random: calibrated(
        sigmoid(random.normal(np.linspace(-6, 0, SIZE), 1)), random
    ),
    "heavy weights": weighted,
    "large log-odds": large_odds,
    "near 0 and 1": ends,
    "float16": float16,
    "opposite": opposite,
}


@functools.cache
def counted(name):
    """Returns scores, labels, weights, what gives the order, and the state of a window."""
    scores, labels, *more = STREAMS[name](np.random.default_rng(1))
    weights, odds = (*more, None, None)[:2]
    whole = ClickQuality(negative_rate=RATE)
    for part in np.array_split(np.arange(len(scores)), PARTS):
        state = updated(
            ClickQuality(negative_rate=RATE),
            *(None if each is None else each[part] for each in (scores, labels, weights, odds)),
        )
        state.seal()
        whole.merge(state)
    weights = np.ones(len(scores)) if weights is None else np.rint(weights * 2**20) / 2**20
    ranks = scores if odds is None else odds
    return scores.astype(np.float64), labels, weights, ranks.astype(np.float64), whole


def click_rate(labels, weights):
    return np.average(labels, weights=weights)


@pytest.mark.parametrize("name", STREAMS)
def test_the_auc_and_the_area(name):
    _, labels, weights, ranks, state = counted(name)
    few = min(labels.sum(), (~labels).sum()) < 100
    area = state.order.auc()
    right = roc_auc_score(labels, ranks, sample_weight=weights)
    most = min(0.001 if few else 0.0005, area.error_bound + 1e-9)
    assert area.value == pytest.approx(right, abs=most)
    assert area.error_bound < 0.01
    right = average_precision_score(labels, ranks, sample_weight=weights)
    found = score_quality.average_precision(state.order)
    assert found == pytest.approx(right, abs=0.01 if few else 0.002)


@pytest.mark.parametrize("name", STREAMS)
def test_the_points_of_the_curve(name):
    _, labels, weights, ranks, state = counted(name)
    curve = score_quality.pr_curve(state.order)
    if name == "large log-odds":  # thresholds are probabilities, of which all are 1
        assert len(np.unique(curve.recall)) > 100
        return
    order = np.argsort(ranks)
    at = np.searchsorted(ranks[order], curve.thresholds)
    clicks, every = (
        np.append(np.cumsum(each[order][::-1])[::-1], 0)[at] for each in (weights * labels, weights)
    )
    some = np.flatnonzero(every)
    np.testing.assert_allclose(curve.true_positives, clicks, rtol=0.02)
    np.testing.assert_allclose(curve.precision[some], clicks[some] / every[some], rtol=0.02)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("precision", [0.3, 0.9])
def test_the_recall_at_a_precision(name, precision):
    _, labels, weights, ranks, state = counted(name)
    precisions, recalls, _ = precision_recall_curve(labels, ranks, sample_weight=weights)
    low, high = (
        recalls[np.flatnonzero(precisions[:-1] >= near)[:1]].sum()
        for near in (precision * 1.02, precision * 0.98)
    )
    found = np.nan_to_num(score_quality.threshold_at(state.order, precision).recall)
    assert low - 0.03 <= found <= high * 1.02 + 1e-9


@pytest.mark.parametrize("name", STREAMS)
def test_the_loss_and_the_entropies(name):
    scores, labels, weights, _, state = counted(name)
    rate, total = click_rate(labels, weights), weights.sum()
    clipped = np.clip(np.float32(scores).astype(float), 1e-7, 1 - 1e-7)
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log1p(-rate))
    loss = log_loss(labels, clipped, sample_weight=weights)
    assert state.loss.normalised_entropy() == pytest.approx(loss / entropy, rel=1e-6)
    mean = np.average(np.float32(scores).astype(float), weights=weights)
    assert state.loss.calibration() == pytest.approx(mean / rate, rel=1e-9)
    found = score_quality.entropies(state)
    of_clicks = -((weights * labels) @ np.log(clipped)) / total / entropy
    assert found.of_clicks == pytest.approx(of_clicks, rel=0.001)
    odds, low, high = np.log(clipped) - np.log1p(-clipped), -40.0, 40.0
    for _ in range(40):
        shift = 0.5 * (low + high)
        is_high = np.average(sigmoid(odds + shift), weights=weights) > rate
        low, high = (low, shift) if is_high else (shift, high)
    losses = np.logaddexp(0, odds + shift) - labels * (odds + shift)
    best = np.average(losses, weights=weights) / entropy
    assert found.recalibrated == pytest.approx(best, rel=0.002)


@pytest.mark.parametrize("name", STREAMS)
def test_the_calibration(name):
    scores, labels, weights, _, state = counted(name)
    original = scores / (scores + (1 - scores) / RATE)
    predicted = (weights * np.where(labels, 1, 1 / RATE)) @ original
    expected = predicted / (weights @ labels)
    assert score_quality.original_calibration(state) == pytest.approx(expected, rel=0.002)
    _, ties = np.unique(scores, return_inverse=True)
    sizes = np.bincount(ties, weights)
    group = np.minimum(((np.cumsum(sizes) - sizes / 2) / sizes.sum() * 10).astype(int), 9)[ties]
    gaps = np.bincount(group, weights * (scores - labels))
    found = score_quality.expected_calibration_error(state)
    assert found.value == pytest.approx(np.abs(gaps).sum() / weights.sum(), abs=0.0005)
    assert 0 <= found.bound < 0.002


@pytest.mark.parametrize("name", ["balanced", "lognormal", "heavy ties", "drifting"])
def test_the_auc_of_users_with_many_scores(name):
    scores, labels, *_ = counted(name)
    scores, labels = scores[:40_000], labels[:40_000]
    users = np.arange(40_000) % 40
    state = updated(UserScores(), users, scores, labels)
    areas = [
        roc_auc_score(labels[users == user], scores[users == user])
        for user in range(40)
        if 0 < labels[users == user].mean() < 1
    ]
    found = state.gauc()
    assert found.users == len(areas)
    assert found.value == pytest.approx(np.mean(areas), abs=0.002 if len(areas) == 40 else 0.01)
    assert abs(found.value - np.mean(areas)) <= found.cell_error_bound + found.bias_bound + 1e-9


@pytest.mark.parametrize("heavy", [0.0, 0.12, 0.6])
def test_the_order_of_all_pairs(heavy):
    random = np.random.default_rng(2)
    labels = random.exponential(60, SIZE)
    scores = labels * np.exp(random.normal(0, 1.2, SIZE))
    equal = random.random(SIZE) < heavy
    labels[equal] = scores[equal] = 0
    every, sample = SampledExamples(1 << 20), SampledExamples(16_384)
    for state in (every, sample):
        state.update(np.arange(SIZE), scores, labels)
    found = sample.sampled()
    assert 8192 <= found.rows.size <= 16_384
    assert pairs_of_all(found) == pytest.approx(pairs_of_all(every.sampled()), abs=0.015)
