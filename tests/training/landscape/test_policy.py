from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.training.landscape.policy import (
    AnyKeep,
    AnyWhen,
    EveryMinutes,
    EverySteps,
    KeepAll,
    KeepLast,
    KeepLogSpaced,
    LogSpaced,
    SavePolicy,
)

NUMBERS = st.lists(st.integers(1, 10**9), min_size=1, max_size=60, unique=True).map(sorted)


def saved(when, steps):
    """Returns the steps at which a rule keeps a checkpoint."""
    found, last = [], None
    for step in steps:
        if when.due(step, last, 0.0):
            found.append(step)
            last = step
    return found


def test_every_so_many_steps():
    assert saved(EverySteps(10), range(1, 45)) == [1, 11, 21, 31, 41]
    assert saved(EverySteps(1), [3, 4, 5]) == [3, 4, 5]


def test_at_even_distances_of_the_logarithm():
    found = saved(LogSpaced(4), range(1, 100_001))
    assert found[:5] == [1, 2, 4, 8, 15]
    assert 15 <= len(found) <= 21  # four for each of five decades
    ratios = [b / a for a, b in itertools.pairwise(found[5:])]
    assert max(ratios) - min(ratios) < 0.1


def test_every_so_many_minutes():
    rule = EveryMinutes(2)
    assert rule.due(1, None, 0)
    assert not rule.due(9, 1, 119)
    assert rule.due(10, 1, 120)


def test_what_stays():
    numbers = [1, 2, 4, 8, 16, 32]
    assert KeepAll().kept(numbers) == set(numbers)
    assert KeepLast(3).kept(numbers) == {8, 16, 32}
    assert KeepLogSpaced(4).kept([1, 2, 4, 8, 16, 32, 64]) == {1, 4, 16, 64}


def test_rules_combine():
    rule = AnyWhen((EverySteps(100), EveryMinutes(2)))
    assert rule.due(1, None, 0)
    assert rule.due(101, 1, 0)
    assert rule.due(9, 1, 120)
    assert not rule.due(100, 1, 119)
    keep = AnyKeep([KeepLast(3), KeepLogSpaced(4)])
    assert keep.kept([1, 2, 4, 8, 16, 32, 64]) == {1, 4, 16, 32, 64}


@given(NUMBERS, st.integers(3, 10))
def test_first_and_last_stay_and_no_more_than_asked_for(numbers, count):
    kept = KeepLogSpaced(count).kept(numbers)
    assert kept <= set(numbers)
    assert {numbers[0], numbers[-1]} <= kept
    assert len(kept) == min(count, len(numbers))
    assert numbers[-1] in KeepLast(count).kept(numbers)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EverySteps(0),
        lambda: EverySteps(True),
        lambda: LogSpaced(2.5),
        lambda: EveryMinutes(0),
        lambda: EveryMinutes(math.nan),
        lambda: KeepLast(2),
        lambda: KeepLogSpaced(1),
        lambda: AnyWhen(()),
        lambda: AnyWhen(EverySteps(1)),
        lambda: AnyWhen("steps"),
        lambda: AnyKeep([EverySteps(1)]),
    ],
)
def test_invalid_policies(make):
    with pytest.raises((TypeError, ValueError), match=r"is invalid\. Received"):
        make()


def test_a_policy_is_made_of_rules():
    with pytest.raises(TypeError, match="such as EverySteps"):
        SavePolicy(1000)
    with pytest.raises(TypeError, match="such as KeepLast"):
        SavePolicy(EverySteps(1), 3)
