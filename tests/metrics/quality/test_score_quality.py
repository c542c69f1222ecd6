import math

import numpy as np
import pytest
from sklearn.metrics import precision_recall_curve

from rec_summary.metrics.quality.score_histogram import ScoreHistogram
from rec_summary.metrics.quality.score_quality import (
    calibration,
    expected_calibration_error,
    pr_curve,
    reliability,
)
from tests.support.click_streams import calibrated


def counted(scores, labels, weights=None, bins=1024):
    histogram = ScoreHistogram(bins)
    histogram.update(scores, labels, weights)
    return histogram


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


@pytest.mark.parametrize("middle", [0, -4, -7.5])
def test_points_of_the_curve_are_even_in_recall(middle):
    scores, labels = calibrated(np.random.default_rng(4), 200_000, middle)
    curve = pr_curve(counted(scores, labels), 65)
    assert (curve.thresholds[0], curve.recall[0], curve.recall[-1]) == (0.0, 1.0, 0.0)
    assert np.abs(np.diff(curve.recall)).max() <= 0.06
    # Beside scikit-learn: its precision where the threshold is the same.
    precision, recall, thresholds = precision_recall_curve(labels, scores)
    at = np.searchsorted(thresholds, curve.thresholds[:-1])
    np.testing.assert_allclose(curve.precision[:-1], precision[at], rtol=1e-12)
    np.testing.assert_allclose(curve.recall[:-1], recall[at], rtol=1e-12)


def test_the_curve_of_nothing_is_zeros():
    curve = pr_curve(ScoreHistogram(), 201)
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
