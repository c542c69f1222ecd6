"""Scalar series in bounded memory, and sparklines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.series.batch import Columns, Span
from rec_summary.series.overview.statistics import BucketMeans, ScalarSummary, TagSummary


def of(*values: float) -> ScalarSummary:
    series = ScalarSummary("run", 0, "tag")
    for step, value in enumerate(values):
        series.extend(columns_of(step, [value]))
    return series


def columns_of(first_step: int, values: list[float]) -> Columns:
    steps = first_step + np.arange(len(values))
    return Columns(("tag",), np.zeros(len(values), np.int64), steps, steps / 2, np.array(values))


def test_a_few_values_are_kept_as_they_are() -> None:
    assert of(1.0, 3.0, 2.0).means.means().tolist() == [1.0, 3.0, 2.0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=2000), st.integers(1, 300))
def test_memory_is_bounded_and_the_mean_stays(values: list[float], chunk: int) -> None:
    means = BucketMeans()
    for start in range(0, len(values), chunk):
        means.extend(np.array(values[start : start + chunk]))
    size = 1
    while size * 128 < len(values):
        size *= 2
    buckets = [values[start : start + size] for start in range(0, len(values), size)]
    assert len(buckets) <= 128
    expected = [sum(bucket) / len(bucket) for bucket in buckets]
    assert means.means().tolist() == pytest.approx(expected, abs=1e-3)


def test_a_bucket_without_finite_values_is_nan() -> None:
    means = BucketMeans()
    means.extend(np.array([math.nan, math.inf, 1.0, math.nan] + [2.0] * 252))
    np.testing.assert_array_equal(means.means()[:3], [math.nan, 1.0, 2.0])


def test_extremes_leave_out_what_is_not_finite() -> None:
    series = of(1.0, math.inf, -2.0, math.nan, 0.5)
    assert (series.least, series.greatest, series.not_finite, series.count) == (-2.0, 1.0, 2, 5)
    assert (series.last, series.step, series.wall_time) == (0.5, 4, 2.0)


def test_the_steps_of_a_tag_are_the_lowest_and_the_highest_of_all_batches() -> None:
    summary = TagSummary("a", "scalar", values=1, first_step=5, last_step=9)
    summary.add(Span(0, values=2, first_step=3, last_step=4))
    summary.add(Span(0, values=3, first_step=4, last_step=12))
    assert (summary.values, summary.first_step, summary.last_step) == (6, 3, 12)


def test_values_may_come_one_by_one_or_many_at_once() -> None:
    values = np.random.default_rng(0).normal(size=1000).tolist()
    values[::7] = [math.nan] * len(values[::7])
    whole = ScalarSummary("run", 0, "tag")
    whole.extend(columns_of(0, values))
    single = of(*values)
    np.testing.assert_allclose(whole.means.means(), single.means.means())
    for name in ("count", "step", "wall_time", "last", "least", "greatest", "not_finite"):
        np.testing.assert_equal(getattr(whole, name), getattr(single, name))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), ""),
        ((5.0,), "▄"),
        ((0.0, 1.0), "▁█"),
        ((2.0, 2.0, 2.0), "▄▄▄"),
        ((0.0, math.nan, 1.0), "▁×█"),
        ((math.inf, math.nan), "××"),
        ((-1.7e308, 1.7e308), "▁█"),
    ],
)
def test_sparklines(values: tuple[float, ...], expected: str) -> None:
    assert of(*values).sparkline() == expected


def test_long_series_have_short_sparklines() -> None:
    assert of(1.0, 3.0, 5.0, 7.0).means.means(2).tolist() == [2.0, 6.0]
    assert len(of(*map(float, range(5000))).sparkline(24)) == 24
