"""The best values of metrics, after restarts and in parts."""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.series.batch import Columns
from rec_summary.series.best_values import BestSeries, best_place


def _columns(steps: list[int], values: list[float]) -> Columns:
    numbers = np.array(steps, np.int64)
    return Columns(("",), 0 * numbers, numbers, numbers / 4, np.array(values))


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("auc", [0.5, float("nan"), 0.75, 0.625, 0.75, 0.875], [0.5, 0.75, 0.875]),
        ("eval/loss", [0.5, 0.75, 0.25, float("-inf")], [0.5, 0.25]),
        ("recommender/loss/calibration/lifetime", [4, 0.5, 1.25, 0], [4, 0.5, 1.25]),
        ("recommender/bias/lifetime", [-2, 1, -1, 0.5], [-2, 1, 0.5]),
    ],
)
def test_each_point_is_better_than_the_one_before(
    metric: str, values: list[float], expected: list[float]
) -> None:
    whole, parts = BestSeries(points=[]), BestSeries(points=[])
    whole.extend(metric, _columns(list(range(len(values))), values))
    for step, value in enumerate(values):
        parts.extend(metric, _columns([step], [value]))
    assert whole.points == parts.points
    assert [value for _, _, value in whole.points] == expected
    assert whole.points[-1][0] == best_place(metric, values)


@pytest.mark.parametrize(("direction", "best"), [("less", -2.0), ("greater", 3.0)])
def test_a_direction_that_was_said_counts(direction: str, best: float) -> None:
    for metric in ("auc", "loss", "my_score"):
        series = BestSeries(points=[])
        series.extend(metric, _columns([1, 2, 3], [0.5, 3.0, -2.0]), direction)
        assert series.points[-1][2] == best


def test_what_a_restart_supersedes_is_forgotten_and_the_one_before_is_shown_again() -> None:
    series = BestSeries(points=[])
    series.extend("auc", _columns([1, 2, 3], [0.25, 0.5, 0.75]))
    assert [step for step, _, _ in series.new()] == [1, 2, 3]
    assert series.new() == []
    series.forget(3)
    assert [step for step, _, _ in series.new()] == [2]
    series.forget(2)
    series.extend("auc", _columns([1], [0.125]))  # the step comes again with another value
    assert series.new() == [(1, 0.25, 0.125)]
    series.forget(0)
    assert series.new() == []
    series.extend("auc", _columns([0], [0.0]))
    assert series.new() == [(0, 0.0, 0.0)]
    assert series.new() == []


def test_a_metric_that_always_becomes_better_takes_bounded_memory() -> None:
    series = BestSeries(points=[])
    for first in range(0, 20_000, 500):
        steps = list(range(first, first + 500))
        series.extend("auc", _columns(steps, list(map(float, steps))))
        assert 0 <= series.shown <= len(series.points) <= 1024
        assert series.new()[-1][2] == first + 499
    steps = [step for step, _, _ in series.points]
    assert steps == sorted(steps)
    assert steps[-500:] == list(range(19_500, 20_000))
    series.forget(19_800)
    assert series.points[-1][2] == 19_799
