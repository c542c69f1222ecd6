"""Groups of runs, and the mean and the spread of their curves."""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.errors import ArgumentError
from rec_summary.series.comparison.curves import Curve
from rec_summary.series.comparison.groups import band, grouped

RUNS = {
    "a1": {"learning_rate": 0.1, "seed": 1, "network": "Deep", "group": "a"},
    "a2": {"learning_rate": 0.1, "seed": 2, "network": "Deep", "group": "a"},
    "b1": {"learning_rate": 0.2, "seed": 1, "network": "Deep", "group": "b"},
    "other": {"learning_rate": 0.1, "network": "Deep"},
}


def test_runs_that_differ_in_nothing_but_the_seed_form_a_group() -> None:
    assert grouped(RUNS, "seed") == {"learning_rate=0.1": ["a1", "a2"], "learning_rate=0.2": ["b1"]}


def test_several_hyper_parameters_may_differ() -> None:
    assert grouped(RUNS, "seed, learning_rate") == {"all": ["a1", "a2", "b1", "other"]}
    assert grouped(RUNS, "group,seed") == {
        "learning_rate=0.1": ["a1", "a2"],
        "learning_rate=0.2": ["b1"],
    }
    assert grouped({"a": {"seed": 1, "lr": 1}, "b": {"seed": 1}}, "seed") == {
        "lr=1": ["a"],
        "lr=none": ["b"],
    }


def test_values_that_read_alike_are_two_groups() -> None:
    rates = {"a": 1, "b": "1", "c": 1, "d": 2, "e": "none"}
    runs = {run: {"seed": 1, "lr": rate} for run, rate in rates.items()} | {"f": {"seed": 2}}
    assert grouped(runs, "seed") == {
        "lr=1": ["a", "c"],
        "lr='1'": ["b"],
        "lr=2": ["d"],
        "lr='none'": ["e"],
        "lr=None": ["f"],
    }
    two = {run: runs[run] for run in "ab"}
    assert grouped(two, "seed") == {"lr=1": ["a"], "lr='1'": ["b"]}


def test_runs_state_their_group() -> None:
    assert grouped(RUNS, "group") == {"a": ["a1", "a2"], "b": ["b1"]}


@pytest.mark.parametrize("by", ["sed", "", "seed,x", "auc"])
def test_an_unknown_hyper_parameter_is_an_error_with_the_known_ones(by: str) -> None:
    with pytest.raises(ArgumentError, match=r"they have learning_rate, seed, network, group"):
        grouped(RUNS, by)


def test_without_a_lineage_there_are_no_groups() -> None:
    with pytest.raises(ArgumentError, match="there is no lineage"):
        grouped({"run": {}}, "seed")


def test_a_band_has_mean_and_spread_of_those_that_have_values() -> None:
    curves = [
        Curve(np.array([0, 2, 4]), np.array([1.0, 3.0, 5.0])),
        Curve(np.array([1, 3]), np.array([4.0, 6.0])),
        Curve(np.array([1, 2]), np.array([np.nan, np.inf])),
    ]
    found = band(curves)
    assert found.places.tolist() == [0, 1, 2, 3, 4]
    assert found.runs.tolist() == [1, 2, 2, 2, 1]
    assert found.mean.tolist() == [1, 3, 4, 5, 5]
    assert found.least.tolist() == [1, 2, 3, 4, 5]
    assert found.greatest.tolist() == [1, 4, 5, 6, 5]
    np.testing.assert_array_equal(found.std, [np.nan, 2**0.5, 2**0.5, 2**0.5, np.nan])
    assert band(curves, 3).places.tolist() == [0, 2, 4]
    below = band([Curve(places, -values) for places, values in curves])
    assert below.greatest.tolist() == [-1, -2, -3, -4, -5]


def test_a_band_without_values_is_empty() -> None:
    assert len(band([Curve(np.array([1]), np.array([np.nan]))]).places) == 0
