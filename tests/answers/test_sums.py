"""What sums say of two intervals: calibration, quality, traffic and rate, with their errors."""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.answers import sums
from rec_summary.answers.scan import Change
from rec_summary.metrics.slices.sums import FIELDS, WEIGHT, calibration_of
from tests.support.slice_streams import history_of, sums_of


def drawn(
    seed: int, scores: float = 0.2, truth: float = 0.2, size: int = 4000, spread: float = 0.1
) -> np.ndarray:
    """Returns sums of examples whose click rates are `truth` / `scores` times their scores."""
    random = np.random.default_rng(seed)
    own = random.uniform(scores - spread, scores + spread, size)
    return sums_of(own, (random.random(size) < own * truth / scores) * 1.0).sum(0)


def z(change: Change) -> float:
    return float(change.delta / np.sqrt(change.variance))


STATISTICS = (sums.calibration, sums.quality, sums.rate)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_without_a_change_errors_are_those_of_chance(statistic: sums.Statistic) -> None:
    found = []
    for seed in range(150):
        before, after = drawn(seed, size=1000), drawn(seed + 1000, size=1000)
        found.append(z(statistic(before, after, before, after)))
    # The floor of the error makes them smaller than 1.
    assert 0.6 < float(np.std(found)) < 1.1
    assert abs(float(np.mean(found))) < 0.3
    assert np.abs(found).max() < 4


def test_lost_clicks_are_calibration_and_quality() -> None:
    before, after = drawn(1), drawn(2, truth=0.1)
    for statistic in (sums.calibration, sums.quality):
        change = statistic(before, after, before, after)
        assert z(change) > 5
        assert change.is_bad
    assert calibration_of(after) == pytest.approx(2, rel=0.1)
    assert z(sums.rate(before, after, before, after)) < -5


def test_what_comes_back_is_not_bad() -> None:
    before, after = drawn(1, truth=0.1), drawn(2)
    for statistic in (sums.calibration, sums.quality):
        assert not statistic(before, after, before, after).is_bad


def test_labels_by_chance_are_quality_alone() -> None:
    random = np.random.default_rng(3)
    scores = random.uniform(0.02, 0.5, 8000)
    before = sums_of(scores, (random.random(8000) < scores) * 1.0).sum(0)
    after = sums_of(scores, (random.random(8000) < scores.mean()) * 1.0).sum(0)
    assert z(sums.quality(before, after, before, after)) > 6
    assert abs(z(sums.calibration(before, after, before, after))) < 3


def test_weights_do_not_make_examples_of_nothing() -> None:
    for number, field in enumerate(FIELDS):
        assert getattr(sums, field.upper(), number) == number or field == "squared_loss_weights"
    before, after = drawn(4), drawn(5, truth=0.15)
    scale = np.ones(len(FIELDS))  # those of served scores are 0
    scale[1:11] = [3] * 4 + [9] * 6
    for statistic in STATISTICS:
        plain, heavy = (
            statistic(one, other, one, other)
            for one, other in ((before, after), (before * scale, after * scale))
        )
        assert z(heavy) == pytest.approx(z(plain), rel=1e-9)


def test_few_clicks_are_not_judged() -> None:
    before, after = drawn(6, scores=0.02, truth=0.02, size=400, spread=0.01), drawn(7)
    for statistic in STATISTICS:
        assert np.isnan(statistic(before, after, before, after).delta)


def test_traffic_is_a_share_of_the_task() -> None:
    before, after = drawn(8, size=1000), drawn(9, size=3000)
    whole = drawn(10, size=10_000)
    change = sums.traffic(before, after, whole, whole)
    assert change.delta == pytest.approx(0.2)
    assert z(change) > 10
    assert abs(z(sums.traffic(before, 3 * before, whole, 3 * whole))) < 1e-9


def test_reports_in_which_a_value_is_part_of_other_do_not_count() -> None:
    table = np.stack([drawn(seed, size=100) for seed in range(6)])[:, None]
    table[3] = 0
    totals = sums.totals_of(history_of("", "", table, 10))
    wholes = sums.totals_of(history_of("", "", np.ones((6, 1, len(FIELDS))), 10))
    own = sums.whole_of_values(totals, wholes)
    assert own[WEIGHT, :, 0].tolist() == [0, 1, 2, 3, 3, 4, 5]


def test_the_warm_up_ends_when_the_task_is_learnt() -> None:
    factors = [5, 3, 2, 1.5, *[1] * 26]
    rows = [drawn(seed, scores=0.1, truth=0.1 / f) for seed, f in enumerate(factors)]
    history = history_of("", "", np.stack(rows)[:, None], 10)
    assert 2 <= sums.warm_up(history) <= 5
    rows = [drawn(seed) for seed in range(30)]
    assert sums.warm_up(history_of("", "", np.stack(rows)[:, None], 10)) == 1
