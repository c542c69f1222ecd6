import math

import numpy as np
import pytest

from rec_summary.training.tensors import to_number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (True, 1.0),
        (0.5, 0.5),
        (np.float32(0.25), 0.25),
        (np.array([[2.0]]), 2.0),
        (np.array([1.0, 2.0, 6.0]), 3.0),
        (np.array([1, 2], dtype=np.int64), 1.5),
        (np.full(100_000, 60_000, dtype=np.float16), 60_000.0),
    ],
)
def test_numbers_and_arrays_become_one_number(value, number):
    assert to_number(value) == number


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_are_kept(value):
    assert repr(to_number(np.float32(value))) == repr(value)


@pytest.mark.parametrize("value", [None, "0.5", {"loss": 1}, object(), 1 + 2j])
def test_other_things_are_refused_in_three_parts(value):
    with pytest.raises(TypeError, match=r"a scalar is invalid\. Received: .*\. Expected: "):
        to_number(value)


def test_an_empty_array_is_refused():
    with pytest.raises(ValueError, match=r"shape \(0, 3\)"):
        to_number(np.zeros((0, 3)))
