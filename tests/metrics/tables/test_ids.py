from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rec_summary.metrics.tables.ids import classify
from tests.support.laws import refused

INTEGERS = hnp.arrays(
    st.sampled_from([np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32]),
    hnp.array_shapes(max_dims=3, max_side=8),
)


@given(INTEGERS, st.none() | st.integers(1, 200), st.none() | st.integers(-3, 300))
def test_every_id_is_of_one_kind(ids: np.ndarray, size: int | None, unknown_id: int | None) -> None:
    found = classify(ids, size, unknown_id)
    flat = ids.ravel().tolist()
    inside = [i for i in flat if size is None or 0 <= i < size]
    assert found.rows.tolist() == inside
    assert found.count == len(flat)
    assert found.unknown == sum(i == unknown_id for i in flat)
    assert found.out_of_range == sum(
        i != unknown_id and not (size is None or 0 <= i < size) for i in flat
    )


def test_an_unknown_id_that_is_a_row_is_not_out_of_range() -> None:
    found = classify([1, 9, 1], 5, 1)
    assert (found.rows.tolist(), found.unknown, found.out_of_range) == ([1, 1], 2, 1)


def test_a_column_of_a_matrix() -> None:
    matrix = np.arange(12, dtype=np.int32).reshape(4, 3)
    assert classify(matrix[:, 1], 5, None).rows.tolist() == [1, 4]


def test_all_ids_of_64_bits_are_ids_of_an_open_table() -> None:
    found = classify(np.array([2**63, 7, 2**64 - 1], np.uint64), None, None)
    assert (found.rows.tolist(), found.out_of_range) == ([-(2**63), 7, -1], 0)
    found = classify(np.array([2**63, 7], np.uint64), 100, None)
    assert (found.rows.tolist(), found.out_of_range) == ([7], 1)
    assert classify([-5, -1], None, -1).unknown == 1


def test_strings_are_ids_of_an_open_table() -> None:
    strings = ["a", "ab", "", "été", "a"]
    rows = classify(strings, None, None).rows
    assert len(set(rows.tolist())) == 4
    assert rows[0] == rows[4]
    for other in (np.array(strings, object), np.array([s.encode() for s in strings]).astype("S40")):
        assert classify(other, None, None).rows.tolist() == rows.tolist()
    refused(TypeError, "the dtype of the ids is invalid", classify, strings, 5, None)
    with pytest.raises(TypeError, match="objects of NoneType, str"):
        classify(np.array(["a", None], object), None, None)


def test_no_ids_at_all() -> None:
    assert classify([], 5, 0).count == 0
    assert classify(np.array([], object), None, 0).count == 0


def test_ids_are_integers() -> None:
    refused(TypeError, "the dtype of the ids is invalid", classify, np.ones(3), 5, None)
