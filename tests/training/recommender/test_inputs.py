"""What several steps took, in a row: the same arrays however Tensors are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

pytest.importorskip("mindspore")

import mindspore
from mindspore import Tensor, ops

from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.inputs import StepInputs, Steps, join

PLACE = ("input", 0)
DTYPES = st.sampled_from(["?", "i1", "i4", "i8", "f2", "f4", "f8"])


def joined(*values: Any) -> Steps:
    """Joins steps that had these values, and nothing went wrong."""
    troubles = Troubles()
    found = join([StepInputs({PLACE: v}, 1, 0.5, 0.25, 9.0) for v in values], [PLACE], troubles)
    assert not troubles.counts
    return found


@st.composite
def alike(draw: Any) -> list[np.ndarray]:
    dtype, width = draw(DTYPES), draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    return [draw(arrays.arrays(dtype, (size, *width))) for size in sizes]


@settings(deadline=None)
@given(alike())
def test_tensors_become_one_array(parts: list[np.ndarray]) -> None:
    found = joined(*map(Tensor, parts))
    wanted = np.concatenate(parts)
    assert found.arrays[PLACE].dtype == wanted.dtype
    np.testing.assert_array_equal(found.arrays[PLACE], wanted)
    assert found.lengths[PLACE] == [len(part) for part in parts]


def test_steps_of_one_example_may_have_lost_their_axis() -> None:
    for order in ([0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 1]):
        parts = [np.float32(0.5) if squeezed else np.ones(4, np.float32) for squeezed in order]
        for make in (np.asarray, Tensor):
            found = joined(*map(make, parts))
            assert found.lengths[PLACE] == [1 if squeezed else 4 for squeezed in order]
            assert found.arrays[PLACE].sum() == sum(np.sum(part) for part in parts)


def test_small_outputs_are_let_go_of() -> None:
    values = {("output", 1): Tensor(np.arange(4.0)), ("name", "user"): Tensor(np.arange(4))}
    batch = StepInputs(values, 4, 0.5, 0.25, 9.0)
    batch.own()
    assert type(batch.values["output", 1]) is np.ndarray
    assert batch.values["output", 1].tolist() == [0, 1, 2, 3]


def test_views_of_tensors_are_read_as_what_they_show() -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    matrices = [np.arange(12, dtype=np.float32).reshape(3, 4) + n for n in range(3)]
    columns = [Tensor(matrix)[:, 1] for matrix in matrices]
    turned = [ops.transpose(Tensor(matrix), (1, 0)) for matrix in matrices]
    assert not turned[0].is_contiguous()
    np.testing.assert_array_equal(
        joined(*columns).arrays[PLACE], np.concatenate([matrix[:, 1] for matrix in matrices])
    )
    np.testing.assert_array_equal(
        joined(*turned).arrays[PLACE], np.concatenate([matrix.T for matrix in matrices])
    )


def test_what_is_not_alike_is_joined_as_numpy_does() -> None:
    tensors = (Tensor(np.array([1, 2], np.int32)), Tensor(np.array([2.5], np.float32)))
    assert joined(*tensors).arrays[PLACE].tolist() == [1, 2, 2.5]
    halves = [Tensor([1.5, 2.5], mindspore.bfloat16), Tensor([3.5, -1.0], mindspore.bfloat16)]
    assert joined(*halves).arrays[PLACE].tolist() == [1.5, 2.5, 3.5, -1.0]
    mixed = (np.array([1.0]), Tensor(np.array([2.0])), np.array([3.0]), Tensor(np.array([4.0])))
    assert joined(*mixed).arrays[PLACE].tolist() == [1, 2, 3, 4]


def test_large_tensors_and_single_numbers_are_joined_as_well() -> None:
    large = [np.arange(n, n + 9000, dtype=np.int32) for n in range(2)]
    np.testing.assert_array_equal(joined(*map(Tensor, large)).arrays[PLACE], np.concatenate(large))
    numbers = joined(Tensor(np.float32(0.5)), Tensor(np.float32(1.5)))
    assert (numbers.arrays[PLACE].tolist(), numbers.lengths[PLACE]) == ([0.5, 1.5], [1, 1])


def test_a_place_that_a_step_lacks_is_left_out() -> None:
    one, other = {PLACE: np.ones(2), "more": np.ones(2)}, {PLACE: np.zeros(3)}
    steps = [StepInputs(values, 2, 0.5, 0.25, 9.0) for values in (one, other)]
    found = join(steps, [PLACE, "more"], Troubles())
    assert found.arrays.keys() == {PLACE}
    assert found.batches == steps


@pytest.mark.parametrize("place", [("output", 0), ("name", "score"), ("call", len)])
@pytest.mark.parametrize("make", [np.asarray, Tensor])
def test_the_scores_of_all_pairs_of_a_smaller_batch_are_padded(place: Any, make: Any) -> None:
    parts = [np.eye(3, dtype=np.float32), np.eye(2, dtype=np.float32)]
    steps = [StepInputs({place: make(part)}, len(part), 0.5, 0.25, 9.0) for part in parts]
    troubles = Troubles()
    found = join(steps, [place], troubles)
    padded = np.concatenate([parts[0], [[1, 0, np.nan], [0, 1, np.nan]]])
    np.testing.assert_array_equal(found.arrays[place], padded)
    assert found.lengths[place] == [3, 2]
    assert not troubles.counts


class Unreadable:
    """Nothing that could be an array."""

    nbytes = 8


@pytest.mark.parametrize("wrong", [np.ones((2, 4)), Unreadable()])
def test_what_cannot_be_joined_is_reported_and_costs_nothing_else(wrong: Any) -> None:
    troubles, other = Troubles(), ("output", 1)
    values = (np.ones((2, 3)), wrong)
    steps = [StepInputs({PLACE: v, other: np.ones(1)}, 1, 0.5, 0.25, 9.0) for v in values]
    found = join(steps, [PLACE, other], troubles)
    assert found.arrays.keys() == {other}
    assert troubles.counts == {"recommender metrics: input 0": 1}
