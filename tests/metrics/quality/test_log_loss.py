import math

import numpy as np
import pytest

from rec_summary.metrics.exact_sum import ExactSum
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.log_loss import LogLoss, loss_sums
from tests.support.click_streams import calibrated
from tests.support.laws import refused, updated


def counted(scores, labels, weights=None):
    return updated(LogLoss(), scores, labels, weights)


@pytest.fixture(params=[-0.5, -9.2], ids=["third", "1e-4"])
def stream(request):
    return calibrated(np.random.default_rng(0), 100_000, request.param)


def test_log_loss_is_the_mean_of_the_losses(stream):
    scores, labels = stream[0].astype(np.float64), stream[1]
    losses = -np.where(labels == 1, np.log(scores), np.log1p(-scores))
    state = counted(*stream)
    assert state.log_loss() == pytest.approx(losses.mean(), rel=1e-9)
    assert state.weight == 100_000
    assert state.click_rate == labels.sum() / 100_000


def test_log_loss_is_that_of_scikit_learn(stream):
    metrics = pytest.importorskip("sklearn.metrics")
    weights = np.random.default_rng(1).integers(1, 9, 100_000) / 4
    expected = metrics.log_loss(stream[1], stream[0].astype(np.float64), sample_weight=weights)
    assert counted(*stream, weights).log_loss() == pytest.approx(expected, rel=1e-6)


def test_knowing_only_the_rate_has_normalised_entropy_one():
    labels = np.arange(64) < 8
    assert counted(np.full(64, 0.125), labels).normalised_entropy() == pytest.approx(1, rel=1e-12)
    assert counted(np.where(labels, 0.5, 0.05), labels).normalised_entropy() < 0.7
    assert counted(np.where(labels, 0.05, 0.5), labels).normalised_entropy() > 1


def test_weights_weigh_the_click_rate_too():
    weighted = counted([0.2, 0.7, 0.1], [0, 1, 0], [2, 3, 1])
    repeated = counted([0.2, 0.2, 0.7, 0.7, 0.7, 0.1], [0, 0, 1, 1, 1, 0])
    assert weighted.click_rate == 0.5
    assert weighted.normalised_entropy() == repeated.normalised_entropy()


def test_a_wrong_certainty_costs_a_lot_but_not_everything():
    assert counted([1.0], [0]).log_loss() == pytest.approx(-math.log(1e-7))
    assert counted([0.0], [1]).log_loss() == pytest.approx(-math.log(1e-7))
    assert counted([1.0], [1]).log_loss() == pytest.approx(1e-7)


def test_what_is_refused_is_counted_and_changes_nothing():
    state = counted([0.5, math.nan], [1, 1])
    state.update([0.25, 2.0], [0, 1])
    assert state.refused.tolist() == [1, 1, 0, 0]
    assert (state.weight, state.clicks, state.calibration()) == (2, 1, 0.75)


def test_without_a_value_it_is_nan():
    assert math.isnan(LogLoss().log_loss())
    assert math.isnan(LogLoss().click_rate)
    for state in (counted([0.5], [0]), counted([0.5], [1])):
        assert math.isnan(state.normalised_entropy())
    assert math.isnan(counted([0.5], [0]).calibration())
    for state in (LogLoss(), counted([0.0], [0]), counted([1.0], [1])):
        assert math.isnan(state.calibration_free_entropy())


def test_the_mean_score_alone_has_calibration_free_entropy_one():
    labels = np.arange(64) < 8
    assert counted(np.full(64, 0.5), labels).calibration_free_entropy() == pytest.approx(1)
    state = counted(np.where(labels, 0.5, 0.25), labels)
    mean = 0.5 / 8 + 0.25 * 7 / 8
    alone = -(math.log(mean) / 8 + math.log(1 - mean) * 7 / 8)
    assert state.calibration_free_entropy() == pytest.approx(state.log_loss() / alone)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_parts_are_those_of_each_part_alone(weighted):
    random = np.random.default_rng(2)
    scores, labels = random.random(50), random.random(50) < 0.4
    weights = random.integers(0, 9, 50) / 4 if weighted else None
    state, starts = LogLoss(), [0, 1, 20]
    batch = clean(scores, labels, weights)
    columns = (*state.terms(batch), batch.labels, batch.weights)
    parts = [slice(0, 1), slice(1, 20), slice(20, 50)]
    expected = [
        loss_sums(*(None if column is None else column[part] for column in columns))[0]
        for part in parts
    ]
    assert loss_sums(*columns, starts) == expected


@pytest.mark.parametrize("labels", [[], [0], [1]])
def test_states_without_examples_or_of_one_label_are_restored(labels):
    arrays = counted([0.5] * len(labels), labels).arrays()
    assert LogLoss.from_arrays(arrays).arrays().keys() == arrays.keys()


@pytest.mark.parametrize("name", ["losses", "scores"])
def test_sums_below_0_are_refused(name):
    arrays = counted([0.5], [1]).arrays()
    with pytest.raises(ValueError, match="losses and scores of at least 0"):
        LogLoss.from_arrays(arrays | {f"{name}.units": ExactSum(-1).arrays()["units"]})


def test_more_clicks_than_examples_are_refused():
    arrays = counted([0.5, 0.5], [1, 1], [2, 2]).arrays()
    arrays["weights.units"] = counted([0.5], [1]).arrays()["weights.units"]
    refused(ValueError, "no more clicks than weight", LogLoss.from_arrays, arrays)


def test_squares_of_weights_are_scaled_twice():
    state = counted([0.5, 0.5, 0.5], [0, 1, 1], [3, 2, 4])
    assert state.squares == (9, 20)
    state.scale(0.5)
    assert state.squares == (2.25, 5)
    assert LogLoss.from_arrays(state.arrays()).squares == (2.25, 5)


def test_more_squares_of_clicks_than_of_examples_are_refused():
    arrays = counted([0.5, 0.5], [1, 1], [2, 2]).arrays()
    del arrays["squares.units"]
    refused(ValueError, "no more clicks than weight", LogLoss.from_arrays, arrays)
