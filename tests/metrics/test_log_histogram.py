from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.log_histogram import LogHistogram
from tests.support.laws import assert_counts_add_up, refused

NUMBERS = st.floats(-1, 2e5) | st.just(math.nan)
INSIDE = st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=50)


def state(values: list[float]) -> LogHistogram:
    found = LogHistogram(1e-6, 1e5)
    found.add_all(np.array(values, float))
    return found


@given(st.lists(st.lists(NUMBERS, max_size=20), min_size=3, max_size=3))
def test_laws(batches: list[list[float]]) -> None:
    assert_counts_add_up(state, batches)


@given(INSIDE, st.floats(0, 1))
def test_quantiles_are_as_accurate_as_stated(values: list[float], share: float) -> None:
    exact = np.quantile(values, share, method="inverted_cdf")
    rank = min(int(share * len(values)), len(values) - 1)
    found = state(values).quantile(share)
    assert found == pytest.approx(sorted(values)[rank], rel=0.0101)
    assert found >= exact * 0.98


def test_numbers_beyond_the_bounds_are_the_extremes() -> None:
    found = state([-3.0, 0.0, 1.0, 1e6, 2e6])
    assert found.quantile(0) == -3.0
    assert found.quantile(0.5) == pytest.approx(1.0, rel=0.01)
    assert found.quantile(1) == 2e6


@pytest.mark.parametrize("bins", range(1, 40))
def test_bounds_and_numbers_beyond_them_have_their_places(bins: int) -> None:
    """Also where the upper bound is the end of a bin, and is rounded to the next one."""
    high = (1.01 / 0.99) ** bins
    found = LogHistogram(1.0, high)
    for number in (1.0, 0.5, high, np.nextafter(high, 1e9)):
        found.add_all(np.array([number]))
    full = len(found.counts) - 2
    assert full - bins in (0, 1)
    assert dict(enumerate(found.counts[found.counts > 0])) == {0: 2, 1: 1, 2: 1}
    assert (found.counts[0], found.counts[full:].tolist()) == (2, [1, 1])


def test_quantiles_of_nothing() -> None:
    assert math.isnan(state([math.nan]).quantile(0.5))


def test_other_settings_are_not_merged() -> None:
    with pytest.raises(ValueError, match="setting high of a state to merge"):
        state([1.0]).merge(LogHistogram(1e-6, 1e4))


@pytest.mark.parametrize("extremes", [[2.0, 1.0], [math.inf, -math.inf], [math.nan, 1.0]])
def test_invalid_extremes(extremes: list[float]) -> None:
    arrays = state([1.0]).arrays() | {"extremes": np.array(extremes)}
    refused(ValueError, "extremes", LogHistogram.from_arrays, arrays)


@pytest.mark.parametrize("wrong", [(0, 1), (1, 1), (2, 1), (1, math.inf)])
def test_invalid_bounds(wrong: tuple[float, ...]) -> None:
    refused(ValueError, "is invalid", LogHistogram, *wrong)
