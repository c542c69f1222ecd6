from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.tables.row_norms import RowNorms, sample_rows
from tests.support.laws import assert_equal_states, assert_three_parts, refused

ROWS = np.arange(0, 40, 2)
TABLES = [np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32) for seed in range(3)]


def state(rows: np.ndarray, tables: list[np.ndarray] = TABLES) -> RowNorms:
    found = RowNorms(rows, 3)
    for table in tables:
        found.snapshot(table[rows])
    return found


@given(st.integers(1, 10**12), st.integers(1, 2000))
def test_the_sample_is_spread_over_the_table(size: int, count: int) -> None:
    rows = sample_rows(size, count)
    assert rows.size == min(size, count)
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < size
    # One row in each part: no gap is longer than two parts.
    assert (np.diff(rows) <= 2 * -(-size // rows.size)).all()
    np.testing.assert_array_equal(rows, sample_rows(size, count))


def test_the_sample_never_changes() -> None:
    # Other rows would make the drift of a restarted run meaningless.
    assert sample_rows(100_000, 4).tolist() == [7535, 47465, 73110, 89053]
    for size, count in (0, 4), (4, 0):
        refused(ValueError, "an int of at least 1", sample_rows, size, count)


def test_it_is_restored_as_it_was_stored() -> None:
    found = state(ROWS)
    assert_equal_states(RowNorms.from_arrays(found.arrays()), found)
    nothing = RowNorms(ROWS.astype(np.int32), 3)
    assert_equal_states(RowNorms.from_arrays(nothing.arrays()), nothing)
    for table in (np.full((40, 3), np.nan, np.float32), np.full((40, 3), np.inf, np.float32)):
        nothing.snapshot(table[ROWS])
        assert_equal_states(RowNorms.from_arrays(nothing.arrays()), nothing)
    assert np.isnan(nothing.report()["row_norm/p50"])


def test_sampled_rows_are_not_merged() -> None:
    found = state(ROWS)
    with pytest.raises(ValueError, match=r"sampled rows are not merged") as error:
        found.merge(state(ROWS))
    assert_three_parts(error)


def test_norms_and_movement() -> None:
    found = state(ROWS).report()
    before, now = TABLES[1][ROWS].astype(float), TABLES[2][ROWS].astype(float)
    norms = np.sqrt((now**2).sum(axis=1))
    assert (found["row_norm/p0"], found["row_norm/p100"]) == (norms.min(), norms.max())
    assert found["row_norm/p75"] == pytest.approx(np.quantile(norms, 0.75))
    change = np.sqrt(((now - before) ** 2).sum() / (before**2).sum())
    assert found["relative_change"] == pytest.approx(change)


def test_dead_rows() -> None:
    table = TABLES[0].copy()
    table[4] = 0
    later = TABLES[1].copy()
    later[4] = 0
    later[6] = table[6]
    found = state(ROWS, [table, later])
    assert found.report()["dead_share"] == 2 / 20
    touched = np.ones(20, bool)
    touched[[0, 3]] = False  # rows 0 and 6
    assert found.report(touched)["dead_share"] == 3 / 20
    later[8] = 0  # it was not at the first snapshot
    assert state(ROWS, [table, later]).report()["dead_share"] == 3 / 20


def test_a_small_change_is_no_death() -> None:
    table = np.full((40, 3), 1000, np.float32)
    later = table.copy()
    later[:, 0] = np.nextafter(np.float32(1000), np.float32(2000))
    assert state(ROWS, [table, later]).report()["dead_share"] == 0


def test_a_row_that_is_not_finite_is_counted_and_left_out() -> None:
    later = TABLES[1].copy()
    later[2, 1], later[4, 1] = np.nan, np.inf
    found = state(ROWS, [TABLES[0], later]).report()
    assert found["not_finite_share"] == pytest.approx(2 / 20)
    rest = np.delete(ROWS, [1, 2])
    expected = state(rest, [TABLES[0], later]).report()
    for name in ("row_norm/p0", "row_norm/p25", "row_norm/p50", "row_norm/p99", "relative_change"):
        assert found[name] == expected[name]
    found, expected = (state(rows, [later, TABLES[0]]).report() for rows in (ROWS, rest))
    assert found["relative_change"] == expected["relative_change"]


def test_the_change_of_very_large_rows_and_of_zeros() -> None:
    large = np.full((40, 3), 1e30, np.float32)
    assert state(ROWS, [large, 2 * large]).report()["relative_change"] == pytest.approx(1)
    assert np.isnan(state(ROWS, [0 * large, large]).report()["relative_change"])


def test_a_table_without_rows_has_no_numbers() -> None:
    assert state(ROWS[:0]).report() == {}


def test_what_one_snapshot_does_not_show() -> None:
    found = state(ROWS, TABLES[:1]).report()
    assert np.isnan([found["relative_change"], found["not_finite_share"]]).all()
    assert found["dead_share"] == 0
    assert RowNorms(ROWS, 3).report() == {}


def test_a_snapshot_is_a_copy() -> None:
    values = TABLES[0][ROWS].copy()
    found = RowNorms(ROWS, 3)
    found.snapshot(values)
    values[:] = 0
    assert found.report()["dead_share"] == 0


@pytest.mark.parametrize("rows", [[3, 2], [1, 3, 2], [1, 1], [-1, 2], [[1]], [0.5]])
def test_invalid_rows(rows: list[object]) -> None:
    refused(ValueError, "ascending row numbers", RowNorms, np.array(rows), 3)


def test_values_of_another_shape() -> None:
    refused(ValueError, "width is invalid", RowNorms, ROWS, 0)
    refused(ValueError, "the shape of the rows", RowNorms(ROWS, 3).snapshot, TABLES[0])
