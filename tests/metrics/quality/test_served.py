"""New scores beside served ones: the change of the loss and of the AUC, with standard errors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.served import SKEW, Comparison, ServedQuality, odds_edges
from rec_summary.metrics.windows import LastExamples, Lifetime, count_together
from tests.support.laws import assert_equal_states, assert_laws, refused, updated

RATES = st.integers(1, 15).map(lambda sixteenths: sixteenths / 16)  # many are equal


def sigmoid(odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-odds))


def stream(seed: int, size: int, base: float = -1.0) -> dict[str, np.ndarray]:
    """Examples that a new model knows better than the served one."""
    random = np.random.default_rng(seed)
    truth = base + random.normal(size=size)
    return {
        "labels": random.random(size) < sigmoid(truth),
        "scores": sigmoid(truth + 0.3 * random.normal(size=size)),
        "served": sigmoid(truth + 0.6 * random.normal(size=size)),
    }


def at(columns: dict[str, Any], places: Any) -> dict[str, Any]:
    return {name: column[places] for name, column in columns.items()}


def counted(columns: dict[str, Any], first: int = 0, **options: Any) -> ServedQuality:
    return count(ServedQuality(**{"bins": 4096, **options}), columns, first)


def count(state: Any, columns: dict[str, Any], first: int = 0) -> Any:
    values = (columns.get(name) for name in ("scores", "labels", "weights", "odds", "served"))
    return updated(state, *values, first + np.arange(len(columns["scores"])))


def paired_delong(labels: np.ndarray, new: np.ndarray, old: np.ndarray) -> tuple[float, float]:
    """Returns the difference of two AUCs and its standard error, from all pairs."""
    wins = []
    for scores in (new, old):
        clicks, others = scores[labels], scores[~labels]
        wins.append((clicks[:, None] > others) + 0.5 * (clicks[:, None] == others))
    gap = wins[0] - wins[1]
    of_clicks, of_others = gap.mean(1).var(ddof=1), gap.mean(0).var(ddof=1)
    return gap.mean(), math.sqrt(of_clicks / len(gap) + of_others / gap.shape[1])


@settings(max_examples=60)
@given(
    st.lists(st.tuples(RATES, RATES), min_size=2, max_size=40),
    st.lists(st.tuples(RATES, RATES), min_size=2, max_size=40),
)
def test_the_gain_in_auc_has_the_error_of_paired_delong(clicks, others) -> None:
    new, old = np.array(clicks + others).T
    labels = np.arange(len(new)) < len(clicks)
    found = counted({"scores": new, "labels": labels, "served": old}).auc_gain()
    assert found == pytest.approx(paired_delong(labels, new, old), abs=1e-9)


def test_a_sample_has_nearly_the_error_of_all_examples() -> None:
    columns = stream(1, 60_000, base=-4.0)
    assert 1000 < columns["labels"].sum() < 4000
    gain, error = counted(columns, rows=500).auc_gain()
    exact, exact_error = counted(columns, rows=1 << 17).auc_gain()
    assert gain == exact
    assert error == pytest.approx(exact_error, rel=0.1)
    state = counted(columns, rows=500)
    assert [sample.pairs().size for sample in (state.clicks, state.others)] == [500, 500]


def test_the_full_buckets_of_a_window_have_the_sample_together() -> None:
    columns = stream(12, 80_000, base=-2.0)
    window = LastExamples(ServedQuality(rows=2048), 80_000, 8)
    count(window, columns)
    state = window.total()
    exact = counted(columns, rows=1 << 17).auc_gain()[1]
    assert state.auc_gain()[1] == pytest.approx(exact, rel=0.1)
    for name, sample in (("clicks", state.clicks), ("others", state.others)):
        assert 1500 < sample.pairs().size <= 2048
        sizes = [window.arrays()[f"pane{at}.{name}.hashes"].size for at in range(8)]
        assert sizes[:7] == [256] * 7
        assert sizes[7] > 1024  # it gets more examples


def resampled(columns: dict[str, Any], statistic: Any, repetitions: int = 150) -> float:
    """Returns the standard error of a number by the bootstrap."""
    random = np.random.default_rng(9)
    size = len(columns["labels"])
    draws = (at(columns, random.integers(0, size, size)) for _ in range(repetitions))
    return float(np.std([statistic(draw) for draw in draws]))


def of_both(metric: Any, columns: dict[str, Any]) -> list[float]:
    """Returns a metric of the new and of the served scores."""
    scores, weights = (columns["scores"], columns["served"]), columns.get("weights")
    return [float(metric(columns["labels"], each, sample_weight=weights)) for each in scores]


def gain_of(columns: dict[str, Any]) -> float:
    return float(np.subtract(*of_both(roc_auc_score, columns)))


def losses_of(columns: dict[str, Any]) -> list[float]:
    return of_both(log_loss, columns)


@pytest.mark.parametrize("weighted", [False, True])
def test_both_errors_are_those_of_a_bootstrap(weighted: bool) -> None:
    columns = stream(2, 3000)
    if weighted:
        columns["weights"] = np.random.default_rng(3).integers(1, 9, 3000) / 4
    state = counted(columns)
    change, gain = state.loss_change(), state.auc_gain()
    new, old = losses_of(columns)
    assert change.change == pytest.approx((new - old) / old, rel=1e-4)
    assert gain[0] == pytest.approx(gain_of(columns), abs=1e-4)
    difference = resampled(columns, lambda own: np.subtract(*losses_of(own)))
    assert change.error == pytest.approx(difference / old, rel=0.2)
    assert gain[1] == pytest.approx(resampled(columns, gain_of), rel=0.2)


@pytest.mark.parametrize("weighted", [False, True])
def test_soft_labels_have_the_errors_of_whole_examples(weighted: bool) -> None:
    found = []
    for seed in range(100):
        random, size = np.random.default_rng(seed), 1000
        truth = random.normal(-1, 1, size)
        columns = {
            "labels": sigmoid(truth + random.normal(0, 0.5, size)),
            "scores": sigmoid(truth + random.normal(0, 0.2, size)),
            "served": sigmoid(truth + random.normal(0, 0.3, size)),
        }
        columns["labels"][: size // 4] = random.random(size // 4) < 0.3  # some are not soft
        if weighted:
            columns["weights"] = random.integers(1, 9, size) / 4
        state = counted(columns)
        found.append((*state.loss_change(), *state.auc_gain()))
    change, gain = np.std(found, axis=0)[[0, 2]]
    change_error, gain_error = np.mean(found, axis=0)[[1, 3]]
    assert change_error == pytest.approx(change, rel=0.2)
    assert gain_error == pytest.approx(gain, rel=0.2)


def test_a_sample_of_soft_labels_has_nearly_the_error_of_all_examples() -> None:
    columns = stream(10, 20_000)
    random = np.random.default_rng(11)
    soft = random.random(20_000) < 0.5
    columns["labels"] = np.where(soft, random.random(20_000) / 4, columns["labels"])
    error, exact = (counted(columns, rows=rows).auc_gain()[1] for rows in (800, 1 << 17))
    assert error == pytest.approx(exact, rel=0.1)


def test_one_example_with_a_soft_label_has_no_error() -> None:
    one = np.array([0.25])
    state = counted({"labels": one, "scores": np.array([0.2]), "served": np.array([0.5])})
    change = state.loss_change()
    losses = [-(0.25 * math.log(score) + 0.75 * math.log(1 - score)) for score in (0.2, 0.5)]
    assert change.change == pytest.approx(losses[0] / losses[1] - 1)
    assert math.isnan(change.error)


def test_sampled_non_clicks_have_the_comparison_of_the_whole_stream() -> None:
    rate, columns = 0.1, stream(4, 40_000, base=-2.5)
    whole = counted(columns)
    # Trained with a tenth of the non-clicks, the same model has ten times the odds.
    odds = np.log(columns["scores"]) - np.log1p(-columns["scores"]) - np.log(rate)
    trained = columns | {"scores": sigmoid(odds), "odds": odds}
    random = np.random.default_rng(5)
    found = []
    for _ in range(20):
        kept = columns["labels"] | (random.random(40_000) < rate)
        state = counted(at(trained, kept), negative_rate=rate)
        change, gain = state.loss_change(), state.auc_gain()
        calibrations = (each.loss.calibration() for each in (state.compared, state.served))
        found.append((*change, *gain, *calibrations, state.skewed_share()))
    change, change_error, gain, gain_error, *rest = np.mean(found, axis=0)
    near = np.std(found, axis=0) / math.sqrt(len(found))
    assert abs(change - whole.loss_change().change) < 3 * near[0]
    assert abs(gain - whole.auc_gain()[0]) < 3 * near[2]
    exact = (*(each.loss.calibration() for each in (whole.compared, whole.served)),)
    assert rest == pytest.approx([*exact, whole.skewed_share()], rel=0.01)
    # An error is that of a sample of a sample: above that of the whole, and of the sampling alone.
    assert change_error > max(whole.loss_change().error, near[0] * math.sqrt(len(found)))
    assert gain_error > whole.auc_gain()[1]


def test_equal_scores_have_no_change_and_no_error() -> None:
    columns = stream(6, 500)
    state = counted(columns | {"served": columns["scores"].astype(np.float32)})
    assert state.loss_change() == (0, 0)
    assert state.auc_gain() == pytest.approx((0, 0))
    assert (state.score_difference(), state.skewed_share()) == (0, 0)


def test_an_example_without_a_served_score_is_counted_and_left_out() -> None:
    columns = stream(7, 400)
    columns["served"][:50] = np.resize([np.nan, -0.1, 1.5, np.inf], 50)
    state = counted(columns)
    assert state.missing_share() == 50 / 400
    rest = counted(at(columns, slice(50, None)), 50)
    assert rest.loss_change() == state.loss_change()
    assert rest.auc_gain() == state.auc_gain()
    assert rest.served.loss.weight == state.served.loss.weight == 350
    none = counted(columns | {"served": np.full(400, np.nan)})
    numbers = (*none.loss_change(), *none.auc_gain(), none.skewed_share(), none.score_difference())
    assert np.isnan(numbers).all()
    assert none.missing_share() == 1
    assert math.isnan(ServedQuality().missing_share())


@pytest.mark.parametrize("size", [1, 2])
def test_one_click_and_one_non_click_have_no_error_of_the_gain(size: int) -> None:
    columns = {
        "scores": np.array([0.9, 0.2])[:size],
        "labels": np.array([True, False])[:size],
        "served": np.array([0.5, 0.5])[:size],
    }
    state = counted(columns)
    assert math.isnan(state.auc_gain()[1])
    assert math.isnan(state.loss_change().error) == (size == 1)


def test_scores_of_0_and_1_have_a_finite_loss() -> None:
    scores = np.array([0.0, 1.0, 0.0, 1.0])
    state = counted({"scores": scores, "labels": np.array([0, 1, 1, 0]), "served": scores[::-1]})
    assert state.loss_change().change == pytest.approx(0)
    assert state.skewed_share() == 1


def test_the_shares_of_differences_of_log_odds() -> None:
    odds = np.array([0.9, 1.1, -1.1, 12.0, 0.0, 0.3]) * SKEW
    columns = {
        "scores": sigmoid(odds - 1),
        "labels": np.arange(6) % 2,
        "served": sigmoid(np.full(6, -1.0)),
    }
    state = counted(columns)
    assert state.skewed_share() == pytest.approx(3 / 6)
    edges = odds_edges()
    assert state.odds_differences.sum() == 6
    inner = np.histogram(np.clip(odds + 1e-6, edges[0], edges[-1]), edges)[0]
    np.testing.assert_array_equal(state.odds_differences, inner)
    mean = float(np.mean(columns["scores"] - columns["served"]))
    assert state.score_difference() == pytest.approx(mean, abs=1e-6)


def test_merging_is_exact() -> None:
    states = [counted(stream(seed, 300), 1000 * seed, bins=64, rows=20) for seed in range(3)]
    assert_laws(*states)
    refused(ValueError, "negative_rate", states[0].merge, ServedQuality(0.5))


def test_a_damaged_sample_is_not_restored() -> None:
    arrays = counted(stream(1, 300), rows=20).arrays()
    for name, wrong in (
        ("clicks.hashes", arrays["clicks.hashes"][::-1]),
        ("clicks.limit", np.array(1, np.uint64)),
        ("others.weights", -arrays["others.weights"]),
        ("negative_rate", np.array(0.0)),
    ):
        refused(ValueError, "is invalid", ServedQuality.from_arrays, arrays | {name: wrong})


@settings(max_examples=20)
@given(st.lists(st.integers(1, 200), max_size=6), st.booleans())
def test_windows_do_not_depend_on_the_batches(sizes: list[int], refused: bool) -> None:
    columns = stream(8, 600)
    columns["served"][::7] = np.nan
    if refused:  # such a batch is counted as columns
        columns["scores"][5] = np.nan
    windows = [
        (Lifetime(state), LastExamples(state, 400, 4))
        for state in [ServedQuality(0.5, bins=64, rows=30)] * 2
    ]
    bounds = sorted({0, 600, *np.minimum(np.cumsum(sizes, dtype=int), 600).tolist()})
    for start, stop in itertools.pairwise(bounds):
        part = at(columns, slice(start, stop))
        clicks = clean(part["scores"], part["labels"])
        if clicks.kept is None:
            numbers = np.arange(start, stop)
            count_together(windows[0], Comparison.of(clicks, part["served"], 0.5, numbers))
        else:
            for window in windows[0]:
                count(window, part, start)
    for whole, parts in zip(windows[1], windows[0], strict=True):
        count(whole, columns)
        assert_equal_states(whole.total(), parts.total())
