"""The format of stored states: a run must continue from files that other processes wrote.

States are in records, too, which every later version reads: what is stored stays as it is.
"""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.metrics import report, windows  # noqa: F401  (they register all states)
from rec_summary.metrics.state import _kinds, kind_of, restore
from rec_summary.metrics.tables import seen  # noqa: F401
from tests.support.metric_states import STORED


@pytest.fixture(params=STORED)
def stored(request):
    return STORED[request.param]


def test_a_stored_state_is_restored_and_stored_as_it_was(stored):
    kind, arrays = stored
    state = restore(kind, arrays)
    assert kind_of(state) == kind
    again = state.arrays()
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype, name
        np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_every_array_of_a_stored_state_is_needed(stored):
    kind, arrays = stored
    for name in arrays:
        with pytest.raises(ValueError, match="is invalid"):
            restore(kind, {key: array for key, array in arrays.items() if key != name})


def test_there_is_a_stored_state_of_every_kind():
    shipped = {name for name, cls in _kinds.items() if cls.__module__.startswith("rec_summary.")}
    assert shipped == {kind for kind, _ in STORED.values()}


def test_restored_states_have_the_values_of_their_arrays():
    states = {name: restore(*stored) for name, stored in STORED.items()}
    assert states["exact sum"].value() == -3
    assert states["log loss"].log_loss() == 0.5
    assert states["log loss"].click_rate == 0.4
    assert (states["label counts"].masked, states["label counts"].missing) == (3, 1)
    assert [(name, size) for name, size, _ in states["slices"].slices()] == [("DE", 10), ("a/b", 4)]
    assert states["seen counts"].mistaken(1) == 0.125**4
    assert states["turnover of ids"].different == 6
    assert states["ages of rows"].quantiles((0.0, 1.0)) == [10, 60]
    assert states["counts of a feature"].out_of_range == 3
    assert states["rating errors"].bias() == -1.5
    assert states["rating errors"].rmse() == 2
    assert states["touched rows"].touched(np.arange(10)).nonzero()[0].tolist() == [0, 7, 9]
    assert states["frequency"].top(3).ids.tolist() == [0, 9]
    assert states["served quality"].missing_share() == 0.5
    assert states["served quality"].skewed_share() == 0
    assert states["pair sample"].pairs().weights.tolist() == [1, 0.5]
    assert states["user scores"].gauc().value == 1
    assert states["ranked lists"].sampled().too_long == 1
    assert (states["choices"].top(1).recall, states["choices"].log_loss()) == (0.75, 0.5)
    assert states["throughput"].report()["throughput/input_stall_share"] == 0.4
    assert states["row norms"].report()["row_norm/p0"] == 0
    assert states["last examples"].total().clicks == 8
    assert states["drift"].report()["drift/missing_share/label"] == 0.4
    assert states["drift"].window["country"].counts[:-1].sum() == 7
