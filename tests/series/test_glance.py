"""Courses in bounded memory, and sparklines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.series.glance import Course, Series, shortened


def of(*values: float) -> Series:
    series = Series("run", 0, "tag")
    for step, value in enumerate(values):
        series.add(step, step / 2, value)
    return series


def test_a_few_values_are_kept_as_they_are() -> None:
    assert of(1.0, 3.0, 2.0).course.points() == [1.0, 3.0, 2.0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=2000))
def test_memory_is_bounded_and_the_mean_stays(values: list[float]) -> None:
    course = Course()
    for value in values:
        course.add(value)
    assert len(course.means) < 128
    stretch = course._stretch
    whole = values[: len(course.means) * stretch]
    if whole:
        expected = sum(whole) / len(whole)
        mean = sum(course.means) / len(course.means)
        assert mean == pytest.approx(expected, abs=1e-3)


def test_extremes_leave_out_what_is_not_finite() -> None:
    series = of(1.0, math.inf, -2.0, math.nan)
    assert (series.least, series.greatest, series.not_finite, series.count) == (-2.0, 1.0, 2, 4)
    assert math.isnan(series.last)
    assert (series.step, series.wall_time) == (3, 1.5)


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


def test_long_courses_are_shortened() -> None:
    assert shortened([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    assert len(of(*map(float, range(5000))).sparkline(24)) == 24
