"""The format of stored states: a run must continue from files that other processes wrote.

States are in records, too, which every later version reads: what is stored stays as it is.
"""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.metrics import report, windows  # noqa: F401  (they register all states)
from rec_summary.metrics.state import _kinds, kind_of, restore
from rec_summary.metrics.tables import seen  # noqa: F401
from tests.support.laws import assert_independent, assert_rejects_each_missing_array
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
    assert_rejects_each_missing_array(restore(*stored))


BATCHES = {
    "ChoiceQuality": ([[1.0, 0.0]], [0]),
    "ClickQuality": ([0.3, 0.25], [1, 0]),
    "LabelCounts": (np.ones(1, bool), np.zeros(1, bool)),
    "LogLoss": ([0.3, np.nan], [1, 0]),
    "RankedLists": (np.arange(100), np.full(100, 0.5), np.ones(100)),
    "RatingErrors": ([3.0], [1]),
    "SampledExamples": ([3], [0.5], [1]),
    "ScoreOrder": ([0.3], [1]),
    "ServedQuality": ([0.5, 0.25], [1, 0], None, None, [0.75, 0.5], np.array([9, 8])),
    "Slices": (["DE", "FR"], [0.5, 0.25], [1, 0]),
    "UserScores": ([1, 2], [0.3, np.nan], [1, 0]),
    **dict.fromkeys(("Lifetime", "LastExamples", "Decayed"), ([0.3], [1])),
}

CHANGES = {
    **{kind: lambda it, columns=columns: it.update(*columns) for kind, columns in BATCHES.items()},
    "Distribution": lambda it: it.add([2]),
    "Drift": lambda it: it.add({"label": [1.0, 0.0]}),
    "ExactSum": lambda it: it.add(np.array([2.0])),
    "FeatureCounts": lambda it: it.add(np.array([0.0, np.nan]), 0, -1, 1),
    "FeatureImportance": lambda it: it.add(next(iter(it.arrays()["names"])), 1e9, 0.1, 0.2),
    "IdFrequency": lambda it: it.add(range(100)),
    "IdTurnover": lambda it: it.add_batch(np.arange(9)),
    "LogHistogram": lambda it: it.add_all(np.array([2.0])),
    "PairSample": lambda it: it.merge(it.copy()),
    "ReferenceBuilder": lambda it: it.add({"label": [1.0], "country": [3]}),
    "RowAges": lambda it: it.touch(np.ones(it.rows.size, bool), 1000),
    "RowNorms": lambda it: it.snapshot(np.ones((2, 2), np.float32)),
    "SeenCounts": lambda it: it.add(np.arange(100)),
    "SliceState": lambda it: it.merge(it.copy()),
    "TableHealth": lambda it: it.add(range(50)),
    "Throughput": lambda it: it.add_steps([1], [1.0], [0.0]),
    "TouchedRows": lambda it: it.add(range(100)),
}


@pytest.mark.parametrize("name", [name for name, (kind, _) in STORED.items() if kind in CHANGES])
def test_copies_and_arrays_of_a_state_are_independent(name):
    kind, arrays = STORED[name]
    assert_independent(restore(kind, arrays), CHANGES[kind])


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
