"""The comparison of what is expected with what is shown, without a TensorBoard."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tools.acceptance_check.comparison import Comparison, compare, equal, table


def compared(expected: Any, shown: Any, **more: Any) -> Comparison:
    """Compares pairs of keys and values."""
    dashboard = SimpleNamespace(
        NAME="scalars", expected=lambda records: expected, shown=lambda server: shown, **more
    )
    return compare(dashboard, [], None)  # type: ignore[arg-type]


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
def test_every_difference_is_told(expected: Any, shown: Any, words: str) -> None:
    [difference] = compared(expected, shown).differences
    assert words in difference


def test_a_dashboard_may_say_what_is_the_same() -> None:
    items = ([(("run",), 1.0)], [(("run",), 1.1)])
    assert compared(*items, same=lambda a, b: round(a) == round(b)).differences == ()


def test_nan_is_equal_to_itself_only() -> None:
    assert equal((1.0, [math.nan]), (1.0, [math.nan]))
    assert not equal((1.0, math.nan), (1.0, 1.0))
    assert not equal((1.0,), (1.0, 1.0))


def test_the_table_has_a_line_for_each_and_the_first_differences() -> None:
    text = table([Comparison("text", 1234, 1230, tuple("abcdef")), Comparison("mesh", 1, 1, ())])
    assert text.splitlines()[1].split() == ["text", "1,234", "1,230", "6"]
    assert "and 2 more" in text
    assert text.splitlines()[-1].split() == ["mesh", "1", "1", "0"]
