"""The numbers of a click model beside those of scikit-learn, on streams of all click rates."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss, roc_auc_score

from rec_summary.metrics.quality import score_quality
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import clean
from tests.support.laws import assert_equal_states, refused, updated


@pytest.fixture(params=[1e-4, 0.03, 0.5, 0.9999], scope="module")
def stream(request):
    rng = np.random.default_rng(11)
    rate = request.param
    scores = 1 / (1 + np.exp(-rng.normal(np.log(rate / (1 - rate)), 0.5, 300_000)))
    labels = rng.random(300_000) < scores
    return scores.astype(np.float32), labels, rng.integers(1, 9, 300_000) / 4


@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_are_those_of_scikit_learn(stream, weighted):
    scores, labels, weights = stream
    weights = weights if weighted else None
    state = updated(ClickQuality(), scores, labels, weights)
    exact = scores.astype(np.float64)
    area = state.order.auc()
    assert area.value == pytest.approx(
        roc_auc_score(labels, exact, sample_weight=weights), abs=min(2e-4, area.error_bound)
    )
    loss = log_loss(labels, exact, sample_weight=weights)
    assert state.loss.log_loss() == pytest.approx(loss, rel=1e-6)
    rate = np.average(labels, weights=weights)
    entropy = log_loss(labels, np.full(len(labels), rate), sample_weight=weights)
    assert state.loss.normalised_entropy() == pytest.approx(loss / entropy, rel=1e-6)
    expected = np.average(exact, weights=weights) / rate
    assert state.loss.calibration() == pytest.approx(expected, rel=1e-6)


def test_reliability_is_near_that_of_scikit_learn(stream):
    scores, labels, _ = stream
    state = updated(ClickQuality(65_536), scores, labels)
    observed, predicted = calibration_curve(labels, scores, n_bins=5, strategy="quantile")
    found = score_quality.reliability(state, 5)
    np.testing.assert_allclose(found.predicted, predicted, rtol=0.01)
    np.testing.assert_allclose(found.observed, observed, rtol=0.1)


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_a_batch_count_as_batches(weighted):
    random = np.random.default_rng(12)
    scores, labels = random.random(60), random.random(60) < 0.4
    weights = random.integers(0, 9, 60) / 4 if weighted else None
    at = random.permutation(60)
    batch = ClickQuality(64).prepare(clean(scores, labels, weights)).cut(at)
    parts = np.split(at, [1, 25])
    for part, places in zip(batch.split([0, 1, 25]), parts, strict=True):
        state, expected = ClickQuality(64), ClickQuality(64)
        state.count(part)
        expected.update(scores[places], labels[places], weights[places] if weighted else None)
        assert_equal_states(state, expected)


def test_a_bin_has_two_cells_and_precisions_are_part_of_the_state():
    state = ClickQuality(64, precisions=(1, 0.5))
    assert state.order.cells == 128
    assert ClickQuality.from_arrays(state.arrays()).precisions == (1.0, 0.5)
    for wrong in ((0.5, 0.0), (1.5,)):
        refused(ValueError, "precisions is invalid", ClickQuality, 64, precisions=wrong)


def test_the_rate_of_non_clicks_is_part_of_the_state(stream):
    scores, labels, _ = stream
    state, other = ClickQuality(64, 0.25), ClickQuality(64)
    state.update(scores, labels)
    restored = ClickQuality.from_arrays(state.arrays())
    assert restored.negative_rate == 0.25
    state.merge(restored)
    refused(ValueError, "negative_rate of a state to merge", state.merge, other)
    for rate in (0.0, 1.5, float("nan")):
        refused(ValueError, "negative_rate is invalid", ClickQuality, 64, rate)
