"""How a table grows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.growth import IdTurnover, RowAges, hashed_ids
from tests.support.laws import assert_laws, refused


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_the_laws_hold(seed) -> None:
    random = np.random.default_rng(seed)
    turnovers, ages = [], []
    for part in range(3):
        touched = TouchedRows(TouchedOptions(9))
        touched.add(random.integers(0, 9, 3))
        turnover, age = IdTurnover(touched), RowAges(np.arange(5))
        turnover.add_batch(random.integers(0, 9, 20))
        for now in range(part + 1):
            age.touch(random.random(5) < 0.3, 10 * now + part)
        turnovers.append(turnover)
        ages.append(age)
    assert_laws(*turnovers)
    assert_laws(*ages)
    refused(ValueError, "rows", ages[0].merge, RowAges(np.arange(4)))


def test_the_age_of_a_row_is_the_time_since_its_last_lookup() -> None:
    ages = RowAges(np.array([1, 4, 6]))
    assert all(math.isnan(each) for each in ages.quantiles((0.5,)))
    ages.touch(np.array([True, True, False]), 100)
    ages.touch(np.array([False, True, False]), 250)
    assert ages.quantiles((0.0, 1.0)) == [0, 150]


def test_of_several_ranks_the_latest_lookup_of_a_row_counts() -> None:
    ages, other = RowAges(np.arange(2)), RowAges(np.arange(2))
    ages.touch(np.array([True, False]), 100)
    other.touch(np.array([False, True]), 250)
    ages.merge(other)
    assert ages.quantiles((0.0, 1.0)) == [0, 150]


@pytest.mark.parametrize("ids", [10, 3000, 20_000])
def test_the_number_of_ids_before_hashing_is_estimated_with_their_collisions(ids) -> None:
    random = np.random.default_rng(ids)
    rows = random.integers(0, 8192, ids)
    touched = TouchedRows(TouchedOptions(8192))
    touched.add(rows)
    found, share = hashed_ids(touched)
    _, inverse, counts = np.unique(rows, return_inverse=True, return_counts=True)
    assert found == pytest.approx(ids, rel=0.05)
    assert share == pytest.approx(np.mean(counts[inverse] > 1), abs=0.02)


def test_a_single_id_shares_its_row_with_no_other() -> None:
    touched = TouchedRows(TouchedOptions(10))
    touched.add([3])
    assert hashed_ids(touched) == pytest.approx((1.0, 0.0), abs=1e-12)


def test_an_empty_and_a_full_table_have_no_estimate() -> None:
    touched = TouchedRows(TouchedOptions(2))
    assert all(math.isnan(each) for each in hashed_ids(touched))
    touched.add(np.array([0, 1]))
    assert hashed_ids(touched) == (math.inf, 1.0)
