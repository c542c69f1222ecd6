"""Downsampling of lines while they are read."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.records.reading.runs import find_runs
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.tables import plot
from rec_summary.tables.plot import m4, read_lines
from tests.support.record_dirs import event, scalar, write_segment


def test_each_bucket_keeps_four_points() -> None:
    steps = np.arange(16)
    values = np.array([2.0, 9, 1, 3, 5, 5, 5, 5, math.nan, -math.inf, 7, 6, 8, math.nan, 0, 1])
    kept = m4(steps, values, most=4)
    assert kept.tolist() == [0, 1, 2, 3, 4, 7, 8, 10, 11, 12, 14, 15]


@given(
    st.lists(st.tuples(st.integers(-(1 << 40), 1 << 40), st.floats(width=32)), min_size=1),
    st.integers(2, 8),
    st.data(),
)
def test_downsampling_twice_gives_the_same_points(
    points: list[tuple[int, float]], most: int, data: st.DataObject
) -> None:
    unique = sorted(dict(points).items())
    steps = np.array([step for step, _ in unique], np.int64)
    values = np.array([value for _, value in unique])
    whole = m4(steps, values, most)
    cut = data.draw(st.integers(1, len(steps)))
    first = m4(steps[:cut], values[:cut], most)
    rest = np.concatenate([first, np.arange(cut, len(steps))])
    np.testing.assert_array_equal(rest[m4(steps[rest], values[rest], most)], whole)
    assert {whole[0], whole[-1]} == {0, len(steps) - 1}


def test_long_series_are_downsampled_and_short_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "_MOST_POINTS", 40)
    heights = [math.sin(step) for step in range(1000)]
    heights[500] = 9.0
    events = [event(1 + step, scalar("long", heights[step])) for step in range(1000)]
    events[10:10] = [event(10, scalar("short", step)) for step in range(3)]
    events += [event(1000, scalar("long", 3.0))]  # recorded again
    write_segment(tmp_path / "run", *events)
    long, short = read_lines(find_runs(str(tmp_path)), EVERYTHING, Report())
    assert (short.step.tolist(), short.value.tolist()) == ([10], [2.0])
    assert 10 <= len(long.step) <= 40
    assert (np.diff(long.step) > 0).all()
    assert long.value.max() == 9.0
    assert (long.step[0], long.step[-1], long.value[-1]) == (1, 1000, 3.0)


def test_a_restart_replaces_the_steps_that_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [*range(1, 61), *range(31, 91)]
    for most in (20, 20_000):
        monkeypatch.setattr(plot, "_MOST_POINTS", most)
        path = tmp_path / str(most)
        write_segment(
            path, *(event(step, scalar("loss", count)) for count, step in enumerate(steps))
        )
        [line] = read_lines(find_runs(str(path)), EVERYTHING, Report())
        assert (line.step[0], line.step[-1], line.value[-1]) == (1, 90, 119)
        assert (np.diff(line.value) > 0).all()  # no value of a step that came again
