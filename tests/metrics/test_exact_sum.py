import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.exact_sum import ExactSum, units_of, units_of_whole
from tests.support.laws import refused

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, max_size=50))
def test_the_sum_is_that_of_exact_arithmetic(numbers):
    total = ExactSum()
    total.add(np.array(numbers))
    try:
        expected = float(sum(map(Fraction, numbers)))
    except OverflowError:
        expected = math.inf if sum(map(Fraction, numbers)) > 0 else -math.inf
    assert total.value() == expected
    assert ExactSum.from_arrays(total.arrays()).value() == expected


@given(st.lists(FLOATS, min_size=1, max_size=9), st.floats(2.0**-60, 8.0))
def test_a_sum_is_scaled_down_to_whole_units(numbers, factor):
    total = ExactSum()
    for number in numbers:
        total.add_units(units_of(np.array([number]))[0])
    total.scale(factor)
    exact = sum(map(Fraction, numbers)) * 2**1074 * Fraction(factor)
    stored = total.arrays()["units"].tobytes()
    assert int.from_bytes(stored, "little", signed=True) == math.floor(exact)


def test_the_largest_stored_sum_has_1024_bytes():
    assert ExactSum.from_arrays({"units": np.zeros(1024, np.uint8)}).value() == 0


def test_what_float64_loses_is_kept():
    total = ExactSum()
    total.add(np.array([1e300, 1.0, 5e-324]))
    total.add(np.array([-1e300, -1.0]))
    assert total.value() == 5e-324
    total.add_units(units_of_whole(3))
    assert total.value() == 3.0


def test_more_than_float64_can_hold_is_infinite_only_while_it_is():
    total = ExactSum()
    total.add(np.array([1.7e308, 1.7e308]))
    assert total.value() == math.inf
    total.scale(0.5)
    assert total.value() == 1.7e308
    total.add(np.array([-1.7e308, -1.7e308, -1.7e308]))
    assert total.value() == -math.inf


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"units": np.zeros(0, np.uint8)},
        {"units": np.zeros(1025, np.uint8)},
        {"units": np.zeros(8)},
        {"units": np.zeros((2, 2), np.uint8)},
    ],
)
def test_nonsense_is_refused(arrays):
    refused(ValueError, r"is invalid\. Received", ExactSum.from_arrays, arrays)


@pytest.mark.parametrize("largest", [1.0, 1e300, 1.7e308])
def test_parts_of_several_blocks_have_exact_sums(largest: float) -> None:
    random = np.random.default_rng(0)
    numbers = np.append(-np.log(random.random(20_000)), [largest, 5e-324])
    starts = [0, 100, 16_383, 16_384, 19_000]
    wanted = [
        sum(Fraction(number) for number in part.tolist()) * 2**1074
        for part in np.split(numbers, starts[1:])
    ]
    assert units_of(numbers, starts) == wanted
    assert units_of(numbers) == [sum(wanted)]
