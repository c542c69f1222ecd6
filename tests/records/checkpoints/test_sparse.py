from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.records.checkpoints.sparse import (
    BASE,
    LARGE_ROWS,
    dense_name,
    is_large,
    restored,
    sparse_parameters,
)

TABLE = np.arange(LARGE_ROWS * 2, dtype=np.float32).reshape(LARGE_ROWS, 2)


def test_only_tables_with_many_rows_are_large() -> None:
    assert is_large(TABLE)
    assert not is_large(TABLE[:-1])
    assert not is_large(TABLE.reshape(-1))


@given(st.sets(st.integers(0, LARGE_ROWS - 1), max_size=30))
def test_rows_that_differ_are_written_and_restored(rows: set[int]) -> None:
    table = TABLE.copy()
    table[sorted(rows)] += 1
    bias = np.ones(3, np.float32)
    written = sparse_parameters({"table": table, "bias": bias}, {"table": TABLE}, base=7)
    assert set(written) == {BASE, "table@rows", "table@values", "bias"}
    assert written["table@rows"].tolist() == sorted(rows)
    assert {dense_name(name) for name in written} == {BASE, "table", "bias"}
    back = restored(TABLE, written["table@rows"], written["table@values"])
    np.testing.assert_array_equal(back, table)


def test_a_table_of_which_most_rows_differ_is_written_whole() -> None:
    written = sparse_parameters({"table": TABLE + 1}, {"table": TABLE}, base=7)
    assert set(written) == {BASE, "table"}


@pytest.mark.parametrize(
    ("rows", "values"),
    [([LARGE_ROWS], [[1, 2]]), ([-1], [[1, 2]]), ([1], [[1, 2, 3]]), ([1, 2], [[1, 2]])],
)
def test_rows_that_are_none_of_the_base(rows: list[int], values: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="for a table of"):
        restored(TABLE, np.array(rows), np.array(values, np.float32))
