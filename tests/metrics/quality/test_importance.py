"""Estimates of the importance of features: means and errors of passes, over time and ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.quality.importance import LEAST_PASSES, FeatureImportance
from rec_summary.metrics.state import kind_of, restore

DAY = 86_400.0
NOW = 20_000 * DAY

passes = st.lists(
    st.tuples(
        st.sampled_from(["user", "item", "price"]),
        st.integers(0, 40).map(lambda quarter: NOW + quarter * DAY / 4),
        st.floats(-0.5, 0.5) | st.just(math.nan),
        st.floats(-1, 1),
        st.integers(1, 100).map(float),
    ),
    max_size=30,
)


def counted(some: list[tuple[str, float, float, float, float]]) -> FeatureImportance:
    state = FeatureImportance()
    for one in some:
        state.add(*one)
    return state


def numbers(state: FeatureImportance) -> dict[str, np.ndarray]:
    """Returns all estimates by feature."""
    parts = state.now(), state.a_week_ago(), state.fresh()
    return {
        f"{name} {place}": np.array(importance)
        for place, part in enumerate(parts)
        for name, importance in part.items()
    }


def assert_same(one: FeatureImportance, other: FeatureImportance) -> None:
    mine, others = numbers(one), numbers(other)
    assert mine.keys() == others.keys()
    for name, estimates in mine.items():
        np.testing.assert_allclose(estimates, others[name], rtol=1e-6, atol=1e-6, err_msg=name)


@given(passes, st.integers(0, 30))
def test_ranks_add_up_in_any_order(some: list, cut: int) -> None:
    one, other = counted(some[:cut]), counted(some[cut:])
    merged = one.copy()
    merged.merge(other)
    assert_same(merged, counted(some))
    other.merge(one)
    assert_same(other, merged)


@given(passes)
def test_a_stored_state_goes_on(some: list) -> None:
    state = counted(some)
    stored = restore(kind_of(state), state.arrays())
    assert isinstance(stored, FeatureImportance)
    assert_same(stored, state)
    for each in (stored, state):
        each.add("new", NOW, 0.1, 0.2)
    assert_same(stored, state)


def test_an_estimate_is_the_weighted_mean_with_the_spread_of_the_passes() -> None:
    random = np.random.default_rng(0)
    lost, weights = random.normal(0.02, 0.01, 50), random.integers(1, 20, 50).astype(float)
    state = counted(
        [("item", NOW, *pair, weight) for *pair, weight in zip(lost, lost, weights, strict=True)]
    )
    area = state.now()["item"].area
    mean = np.average(lost, weights=weights)
    assert area.value == pytest.approx(mean)
    error = math.sqrt((weights**2 * (lost - mean) ** 2).sum() * 50 / 49) / weights.sum()
    assert area.standard_error == pytest.approx(error)
    assert area.passes == 50


def test_a_standard_error_is_that_of_the_mean() -> None:
    random = np.random.default_rng(1)
    means, errors = [], []
    for _ in range(400):
        lost = random.normal(0.02, 0.01, 20)
        area = counted([("item", NOW, each, 0.0, 1.0) for each in lost]).now()["item"].area
        means.append(area.value)
        errors.append(area.standard_error)
    assert np.std(means) == pytest.approx(np.mean(errors), rel=0.1)


def test_a_curve_has_a_value_after_enough_passes_and_begins_again() -> None:
    state = FeatureImportance()
    for number in range(LEAST_PASSES):
        assert state.end_interval().fresh() == {}
        state.add("item", NOW, 0.1 * number, 0.0)
    assert state.end_interval().fresh()["item"].main.value == pytest.approx(0.35)
    assert state.fresh() == {}
    assert state.now()["item"].area.passes == LEAST_PASSES


def test_a_day_is_compared_with_the_same_day_a_week_ago() -> None:
    state = FeatureImportance()
    for day in range(12):
        for hour in range(24):
            state.add("item", NOW + day * DAY + hour * 3600, 0.001 * day, 0.0)
    now, before = state.now()["item"].area, state.a_week_ago()["item"].area
    assert now.value == pytest.approx(0.011, abs=0.0003)
    assert before.value == pytest.approx(0.004, abs=0.0003)
    assert now.minus(before).value == pytest.approx(0.007, abs=0.0003)
    assert now.minus(before).standard_error > 0


def test_ratings_have_a_loss_and_no_area() -> None:
    importance = counted([("item", NOW, math.nan, 0.5, 1.0)]).now()["item"]
    assert importance.area.passes == 0
    assert importance.main.value == 0.5
    assert math.isnan(importance.main.standard_error)
