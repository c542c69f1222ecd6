"""The laws of mergeable states, checked on the states of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from rec_summary.metrics.state import kind_of, restore


def assert_equal_states(ours: Any, theirs: Any) -> None:
    """Checks that two states have equal arrays."""
    mine, others = ours.arrays(), theirs.arrays()
    assert mine.keys() == others.keys()
    for name, array in mine.items():
        assert array.dtype == others[name].dtype, name
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def updated(state: Any, *columns: Any) -> Any:
    """Returns a state, after it has counted a batch."""
    state.update(*columns)
    return state


def update_in_parts(state: Any, columns: Sequence[Any], borders: Iterable[int]) -> None:
    """Has a state count columns in batches, which end at these places."""
    for start, end in pairwise([0, *borders, len(columns[0])]):
        state.update(*(column[start:end] for column in columns))


def restored(state: Any) -> Any:
    """Returns a state from what is stored of another."""
    return restore(kind_of(state), state.arrays())


def merged(first: Any, *others: Any) -> Any:
    """Returns the sum of states, which do not change."""
    whole = first.copy()
    for other in others:
        whole.merge(other)
    return whole


def assert_laws(a: Any, b: Any, c: Any) -> None:
    """Checks merging, copying and storing."""
    before = [state.copy() for state in (a, b, c)]
    assert_equal_states(merged(a, b), merged(b, a))
    assert_equal_states(merged(a, merged(b, c)), merged(merged(a, b), c))
    for state, then in zip((a, b, c), before, strict=True):
        assert_equal_states(state, then)
        again = type(state).from_arrays(state.arrays())
        assert_equal_states(again, state)
        assert_equal_states(merged(again, b), merged(state, b))


def assert_counts_add_up(make: Callable[[Any], Any], parts: Sequence[Any]) -> None:
    """Checks the laws of the states of parts, and that their sum is the state of all values."""
    states = [make(part) for part in parts]
    assert_laws(*states)
    assert_equal_states(merged(*states), make([value for part in parts for value in part]))


def assert_independent(state: Any, change: Any) -> None:
    """Checks that neither copies nor stored arrays change with a state."""
    twin, arrays = state.copy(), state.arrays()
    kept = {name: array.copy() for name, array in arrays.items()}
    change(state)
    with pytest.raises(AssertionError):
        assert_equal_states(state, twin)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)


def assert_three_parts(error: pytest.ExceptionInfo[Exception]) -> None:
    """Checks that an error says what is invalid, what was received and what was expected."""
    assert " is invalid. Received: " in str(error.value)
    assert " Expected: " in str(error.value)


def refused(
    kind: type[Exception], match: str, call: Callable[..., Any], /, *args: Any, **options: Any
) -> None:
    """Checks that a call raises an error of three parts."""
    with pytest.raises(kind, match=match) as error:
        call(*args, **options)
    assert_three_parts(error)


def assert_rejects_each_missing_array(state: Any) -> None:
    """Checks that a state is not restored when any of its arrays is missing or of text."""
    arrays = state.arrays()
    for name in arrays:
        for wrong in ({}, {name: np.array("nonsense")}):
            rest = {key: array for key, array in arrays.items() if key != name} | wrong
            with pytest.raises(ValueError, match="is invalid") as error:
                type(state).from_arrays(rest)
            assert_three_parts(error)
