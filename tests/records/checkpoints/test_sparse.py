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
TABLE.flags.writeable = False


def test_only_tables_with_many_rows_are_large() -> None:
    assert is_large(TABLE)
    assert not is_large(TABLE[:-1])
    assert not is_large(TABLE.reshape(-1))
    assert not is_large(TABLE.reshape(LARGE_ROWS, 2, 1))


@given(st.sets(st.integers(0, LARGE_ROWS - 1), max_size=30))
def test_rows_that_differ_are_written_and_restored(rows: set[int]) -> None:
    table = TABLE.copy()
    table[sorted(rows), 1] -= 1
    now = {"bias": np.ones(3, np.float32), "grown": TABLE, "table": table}
    written = sparse_parameters(now, {"table": TABLE, "grown": TABLE[1:]}, base=7)
    assert set(written) == {BASE, "table@rows", "table@values", "bias", "grown"}
    assert written[BASE] == 7
    assert written["table@rows"].tolist() == sorted(rows)
    assert written["table@rows"].dtype == np.int64
    assert {dense_name(name) for name in written} == {BASE, *now}
    back = restored(TABLE, written["table@rows"], written["table@values"])
    np.testing.assert_array_equal(back, table)


def test_a_table_of_which_most_rows_differ_is_written_whole() -> None:
    half = LARGE_ROWS // 2
    for rows, names in ((half, {"table@rows", "table@values"}), (half + 1, {"table"})):
        table = TABLE.copy()
        table[:rows] += 1
        assert set(sparse_parameters({"table": table}, {"table": TABLE}, base=7)) == {BASE, *names}


@pytest.mark.parametrize(
    ("rows", "values"),
    [([LARGE_ROWS], [[1, 2]]), ([-1], [[1, 2]]), ([1], [[1, 2, 3]]), ([1, 2], [[1, 2]])],
)
def test_rows_that_are_none_of_the_base(rows: list[int], values: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="for a table of"):
        restored(TABLE, np.array(rows), np.array(values, np.float32))
