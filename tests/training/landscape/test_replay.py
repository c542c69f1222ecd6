from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.training.landscape.replay import ReplayBuffer


def fill(buffer, sizes):
    """Adds batches of numbered rows; returns how many."""
    start = 0
    for size in sizes:
        numbers = np.arange(start, start + size)
        buffer.add([numbers, np.stack([numbers, -numbers], axis=1).astype(np.float32)])
        start += size
    return start


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(SIZES, st.integers(1, 20))
def test_the_first_rows_are_kept(sizes, rows):
    buffer = ReplayBuffer("first", rows)
    total = fill(buffer, sizes)
    size, numbers, pairs = buffer.take_changes().values()
    assert size == sizes[0]
    np.testing.assert_array_equal(numbers, np.arange(min(rows, total)))
    np.testing.assert_array_equal(pairs[:, 1], -numbers)
    assert buffer.wants_more == (total < rows)


@given(SIZES, st.integers(1, 20))
def test_a_reservoir_keeps_different_rows_of_all(sizes, rows):
    buffer = ReplayBuffer("reservoir", rows)
    total = fill(buffer, sizes)
    size, numbers, pairs = buffer.take_changes().values()
    assert size == sizes[0]
    assert len(set(numbers.tolist())) == len(numbers) == min(rows, total)
    assert set(numbers.tolist()) <= set(range(total))
    np.testing.assert_array_equal(pairs[:, 1], -numbers)
    assert buffer.wants_more


def test_every_row_is_as_likely_as_any_other():
    counts = np.zeros(60)
    for seed in range(600):
        buffer = ReplayBuffer("reservoir", 10, seed)
        fill(buffer, [7] * 8 + [4])
        counts[buffer.take_changes()["column_0"]] += 1
    # Each is expected 100 times, with a standard deviation of 9.1.
    assert abs(counts - 100).max() < 40
    assert abs(counts[:30].mean() - counts[30:].mean()) < 6


def test_longer_strings_and_larger_numbers_than_in_the_first_batch_are_not_cut():
    buffer = ReplayBuffer("first", 4)
    buffer.add([np.array(["ab", "c"]), np.array([1, 2], np.int32)])
    buffer.add([np.array(["longer", ""]), np.array([1 << 40, 3])])
    _, names, numbers = buffer.take_changes().values()
    assert names.tolist() == ["ab", "c", "longer", ""]
    assert numbers.tolist() == [1, 2, 1 << 40, 3]


def test_rows_are_copies_and_only_changes_are_given():
    buffer = ReplayBuffer("first", 4)
    batch = np.zeros((3, 2))
    buffer.add([batch])
    batch[:] = 9
    kept = buffer.take_changes()["column_0"]
    assert not kept.any()
    assert not buffer.take_changes()
    buffer.add([np.ones((3, 2))])
    kept = buffer.take_changes()["column_0"]
    np.testing.assert_array_equal(kept[:, 0], [0, 0, 0, 1])


@pytest.mark.parametrize(
    "columns", [[], [np.float32(3)], [np.zeros(3), np.zeros(4)], [np.zeros((0, 2))]]
)
def test_what_has_no_rows(columns):
    with pytest.raises(ValueError, match="columns of equal length"):
        ReplayBuffer("first", 4).add(columns)


@pytest.mark.parametrize("columns", [[np.zeros((2, 3))], [np.zeros((2, 2)), np.zeros(2)]])
def test_rows_of_another_shape(columns):
    buffer = ReplayBuffer("first", 9)
    buffer.add([np.zeros((2, 2))])
    with pytest.raises(ValueError, match="as in the first batch"):
        buffer.add(columns)
    assert buffer.seen == 2
