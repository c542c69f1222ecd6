import math

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss, precision_recall_curve

from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.score_cells import keys_of
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.quality.score_quality import (
    average_precision,
    entropies,
    expected_calibration_error,
    original_calibration,
    pr_curve,
    reliability,
    threshold_at,
)
from tests.support.click_streams import STREAMS, calibrated
from tests.support.laws import updated


def counted(scores, labels, weights=None, cells=2048):
    return counted_quality(scores, labels, weights, cells).order


def counted_quality(scores, labels, weights=None, cells=2048, negative_rate=1.0):
    quality = updated(ClickQuality(cells // 2, negative_rate), scores, labels, weights)
    quality.seal()
    return quality


def calibration_of(scores, labels):
    return updated(LogLoss(), scores, labels).calibration()


@pytest.mark.parametrize("middle", [-0.5, -4])
def test_precision_and_recall_are_exact_at_their_thresholds(middle):
    scores, labels = calibrated(np.random.default_rng(4), 20_000, middle)
    curve = pr_curve(counted(scores, labels), 129)
    predicted = scores.astype(np.float64)[None, :] >= curve.thresholds[:, None]
    clicked = labels == 1
    tp, fp = (predicted & clicked).sum(1), (predicted & ~clicked).sum(1)
    counts = [tp, fp, (~clicked).sum() - fp, clicked.sum() - tp]
    np.testing.assert_array_equal(curve.as_array()[:4], counts)
    np.testing.assert_allclose(curve.precision, tp / np.maximum(tp + fp, 1))
    np.testing.assert_allclose(curve.recall, tp / clicked.sum())
    assert (np.diff(curve.thresholds) >= 0).all()


def test_a_cell_that_ends_at_one_is_on_both_sides_of_the_score_one():
    random = np.random.default_rng(5)
    scores = np.concatenate([0.4 * random.random(20_000), random.random(99), [1.0]])
    labels = random.random(len(scores)) < scores
    order = counted(scores, labels, cells=64)
    order.merge(counted(np.ones(500), np.ones(500), cells=64))  # as of another rank
    scores, labels = np.append(scores, np.ones(500)), np.append(labels, np.ones(500))
    curve = pr_curve(order, 33)
    predicted = scores[None, :] >= curve.thresholds[:, None]
    # From 1 on, it is the scores of 1, and half of the cell around them.
    ended = curve.true_positives[-2] - 501, curve.false_positives[-2]
    assert ended[0] > 0
    np.testing.assert_allclose(curve.true_positives, predicted @ labels, atol=ended[0])
    np.testing.assert_allclose(curve.false_positives, predicted @ (1 - labels), atol=ended[1])


@pytest.mark.parametrize("middle", [0, -4, -7.5])
def test_points_of_the_curve_are_even_in_recall(middle):
    scores, labels = calibrated(np.random.default_rng(4), 200_000, middle)
    curve = pr_curve(counted(scores, labels), 65)
    assert (curve.thresholds[0], curve.thresholds[-1]) == (0.0, np.nextafter(1.0, 2.0))
    assert (curve.recall[0], curve.recall[-1]) == (1.0, 0.0)
    assert np.abs(np.diff(curve.recall)).max() <= max(0.08, 3 / labels.sum())
    # Beside scikit-learn: its precision where the threshold is the same.
    precision, recall, thresholds = precision_recall_curve(labels, scores)
    at = np.searchsorted(thresholds, curve.thresholds[:-1])
    np.testing.assert_allclose(curve.precision[:-1], precision[at], rtol=0.02)
    np.testing.assert_allclose(curve.recall[:-1], recall[at], rtol=0.02)


def test_the_curve_of_nothing_is_zeros():
    curve = pr_curve(ScoreOrder(), 201)
    assert curve.as_array().shape == (6, 201)
    assert not curve.as_array().any()  # nothing counted: zeros, as TensorBoard's own, not NaN


def test_calibration_is_predicted_over_observed():
    assert calibration_of([0.5, 0.25, 0.25, 0.5], [1, 0, 0, 0]) == 1.5
    assert math.isnan(calibration_of([0.5], [0]))
    scores, labels = calibrated(np.random.default_rng(5), 200_000, -3)
    expected = scores.astype(np.float64).sum() / labels.sum()
    assert calibration_of(scores, labels) == pytest.approx(expected, rel=1e-12)


def exact_groups(scores, labels, groups):
    """Returns predicted and observed rates and sizes of groups of whole scores, equal in size."""
    _, inverse, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    middles = (np.cumsum(sizes) - 0.5 * sizes) / len(scores)
    group = np.minimum((middles * groups).astype(int), groups - 1)[inverse]
    sizes = np.bincount(group, minlength=groups)
    with np.errstate(invalid="ignore"):
        return (
            np.bincount(group, scores, groups) / sizes,
            np.bincount(group, labels, groups) / sizes,
            sizes,
        )


@pytest.mark.parametrize(("digits", "weight"), [(9, 1.0), (1, 1.0), (2, 2.0**-14)])
def test_groups_of_the_reliability_curve_are_those_of_the_examples(digits, weight):
    scores, labels = calibrated(np.random.default_rng(6), 20_000, -1)
    scores = np.round(scores, digits)
    quality = counted_quality(scores, labels, np.full(20_000, weight), cells=1 << 16)
    quality.update([1.0], [1], [0.0])  # which counts for nothing
    curve = reliability(quality, 8)
    predicted, observed, sizes = exact_groups(scores.astype(np.float64), labels, 8)
    some = sizes > 0
    np.testing.assert_allclose(curve.predicted, predicted[some], rtol=1e-12)
    np.testing.assert_allclose(curve.observed, observed[some], rtol=1e-12)
    np.testing.assert_array_equal(curve.weights, sizes[some] * weight)


@pytest.mark.parametrize("name", STREAMS)
def test_the_area_and_the_calibration_error_are_right_on_all_streams(name):
    scores, labels = STREAMS[name](np.random.default_rng(1))
    quality = counted_quality(scores, labels)
    order = quality.order
    area = average_precision_score(labels, scores)
    assert average_precision(order) == pytest.approx(area, abs=0.002)
    predicted, observed, sizes = exact_groups(scores.astype(np.float64), labels, 10)
    some = sizes > 0
    error = np.average(np.abs(predicted - observed)[some], weights=sizes[some])
    found = expected_calibration_error(quality)
    assert found.value == pytest.approx(error, abs=0.0005)
    assert found.value == pytest.approx(error, abs=found.bound + 0.0003)  # of other groups
    curve = pr_curve(order, 129)
    precision, recall, thresholds = precision_recall_curve(labels, scores)
    at = np.searchsorted(thresholds, curve.thresholds)
    few = at == len(thresholds)  # nothing is predicted: scikit-learn has the precision 1 there
    expected = np.where(few, 0, precision[at])
    np.testing.assert_allclose(curve.precision, expected, rtol=0.02)
    np.testing.assert_allclose(curve.recall, recall[at], rtol=0.02)
    assert np.abs(np.diff(curve.recall)).max() <= max(0.08, 3 / labels.sum())


def test_the_area_is_exact_as_long_as_each_score_has_a_cell():
    rng = np.random.default_rng(8)
    scores = rng.integers(0, 1000, 20_000) / 1000
    labels = rng.random(20_000) < scores
    weights = rng.integers(1, 9, 20_000) / 2**14
    for each in (None, weights):
        expected = average_precision_score(labels, scores, sample_weight=each)
        assert average_precision(counted(scores, labels, each)) == pytest.approx(
            expected, rel=1e-12
        )
    assert math.isnan(average_precision(counted([0.5], [0])))


def test_calibration_error_distinguishes_the_calibrated_from_the_overconfident():
    rng = np.random.default_rng(7)
    scores, labels = calibrated(rng, 200_000, -2)
    assert expected_calibration_error(counted_quality(scores, labels)).value < 0.005
    doubled = np.minimum(2 * scores, 1)
    by_hand = np.abs(doubled - scores).mean()
    found = expected_calibration_error(counted_quality(doubled, labels)).value
    assert found == pytest.approx(by_hand, rel=0.05)


def entropy_of(labels):
    rate = np.mean(labels)
    return log_loss(labels, np.full(len(labels), rate))


@pytest.mark.parametrize("wrong", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("middle", [-4, 0, 3])
def test_other_entropies_are_those_of_scikit_learn(middle, wrong):
    """The odds of calibrated scores are multiplied by a factor, which recalibration removes."""
    right, labels = calibrated(np.random.default_rng(9), 100_000, middle)
    right = right.astype(np.float64)
    scores = wrong * right / (wrong * right + 1 - right)
    found = entropies(counted_quality(scores, labels))
    of_clicks = -np.log(scores[labels == 1]).sum() / len(labels) / entropy_of(labels)
    assert found.of_clicks == pytest.approx(of_clicks, rel=1e-3)
    # Regression with a fixed slope: a weight that is not penalised has the same minimum.
    odds = np.log(right / (1 - right))
    model = LogisticRegression(C=1e9, tol=1e-10).fit(odds[:, None], labels)
    best = log_loss(labels, model.predict_proba(odds[:, None])[:, 1]) / entropy_of(labels)
    assert found.recalibrated == pytest.approx(best, rel=1e-3)
    loss = updated(LogLoss(), scores, labels)
    mean = log_loss(labels, np.full(len(labels), scores.mean()))
    expected = log_loss(labels, scores) / mean
    assert loss.calibration_free_entropy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0])
def test_calibration_before_non_clicks_were_left_out(rate):
    rng = np.random.default_rng(10)
    scores, labels = calibrated(rng, 400_000, -3)
    kept = (labels == 1) | (rng.random(len(labels)) < rate)
    original, labels = scores[kept].astype(np.float64), labels[kept]
    sampled = original / (original + (1 - original) * rate)  # what a model of the sample learns
    found = original_calibration(counted_quality(sampled, labels, negative_rate=rate))
    weights = np.where(labels == 1, 1, 1 / rate)
    assert found == pytest.approx(weights @ original / labels.sum(), rel=1e-3)
    assert abs(found - 1) < 0.05


def test_nothing_counted_is_nan():
    empty = counted_quality([], [])
    assert all(map(math.isnan, expected_calibration_error(empty)))
    assert reliability(empty).weights.shape == (0,)
    for labels in ([], [1, 1], [0, 0]):
        one_kind = counted_quality(np.linspace(0.5, 0.6, len(labels)), labels, None, 2048, 0.5)
        assert all(math.isnan(each) for each in entropies(one_kind))
        assert math.isnan(original_calibration(one_kind))
    assert math.isnan(LogLoss().calibration_free_entropy())


@pytest.mark.parametrize("precision", [0.2, 0.5, 0.9, 1.0])
def test_the_threshold_at_a_precision_is_the_lowest_one_of_scikit_learn(precision):
    random = np.random.default_rng(5)
    scores = np.round(random.random(800), 3)
    labels = random.random(800) < scores**2
    order = updated(ScoreOrder(), scores, labels)
    found = threshold_at(order, precision)
    reached, recalls, thresholds = precision_recall_curve(labels, scores)
    good = np.flatnonzero(reached[:-1] >= precision)
    if len(good):
        assert found.score == pytest.approx(thresholds[good[0]], rel=1e-6)
        assert found.recall == pytest.approx(recalls[good[0]])
    else:
        assert np.isnan(found.score)
    assert np.isnan(threshold_at(ScoreOrder(), precision).recall)


@pytest.mark.parametrize(("clicks", "examples"), [(7, 100), (14, 25), (55, 100), (1, 3)])
def test_a_threshold_with_just_the_precision_is_one(clicks, examples):
    order = counted(np.full(examples, 0.5), np.arange(examples) < clicks)
    assert threshold_at(order, clicks / examples) == (0.5, 1.0)
    assert math.isnan(threshold_at(order, np.nextafter(clicks / examples, 1)).score)


def of_cells(codes, negatives, positives):
    """Returns the order of these cells."""
    arrays = {"cells": np.array(64), "seen": np.array(0), "codes": np.array(codes, np.uint64)}
    weights = {"negatives": np.array(negatives, float), "positives": np.array(positives, float)}
    return ScoreOrder.from_arrays({**arrays, **weights})


WIDE, WITHIN, ABOVE = 3 << 60, 3 << 60 | 1 << 50 | 1, 1 << 62 | 1


def test_a_cell_around_a_threshold_counts_half():
    order = of_cells([WIDE, WITHIN, ABOVE], [10, 0, 4], [10, 100, 400])
    cuts = order.cuts(0.02)
    assert cuts.positives.tolist() == [510, 505, 400]
    assert cuts.negatives.tolist() == [14, 9, 4]
    assert threshold_at(order, 505 / 514) == (cuts.thresholds[1], 505 / 510)
    assert threshold_at(order, 0.5).recall == 1


@pytest.mark.parametrize(("clicks", "others"), [(50, 0), (0, 50)])
def test_there_is_no_threshold_in_a_cell_with_much_of_what_is_above(clicks, others):
    order = of_cells([WIDE, WITHIN, ABOVE], [others, 0, 4], [clicks, 100, 400])
    assert len(order.cuts(0.02).thresholds) == len(order.cuts().thresholds) == 2
    assert math.isnan(threshold_at(order, 0.995).score)
    lowest = 0 if clicks else 1
    assert threshold_at(order, 0.95).score == order.cuts().thresholds[lowest]


DRIFTING = {
    "up": lambda n: np.linspace(-6, 2, n),
    "down": lambda n: np.linspace(2, -6, n),
    "rare": lambda n: np.linspace(-7, -4, n),
    "to and fro": lambda n: -3 + 3 * np.sin(np.linspace(0, 15, n)),
}


@pytest.mark.parametrize("parts", [1, 16])
@pytest.mark.parametrize("name", DRIFTING)
def test_curves_of_drifting_scores_have_all_points(name, parts):
    rng = np.random.default_rng(2)
    odds = DRIFTING[name](300_000) + rng.normal(0, 1, 300_000)
    scores = 1 / (1 + np.exp(-odds))
    labels = rng.random(300_000) < scores
    order = ScoreOrder()
    for part in np.array_split(np.arange(300_000), parts):  # as the parts of a window
        order.merge(counted(scores[part], labels[part]))
    curve = pr_curve(order, 129)
    assert len(np.unique(curve.thresholds)) >= 115
    predicted = np.sort(scores), np.sort(scores[labels])
    every, clicks = (len(each) - np.searchsorted(each, curve.thresholds) for each in predicted)
    np.testing.assert_allclose(curve.true_positives, clicks, rtol=0.02)
    precision = clicks / np.maximum(every, 1)
    np.testing.assert_allclose(curve.precision[:-1], precision[:-1], rtol=0.02)
    precisions, recalls, _ = precision_recall_curve(labels, scores)
    for precision in (0.1, 0.3, 0.5, 0.7, 0.9):
        low, high = (
            recalls[np.flatnonzero(precisions[:-1] >= near)[:1]].sum()  # 0 if there is none
            for near in (precision * 1.02, precision * 0.98)
        )
        found = np.nan_to_num(threshold_at(order, precision).recall)
        assert low - 0.005 <= found <= high + 0.005


def test_a_cell_between_two_scores_begins_at_the_upper_one():
    scores = [0.8, np.nextafter(0.8, 1)]
    key = int(keys_of(np.array(scores))[0])
    order = of_cells([2 * key + 1, 2 * (key + 1) + 1], [1, 0], [0, 1])
    assert order.cuts().thresholds.tolist() == scores


def test_clicks_and_others_of_a_cell_are_mixed_evenly():
    order = of_cells([WIDE, ABOVE], [10, 0], [10, 10])
    # The mean of (10 + 10 x) / (10 + 20 x) over x from 0 to 1.
    mixed = 0.5 + math.log(3) / 4
    assert average_precision(order) == pytest.approx((10 + 10 * mixed) / 20, rel=1e-12)


@pytest.mark.parametrize("score", [0.0, 1e-6, 0.1, 0.9, 1.0])
def test_one_score_is_recalibrated_to_the_click_rate(score):
    labels = np.arange(1000) < 300
    found = entropies(counted_quality(np.full(1000, score), labels))
    assert found.recalibrated == pytest.approx(1, abs=1e-6)  # the loss has single precision
    loss = -0.3 * math.log(min(max(score, 1e-7), 1 - 1e-7))
    assert found.of_clicks == pytest.approx(loss / entropy_of(labels), rel=1e-6)


def test_groups_of_the_calibration_error_count_by_their_weight():
    quality = counted_quality(np.repeat([0.1, 0.9], [900, 100]), np.zeros(1000))
    assert expected_calibration_error(quality).value == pytest.approx(0.9 * 0.1 + 0.1 * 0.9)
