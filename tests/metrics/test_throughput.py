from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.throughput import Throughput
from tests.support.laws import assert_counts_add_up, assert_equal_states

NOW = 1_700_000_000.0
STEPS = st.lists(
    st.tuples(st.integers(0, 5000), st.floats(0, 100), st.floats(0, 1), st.floats(-10, 1e6)),
    max_size=10,
)

Steps = list[tuple[int, float, float, float]]


def state(steps: Steps) -> Throughput:
    found = Throughput()
    for samples, seconds, share, lag in steps:
        found.add_steps([samples], [seconds], [seconds * share])
        found.add_events([NOW - lag, math.nan], NOW)
    return found


@given(st.tuples(STEPS, STEPS, STEPS))
def test_laws(parts: tuple[Steps, ...]) -> None:
    assert_counts_add_up(state, parts)


@given(STEPS)
def test_steps_may_be_added_one_by_one_or_together(steps: Steps) -> None:
    one_by_one, together = Throughput(), Throughput()
    for samples, seconds, share, _ in steps:
        one_by_one.add_steps([samples], [seconds], [seconds * share])
    if steps:
        together.add_steps(*zip(*((n, t, t * share) for n, t, share, _ in steps), strict=True))
    assert_equal_states(one_by_one, together)


@given(STEPS, st.integers(1, 5))
def test_equal_steps_may_be_added_by_their_number(steps: Steps, times: int) -> None:
    together, one_by_one = Throughput(), Throughput()
    for samples, seconds, share, _ in steps:
        one = ([samples], [seconds], [seconds * share])
        together.add_steps(*one, [times])
        for _ in range(times):
            one_by_one.add_steps(*one)
    assert_equal_states(together, one_by_one)


def test_rates_and_stalls() -> None:
    found = state([(100, 0.5, 0.2, 3.0), (300, 1.5, 0.6, 5.0), (0, 2.0, 0.0, 5.0)]).report()
    assert found["throughput/steps_per_second"] == pytest.approx(0.75)
    assert found["throughput/samples_per_second"] == pytest.approx(100.0)
    assert found["throughput/input_stall_share"] == pytest.approx((0.1 + 0.9) / 4)
    for place, seconds in (("p50", 1.5), ("p90", 2.0), ("p99", 2.0)):
        assert found[f"throughput/step_seconds/{place}"] == pytest.approx(seconds, rel=0.01)
        assert found[f"freshness/lag_seconds/{place}"] == pytest.approx(5.0, rel=0.01)
    assert found["freshness/watermark_age"] == 3
    assert found["freshness/undated"] == 3


@given(st.lists(st.floats(0.001, 1e6), min_size=1))
def test_quantiles_of_lag_are_within_a_percent(lags: list[float]) -> None:
    found = Throughput()
    found.add_events(NOW - np.array(lags), NOW)
    exact = NOW - (NOW - np.array(lags))  # what float64 leaves of it
    expected = np.sort(exact)[min(len(lags) // 2, len(lags) - 1)]
    lag = found.report()["freshness/lag_seconds/p50"]
    assert lag == pytest.approx(expected, rel=0.0101, abs=0.002)


def test_events_in_the_future_are_counted() -> None:
    found = Throughput()
    found.add_events([NOW - 3, NOW - 2], NOW)
    found.add_events([NOW + 7, NOW], NOW)
    report = found.report()
    assert report["freshness/future_share"] == 0.25
    assert report["freshness/watermark_age"] == -7
    assert found.arrays()["events"].tolist() == [NOW - 3, NOW + 7, NOW]


def test_sums_are_whole_nanoseconds_and_numbers_of_events() -> None:
    found = Throughput()
    for _ in range(2):
        found.add_steps([3], [2.5], [1.5])
        found.add_events([math.nan, math.inf], NOW)
        found.add_events([NOW + 0.5], NOW)
    arrays, names = found.arrays(), ("samples", "nanoseconds", "waited", "future", "undated")
    assert [int(arrays[name]) for name in names] == [6, 5_000_000_000, 3_000_000_000, 2, 4]


@pytest.mark.parametrize("steps", [[], [(1, 1.0, 1.0, -5.0)], [(1, 1.0, 0.0, 5.0)] * 2])
def test_a_state_without_events_or_all_of_it_late_is_restored(steps: Steps) -> None:
    assert_equal_states(Throughput.from_arrays(state(steps).arrays()), state(steps))


def test_of_nothing_nothing_is_known() -> None:
    found = Throughput().report()
    assert len(found) == 12
    assert np.isnan(list(found.values())).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"waited": np.array(2_000_000_000)},
        {"future": np.array(9)},
        {"events": np.array([2.0, 1.0, 3.0])},
        {"events": np.array([1.0, 2.0, math.nan])},
        {"events": np.array([math.inf, -math.inf, -math.inf])},
    ],
)
def test_arrays_that_contradict_each_other(wrong: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        Throughput.from_arrays(state([(1, 1.0, 0.5, 1.0)]).arrays() | wrong)
