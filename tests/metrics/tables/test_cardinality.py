from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from tests.support.laws import assert_counts_add_up, assert_equal_states, refused

EXACT = TouchedOptions(50)
SKETCH = TouchedOptions(None, precision=6)

BATCHES = st.lists(st.lists(st.integers(-5, 60), max_size=30), min_size=3, max_size=3)


def state(options: TouchedOptions, *batches: list[int] | np.ndarray) -> TouchedRows:
    found = TouchedRows(options)
    for batch in batches:
        found.add(batch)
    return found


@pytest.mark.parametrize("options", [EXACT, SKETCH, TouchedOptions(50, exact_rows=49)])
@given(BATCHES)
def test_laws(options: TouchedOptions, batches: list[list[int]]) -> None:
    assert_counts_add_up(lambda batch: state(options, batch), batches)


@given(st.lists(st.integers(-5, 60)))
def test_small_tables_are_counted_exactly(ids: list[int]) -> None:
    expected = {i for i in ids if 0 <= i < 50}
    found = state(EXACT, ids)
    assert found.count() == len(expected)
    touched = found.touched(np.arange(50))
    assert touched is not None
    assert np.flatnonzero(touched).tolist() == sorted(expected)


def error_of(precision: int) -> float:
    """The relative standard error of a sketch."""
    return 1.04 / math.sqrt(2**precision)


@pytest.mark.parametrize("count", [1, 100, 3_000, 20_000, 300_000])
@pytest.mark.parametrize("precision", [10, 14])
def test_the_sketch_is_as_close_as_it_says(count: int, precision: int) -> None:
    options = TouchedOptions(None, precision=precision)
    random = np.random.default_rng(count)
    errors = []
    for _ in range(12):
        ids = np.unique(random.integers(0, 2**62, count))
        errors.append(state(options, ids).count() / ids.size - 1)
    # Twelve errors: their root mean square is within 1.6 standard errors but in one of 1e4
    # cases, their mean within 4 standard errors of a mean.
    assert np.sqrt(np.mean(np.square(errors))) < 1.7 * error_of(precision)
    assert abs(np.mean(errors)) < 4 * error_of(precision) / np.sqrt(12)


def test_the_sketch_of_consecutive_ids() -> None:
    found = state(TouchedOptions(2**30), np.arange(100_000))
    assert found.count() == pytest.approx(100_000, rel=4 * error_of(14))


def test_an_empty_sketch_counts_nothing() -> None:
    assert TouchedRows(SKETCH).count() == 0
    assert state(SKETCH, []).count() == 0


def test_the_sketch_beside_that_of_datasketches() -> None:
    datasketches = pytest.importorskip("datasketches")
    theirs = datasketches.hll_sketch(14)
    ids = np.random.default_rng(3).integers(0, 80_000, 200_000)
    for value in ids.tolist():
        theirs.update(value)
    ours = state(TouchedOptions(None), ids)
    truth = np.unique(ids).size
    assert theirs.get_estimate() == pytest.approx(truth, rel=4 * error_of(14))
    assert ours.count() == pytest.approx(truth, rel=4 * error_of(14))


def test_a_bit_of_storage_for_each_row() -> None:
    for size, nbytes in (1001, 126), (1000, 125):
        found = state(TouchedOptions(size), [size - 1])
        assert found.arrays()["bits"].nbytes == nbytes
        assert_equal_states(TouchedRows.from_arrays(found.arrays()), found)


@pytest.mark.parametrize(
    "other", [{"size": 51}, {"precision": 5}, {"exact_rows": 7}, {"size": None}]
)
def test_other_settings_are_not_merged(other: dict[str, int | None]) -> None:
    a, b = TouchedRows(EXACT), TouchedRows(dataclasses.replace(EXACT, **other))
    refused(ValueError, "options of a state to merge is invalid", a.merge, b)


def test_rows_beyond_the_table_are_not_restored() -> None:
    arrays = TouchedRows(EXACT).arrays()
    arrays["bits"][-1] = 1
    refused(ValueError, "50 rows", TouchedRows.from_arrays, arrays)


def test_registers_too_large_are_not_restored() -> None:
    arrays = TouchedRows(SKETCH).arrays()
    arrays["registers"][3] = 60
    refused(ValueError, "up to 59", TouchedRows.from_arrays, arrays)
    full = TouchedRows.from_arrays(arrays | {"registers": np.full(64, 59, np.uint8)})
    assert full.count() == math.inf


def test_registers_at_their_maximum_count_as_those_of_a_longer_hash() -> None:
    # A register is at most k with probability exp(-n / 2**k) after n ids for each.
    random = np.random.default_rng(0)
    longest = 65 - 14
    lengths = np.ceil(50 - np.log2(random.exponential(size=2**14)))
    arrays = TouchedRows(TouchedOptions(None)).arrays()
    arrays["registers"] = np.minimum(lengths, longest).astype(np.uint8)
    exact = 2.0**14 / (2 * math.log(2) * np.mean(2.0**-lengths))
    assert TouchedRows.from_arrays(arrays).count() == pytest.approx(exact, rel=0.015)


def test_tables_up_to_a_size_are_exact() -> None:
    assert TouchedOptions(50, exact_rows=50).exact
    assert not TouchedOptions(50, exact_rows=49).exact
    assert state(SKETCH, [1]).touched(np.arange(3)) is None


@pytest.mark.parametrize(
    "options", [{"size": 0}, {"precision": 3}, {"precision": 19}, {"exact_rows": -1}]
)
def test_options_out_of_range(options: dict[str, int]) -> None:
    refused(ValueError, "is invalid", TouchedOptions, **{"size": 9, **options})
    TouchedOptions(1, exact_rows=0, precision=4)
    TouchedOptions(1, precision=18)
