"""Numbers of missing, default and invalid values of a feature, and ids of its values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.feature_health import FeatureCounts, as_ids
from rec_summary.metrics.hashing import hash_strings

NUMBERS = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 3.0, 4.0, math.nan]), max_size=9)


@given(NUMBERS, NUMBERS, st.sampled_from([None, 0, 3.0]))
def test_numbers_of_a_feature_are_those_of_a_count(first, second, default) -> None:
    found, values = FeatureCounts(), first + second
    for part in (first, second):
        found.add(np.array(part, float).reshape(-1, 1), default, -1, 3)
    assert found.values == len(values)
    assert found.missing == sum(map(math.isnan, values))
    assert found.default == (values.count(default) if default is not None else 0)
    assert found.out_of_range == sum(value < -1 or value > 3 for value in values)


def test_integers_and_strings_of_a_feature_are_counted() -> None:
    found = FeatureCounts()
    found.add(np.array([1, 5, 9]), 5, 2, 8)
    assert vars(found) == {"values": 3, "missing": 0, "default": 1, "out_of_range": 2}
    for _ in range(2):
        found.add(np.array([["", "a"], ["b", "c"]]), "b", 2, 8)
    assert vars(found) == {"values": 11, "missing": 2, "default": 3, "out_of_range": 2}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equal_numbers_have_one_id_in_any_precision(dtype) -> None:
    values = np.array([[0.0, -0.0, math.nan], [0.5, 2.0, 0.5]], dtype)
    expected = np.array([0.0, 0.0, 0.5, 2.0, 0.5]).view(np.int64)
    assert as_ids(values).tolist() == expected.tolist()


def test_integers_are_their_ids_and_strings_are_hashed() -> None:
    assert as_ids(np.array([[3], [-1]], np.int8)).tolist() == [3, -1]
    assert as_ids(np.array([True])).dtype == np.int64
    names = np.array([["a", "b"], ["b", ""]])
    assert as_ids(names).tolist() == hash_strings(names).ravel().tolist()
