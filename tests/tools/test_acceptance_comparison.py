"""The comparison of what is expected with what is shown, without a TensorBoard."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tools.checks.acceptance.comparison import MOST_POINTS, Comparison, compare, same, table
from tools.checks.acceptance.expected import Distribution


def compared(expected: Any, shown: Any) -> Comparison:
    """Compares pairs of keys and values of a dashboard that shows every point."""
    return compare("scalars", expected, shown)


def test_what_is_the_same_is_no_difference() -> None:
    items = [(("run", 1), 0.5), (("run", 2), math.nan)]
    assert compared(items, items[::-1]) == Comparison("scalars", 2, 2, ())


@pytest.mark.parametrize(
    ("expected", "shown", "words"),
    [
        ([(("run", 1), 0.5)], [], "missing: ('run', 1) = 0.5"),
        ([], [(("run", 1), 0.5)], "not recorded: ('run', 1) = 0.5"),
        ([(("run", 1), 0.5)], [(("run", 1), 0.25)], "('run', 1): [0.25] in place of [0.5]"),
        ([(("run", 1), 5)], [(("run", 1), 5), (("run", 1), 5)], "2 in place of 1 values"),
        ([(("run", 1), math.nan)], [(("run", 1), 0.0)], "[0.0] in place of [nan]"),
    ],
)
def test_every_difference_is_reported(expected: Any, shown: Any, words: str) -> None:
    [difference] = compared(expected, shown).differences
    assert words in difference


def points(run: str, steps: Any) -> list[tuple[Any, float]]:
    return [((run, step), 0.5) for step in steps]


@pytest.fixture
def _three_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard `histograms` shows three points of a series."""
    monkeypatch.setitem(MOST_POINTS, "histograms", 3)  # type: ignore[misc]


@pytest.mark.usefixtures("_three_points")
def test_of_a_long_series_a_sample_with_the_last_point_is_enough() -> None:
    shown = [*points("long", (1, 4, 9)), *points("short", (1, 2))]
    wanted = [*points("long", range(10)), *points("short", (1, 2))]
    assert compare("histograms", wanted, shown) == Comparison("histograms", 5, 5, ())
    assert len(compared(wanted, shown).differences) == 7


@pytest.mark.usefixtures("_three_points")
@pytest.mark.parametrize(
    ("count", "steps", "wrong"),
    [
        (10, (1, 4, 8), 7),
        (10, (4, 9), 8),
        (10, (1, 2, 3, 9), 6),
        (10, (1, 9, 10), 9),
        (3, (1, 2), 1),
    ],
    ids=["without its last point", "too few", "too many", "with one of its own", "of a short one"],
)
def test_any_other_sample_is_wrong(count: int, steps: tuple[int, ...], wrong: int) -> None:
    found = compare("histograms", points("any", range(count)), points("any", steps))
    assert len(found.differences) == wrong


@pytest.mark.usefixtures("_three_points")
def test_a_sampled_point_must_be_as_recorded() -> None:
    shown = [(("long", 1), 0.5), (("long", 4), 0.25), (("long", 9), 0.5)]
    [difference] = compare("histograms", points("long", range(10)), shown).differences
    assert "('long', 4): [0.25] in place of [0.5]" in difference


def test_an_edge_next_to_zero_is_as_exact_as_its_bucket() -> None:
    def distribution(left: float, right: float) -> Distribution:
        buckets = (-1.0, left, 1), (left, right, 1), (right, 1.0, 1)
        return Distribution(1.0, 3.0, (-1.0, 1.0), buckets)

    wanted = distribution(-0.0076, 3.0314549803733826e-06)
    assert same(wanted, distribution(-0.0076, 3.0318894911e-06))
    assert not same(wanted, distribution(-0.0076, 3.2e-06))
    assert not same(wanted, distribution(-0.00761, 3.0314549803733826e-06))


@pytest.mark.parametrize(
    ("expected", "shown", "is_same"),
    [
        ("mean 0.123456 of 3", "mean 0.123457 of 3", True),
        ("mean 0.123456 of 3", "mean 0.123556 of 3", False),
        ("network DeepFM", "network DeepFN", False),
        ("id 7", "id 8", False),
        ("3 × 4", "3 × 4 5", False),
        ("1.0", "1.00", False),  # a hyper-parameter that is a text
        ((1.0, [math.nan]), (1.0, [math.nan]), True),
        ((1.0, math.nan), (1.0, 1.0), False),
        ((1.0,), (1.0, 1.0), False),
    ],
)
def test_numbers_in_a_text_may_be_rounded_and_nan_is_itself(
    expected: object, shown: object, is_same: bool
) -> None:
    assert same(expected, shown) is is_same


def test_the_table_has_a_line_for_each_and_the_first_differences() -> None:
    text = table([Comparison("text", 1234, 1230, tuple("abcdef")), Comparison("mesh", 1, 1, ())])
    assert text.splitlines()[1].split() == ["text", "1,234", "1,230", "6"]
    assert "and 2 more" in text
    assert text.splitlines()[-1].split() == ["mesh", "1", "1", "0"]
