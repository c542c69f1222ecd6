import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.quality.score_histogram import ScoreHistogram
from rec_summary.metrics.quality.score_quality import (
    auc,
    auc_error_bound,
    calibration,
    expected_calibration_error,
    pr_curve,
    reliability,
)
from tests.support.click_streams import calibrated, exact_auc


def counted(scores, labels, weights=None, bins=1024):
    histogram = ScoreHistogram(bins)
    histogram.update(scores, labels, weights)
    return histogram


def of_rate_1e_4(rng):
    labels = (rng.random(500_000) < 1e-4).astype(np.float32)
    return np.clip(rng.beta(1, 1e4, 500_000) * (1 + 5 * labels), 0, 1), labels


def below_a_tenth(rng):
    labels = (rng.random(200_000) < 0.02).astype(np.float32)
    return rng.random(200_000) ** 8 * 0.1 * (0.5 + 0.5 * labels), labels


def overconfident(rng):
    labels = (rng.random(200_000) < 0.5).astype(np.float32)
    return 1 / (1 + np.exp(-(labels * 2 - 1) * 6 - rng.normal(0, 4, 200_000))), labels


STREAMS = {
    "calibrated, half": lambda rng: calibrated(rng, 200_000, 0),
    "calibrated, half, nearly constant": lambda rng: calibrated(rng, 200_000, 0, 0.1),
    "calibrated, 3 %": lambda rng: calibrated(rng, 200_000, -3.5),
    "calibrated, 3 %, narrow": lambda rng: calibrated(rng, 200_000, -3.5, 0.3),
    "calibrated, 1e-4": lambda rng: calibrated(rng, 2_000_000, -9.2),
    "calibrated, 1e-4, wide": lambda rng: calibrated(rng, 2_000_000, -9.2, 2),
    "rate 1e-4": of_rate_1e_4,
    "below a tenth": below_a_tenth,
    "overconfident": overconfident,
}


@pytest.mark.parametrize("stream", STREAMS)
def test_auc_is_within_a_thousandth_and_within_its_bound(stream):
    scores, labels = STREAMS[stream](np.random.default_rng(1))
    histogram = counted(scores, labels)
    error = abs(auc(histogram) - exact_auc(scores, labels))
    assert error <= 1e-3
    assert error <= auc_error_bound(histogram)


@pytest.mark.parametrize("stream", ["calibrated, 3 %", "rate 1e-4"])
def test_auc_is_that_of_scikit_learn(stream):
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = STREAMS[stream](np.random.default_rng(2))
    histogram = counted(scores, labels)
    assert abs(auc(histogram) - metrics.roc_auc_score(labels, scores)) <= 1e-3


EXAMPLES = st.lists(
    st.tuples(st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), max_size=40
)


@given(EXAMPLES, st.sampled_from([64, 1024]))
def test_the_bound_holds_for_any_scores(examples, bins):
    scores, labels = np.array([e[0] for e in examples]), np.array([e[1] for e in examples], bool)
    histogram = counted(scores, labels, bins=bins)
    if labels.all() or not labels.any():
        assert math.isnan(auc(histogram))
        assert math.isnan(auc_error_bound(histogram))
    else:
        error = abs(auc(histogram) - exact_auc(scores, labels))
        assert error <= auc_error_bound(histogram) + 1e-12


def test_the_bound_is_reached_by_the_worst_scores():
    # One click just above one non-click in the same bin: exactly 1, counted as a half.
    histogram = counted([0.3, 0.300001], [0, 1])
    assert auc(histogram) == 0.5
    assert auc_error_bound(histogram) == 0.5


def test_auc_with_weights():
    rng = np.random.default_rng(3)
    scores, labels = calibrated(rng, 20_000, -2)
    weights = rng.integers(1, 9, 20_000) / 4
    histogram = counted(scores, labels, weights)
    assert auc(histogram) == pytest.approx(exact_auc(scores, labels, weights), abs=1e-3)


@pytest.mark.parametrize("middle", [-0.5, -4])
def test_precision_and_recall_are_exact_at_their_thresholds(middle):
    scores, labels = calibrated(np.random.default_rng(4), 20_000, middle)
    curve = pr_curve(counted(scores, labels), 129)
    predicted = scores.astype(np.float64)[None, :] >= curve.thresholds[:, None]
    clicked = labels == 1
    tp, fp = (predicted & clicked).sum(1), (predicted & ~clicked).sum(1)
    np.testing.assert_array_equal(
        curve.as_array()[:4], [tp, fp, (~clicked).sum() - fp, clicked.sum() - tp]
    )
    np.testing.assert_allclose(curve.precision, tp / np.maximum(tp + fp, 1))
    np.testing.assert_allclose(curve.recall, tp / clicked.sum())
    assert (np.diff(curve.thresholds) >= 0).all()


def test_the_default_thresholds_are_where_tensorboard_draws_them():
    np.testing.assert_array_equal(pr_curve(ScoreHistogram()).thresholds, np.linspace(0, 1, 129))
    curve = pr_curve(ScoreHistogram(), 201)
    assert (curve.thresholds >= np.linspace(0, 1, 201)).all()
    assert curve.as_array().shape == (6, 201)
    assert not curve.as_array().any()  # nothing counted: zeros, as TensorBoard's own, not NaN


def test_calibration_is_predicted_over_observed():
    histogram = counted([0.5, 0.25, 0.25, 0.5], [1, 0, 0, 0])
    assert calibration(histogram) == 1.5
    assert math.isnan(calibration(counted([0.5], [0])))
    scores, labels = calibrated(np.random.default_rng(5), 200_000, -3)
    expected = scores.astype(np.float64).sum() / labels.sum()
    assert calibration(counted(scores, labels)) == pytest.approx(expected, rel=1e-12)


def test_groups_of_the_reliability_curve_are_those_of_the_examples():
    scores, labels = calibrated(np.random.default_rng(6), 20_000, -1)
    curve = reliability(counted(scores, labels), 8)
    assert len(curve.weights) <= 8
    assert curve.weights.sum() == 20_000
    for group in range(len(curve.weights)):
        inside = (scores >= curve.lower[group]) & (scores < curve.upper[group])
        assert curve.weights[group] == inside.sum()
        assert curve.predicted[group] == pytest.approx(scores[inside].mean(dtype=np.float64))
        assert curve.observed[group] == pytest.approx(labels[inside].mean(dtype=np.float64))
    fullest = np.bincount(np.digitize(scores, ScoreHistogram().edges)).max()
    assert np.abs(curve.weights - 2500).max() <= fullest
    error = np.abs(curve.predicted - curve.observed) @ curve.weights / 20_000
    assert expected_calibration_error(counted(scores, labels), 8) == pytest.approx(error)


def test_calibration_error_tells_the_calibrated_from_the_overconfident():
    rng = np.random.default_rng(7)
    scores, labels = calibrated(rng, 200_000, -2)
    assert expected_calibration_error(counted(scores, labels)) < 0.005
    doubled = np.minimum(2 * scores, 1)
    by_hand = np.abs(doubled - scores).mean()
    assert expected_calibration_error(counted(doubled, labels)) == pytest.approx(by_hand, rel=0.05)


def test_nothing_counted_is_nan():
    empty = ScoreHistogram()
    assert math.isnan(expected_calibration_error(empty))
    assert reliability(empty).weights.shape == (0,)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda h: pr_curve(h, 1), "num_thresholds"),
        (lambda h: reliability(h, 0), "groups"),
    ],
)
def test_mistakes_are_reported(call, what):
    with pytest.raises(ValueError, match=f"^{what} is invalid"):
        call(ScoreHistogram())
