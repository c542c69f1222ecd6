import math

import numpy as np
import pytest

from rec_summary.training.tensors import as_number, own_array, to_number


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


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int32, np.int64, np.uint8, np.bool_])
def test_a_masked_element_becomes_nan(kind):
    masked = np.ma.array([1, 1], kind, mask=[False, True])
    for value, expected in ((masked, [1, np.nan]), ([masked, masked], [[1, np.nan]] * 2)):
        np.testing.assert_array_equal(own_array(value, "loss"), expected)
    assert math.isnan(as_number(np.ma.masked, "loss"))


def test_an_array_without_a_masked_element_keeps_its_type():
    assert own_array(np.ma.array([2**53 + 1]), "ids").tolist() == [2**53 + 1]


def test_masked_elements_that_are_not_numbers_are_refused():
    with pytest.raises(TypeError, match=r"an array is invalid.*masked elements of <U1"):
        own_array(np.ma.array(["a", "b"], mask=[True, False]), "names")
