from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from rec_summary.metrics.tables.health import TableHealth
from tests.support.laws import assert_laws, refused
from tests.support.metric_states import table_health

BATCHES = st.lists(st.lists(st.integers(-5, 60), max_size=30), min_size=3, max_size=3)


def state(*batches: list[int]) -> TableHealth:
    found = table_health(50, unknown_id=0)
    for batch in batches:
        found.add(batch)
    return found


@given(BATCHES)
def test_laws(batches: list[list[int]]) -> None:
    assert_laws(*map(state, batches))


def test_a_batch_goes_to_both_parts() -> None:
    found = state([0, 0, 4, 99])
    assert found.touched.count() == 2
    frequency = found.frequency
    assert (frequency.seen, frequency.unknown, frequency.out_of_range) == (4, 2, 1)


def test_parts_of_different_tables() -> None:
    with pytest.raises(ValueError, match="the size of the table"):
        TableHealth(TouchedRows(TouchedOptions(5)), IdFrequency(FrequencyOptions(6)))


def test_other_settings_leave_the_state_as_it_was() -> None:
    ours, theirs = state([1]), table_health(50)
    theirs.add([2])
    refused(ValueError, "is invalid", ours.merge, theirs)
    assert ours.touched.count() == 1


def test_a_table_of_open_size() -> None:
    found = table_health(None)
    found.add(np.arange(1_000) * 10**12)
    assert found.touched.count() == pytest.approx(1_000, rel=0.03)
