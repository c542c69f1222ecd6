from __future__ import annotations

from functools import cache

import numpy as np
import pytest

pytest.importorskip("scipy")

from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from rec_summary.metrics.drift import (
    LABEL,
    Drift,
    ReferenceBuilder,
    reference_arrays,
    reference_from_arrays,
)
from tests.support.laws import assert_counts_add_up, assert_equal_states, refused


@cache
def batch(
    seed: int, size: int = 400, rate: float = 0.3, shift: float = 0.0
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        LABEL: (random.random(size) < rate).astype(np.float32),
        "prediction": 1 / (1 + np.exp(-random.normal(shift, 1, size))),
        "country": random.zipf(1.5, size) % 100,
    }


def built() -> ReferenceBuilder:
    builder = ReferenceBuilder(4_000)
    for seed in range(100, 110):
        builder.add(batch(seed))
    assert builder.complete
    return builder


REFERENCE = built().reference()


def state(*seeds: int, **changes: float) -> Drift:
    found = Drift(REFERENCE)
    for seed in seeds:
        found.add(batch(seed, **changes))
    return found


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=3, max_size=3))
def test_laws(parts: list[list[int]]) -> None:
    assert_counts_add_up(lambda part: state(*part), parts)


def test_without_drift_there_is_what_chance_gives() -> None:
    found = state(*range(10))
    report = found.report()
    for name, window in found.window.items():
        assert window.counts[:-1].sum() == 4_000
        assert report[f"drift/psi/{name}"] < 3 * report[f"drift/psi_by_chance/{name}"]
        assert report[f"drift/js/{name}"] < report[f"drift/psi/{name}"]


def test_drift_is_seen_where_it_is() -> None:
    found = state(*range(10), rate=0.4, shift=0.7).report()
    assert found["drift/psi/label"] > 10 * found["drift/psi_by_chance/label"]
    assert found["drift/psi/prediction"] > 0.25
    assert found["drift/psi/country"] < 3 * found["drift/psi_by_chance/country"]


def test_the_rate_of_labels() -> None:
    found = state(1).report()
    labels = batch(1)[LABEL]
    assert found["drift/label_rate"] == pytest.approx(labels.mean())
    first = np.concatenate([batch(seed)[LABEL] for seed in range(100, 110)])
    assert found["drift/reference_label_rate"] == pytest.approx(first.mean())


def test_missing_values_are_counted_and_left_out() -> None:
    found = Drift(REFERENCE)
    found.add({"prediction": [0.5, np.nan, 0.5, np.nan]})
    assert found.window["prediction"].counts[:-1].sum() == 2
    assert found.report()["drift/missing_share/prediction"] == 0.5


def test_columns_may_be_missing_or_more() -> None:
    found = Drift(REFERENCE)
    found.add({"other": [1, 2]})
    report = found.report()
    assert np.isnan([report[f"drift/psi/{name}"] for name in REFERENCE]).all()
    assert np.isnan(report["drift/label_rate"])


def test_the_reference_is_the_first_examples() -> None:
    builder = ReferenceBuilder(500)
    assert builder.add(batch(0)) == 400
    assert not builder.complete
    assert builder.add(batch(1)) == 100
    assert builder.complete
    assert builder.add(batch(2)) == 0
    whole = ReferenceBuilder(500)
    whole.add({name: np.r_[values, batch(1)[name]] for name, values in batch(0).items()})
    for name, distribution in builder.reference().items():
        assert distribution.counts[:-1].sum() == 500
        assert_equal_states(distribution, whole.reference()[name])


def test_a_stored_reference() -> None:
    again = reference_from_arrays(reference_arrays(REFERENCE))
    assert list(again) == list(REFERENCE)
    for name, distribution in again.items():
        assert_equal_states(distribution, REFERENCE[name])
    assert reference_from_arrays(reference_arrays({})) == {}


def test_another_reference_is_not_merged() -> None:
    other = {name: distribution.copy() for name, distribution in REFERENCE.items()}
    other["country"].add([1])
    refused(ValueError, "The reference of 'country'", state(1).merge, Drift(other))
    del other["country"]
    refused(ValueError, "The columns", state(1).merge, Drift(other))


def test_states_of_another_kind_or_number_of_examples_are_not_merged() -> None:
    refused(ValueError, "kind", state().check_mergeable, built())
    refused(ValueError, "examples", ReferenceBuilder(4).check_mergeable, ReferenceBuilder(5))
    refused(ValueError, "examples is invalid", ReferenceBuilder, 0)


def test_a_reference_of_one_example_is_built_after_a_restart() -> None:
    """The values of a column may have several axes, the first of which is that of the examples."""
    builder = ReferenceBuilder.from_arrays(ReferenceBuilder(1).arrays())
    assert not builder.complete
    assert builder.add({"ids": np.array([[1, 2, 2], [1, 1, 1]]), "age": np.zeros(2)}) == 1
    assert builder.complete
    found = {name: bins.counts.sum() for name, bins in builder.reference().items()}
    assert found == {"ids": 3, "age": 1}


def test_invalid_columns() -> None:
    builder = ReferenceBuilder(10)
    for wrong in ({}, {"a": [1], "b": [1, 2]}, {"a": 3}):
        refused(ValueError, "columns of one length", builder.add, wrong)
    builder.add({"a": [1]})
    refused(ValueError, "columns is invalid", builder.add, {"b": [1]})


@pytest.mark.parametrize("position", [0, 1])
def test_nothing_is_taken_of_a_batch_with_a_bad_column(position) -> None:
    builder = ReferenceBuilder(100)
    good = {"age": np.arange(50.0), "city": np.array(["a", "b"] * 25, object)}
    bad = good | {"city": np.array(["a", None] * 25, object)}
    for number in range(3):
        if number == position:
            refused(TypeError, "strings is invalid", builder.add, bad, np.ones(50))
        else:
            assert builder.add(good, np.ones(50)) == 50
    assert builder.complete
    reference = builder.reference()
    assert {name: bins.counts.sum() for name, bins in reference.items()} == {
        "age": 100,
        "city": 100,
    }


def test_a_first_batch_that_lacks_a_column_does_not_choose_the_columns() -> None:
    builder = ReferenceBuilder(4)
    assert builder.add({"a": [1.0, 2.0]}, np.ones(2)) == 2
    assert builder.add({"a": [3.0, 4.0], "b": [1, 2]}, np.ones(2)) == 2
    assert not builder.complete
    refused(ValueError, "columns is invalid", builder.add, {"a": [5.0]})
    assert builder.add({"a": [6.0, 7.0], "b": [1, 1]}, np.ones(2)) == 2
    assert {name: bins.counts.sum() for name, bins in builder.reference().items()} == {
        "a": 4,
        "b": 4,
    }


def drift_of(
    first: np.ndarray, then: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, float]:
    """Returns the index of a feature, and what it is by chance."""
    builder = ReferenceBuilder(len(first))
    builder.add({"feature": first})
    found = Drift(builder.reference())
    found.add({"feature": then}, weights)
    report = found.report()
    return report["drift/psi/feature"], report["drift/psi_by_chance/feature"]


def exact_psi(first: np.ndarray, then: np.ndarray) -> float:
    """Returns the index of exact categories, smoothed by one half where one occurred."""
    names, places = np.unique(np.concatenate([first, then]), return_inverse=True)
    sides = [
        np.bincount(part, minlength=names.size) + 0.5
        for part in (places[: first.size], places[first.size :])
    ]
    p, q = (side / side.sum() for side in sides)
    return float(entropy(p, q) + entropy(q, p))


@pytest.mark.parametrize("values", [2, 7, 20, 200])
def test_few_categories_have_no_drift_where_there_is_none(values: int) -> None:
    random = np.random.default_rng(0)
    first, then = (
        random.integers(0, values, 10_000) * 1_000_003,
        random.integers(0, values, 1_000) * 1_000_003,
    )
    found, by_chance = drift_of(first, then)
    assert found < 1.5 * by_chance + 0.005
    assert found == pytest.approx(exact_psi(first, then), rel=1e-9)


def test_drift_of_many_categories_is_not_hidden() -> None:
    random = np.random.default_rng(0)
    shuffled = random.permutation(3_000)
    draws = [np.minimum(random.zipf(1.3, 10_000), 3_000) - 1 for _ in range(3)]
    same, by_chance = drift_of(draws[0], draws[1])
    assert same < 3 * by_chance
    moved, _ = drift_of(draws[0], shuffled[draws[2]])
    assert moved > 0.8 * exact_psi(draws[0], shuffled[draws[2]])


def test_strings_are_categories() -> None:
    names = np.array(["a", "b", "c"])
    random = np.random.default_rng(0)
    first, then = random.integers(0, 3, 1000), random.integers(0, 2, 500)
    assert drift_of(names[first], names[then]) == pytest.approx(drift_of(first, then))


def test_weights_of_single_precision_are_added_without_rounding() -> None:
    random = np.random.default_rng(0)
    reference = ReferenceBuilder(1000)
    reference.add({"feature": random.random(1000)})
    found, exact = Drift(reference.reference()), Drift(reference.reference())
    for _ in range(20):
        values, weights = random.random(64), np.float32(100 * random.random(64))
        found.add({"feature": values}, weights)
        exact.add({"feature": values}, weights.astype(np.float64))
    assert found.window["feature"].counts[-1] == 0  # no value is missing
    restored = Drift.from_arrays(found.arrays())
    assert restored.window["feature"].equals(exact.window["feature"])


def test_drift_heeds_weights() -> None:
    random = np.random.default_rng(0)
    first, then = random.normal(0, 1, 20_000), random.normal(0.5, 1, 20_000)
    # The ratio of the densities: with it, the second sample is one of the first distribution.
    weights = np.exp(0.125 - 0.5 * then)
    unweighted, _ = drift_of(first, then)
    assert unweighted > 0.2
    weighted, by_chance = drift_of(first, then, weights)
    assert weighted < 3 * by_chance
    scaled, _ = drift_of(first, then, 64 * weights)
    assert scaled == pytest.approx(weighted, rel=1e-4)
    kept = then > 0
    by_weight, _ = drift_of(first, then, kept.astype(float))
    left_out, _ = drift_of(first, then[kept])
    assert by_weight == pytest.approx(left_out)


def test_the_weights_of_the_reference() -> None:
    random = np.random.default_rng(0)
    labels, values = random.random(500), random.normal(size=500)
    weights = random.integers(0, 9, 500) / 4
    builder = ReferenceBuilder(400)
    assert not builder.complete
    given = {LABEL: labels.copy(), "feature": values.copy()}
    given_weights = weights.copy()
    builder.add(given, given_weights)
    given["feature"][:] = given_weights[:] = 0  # which are the caller's
    builder = ReferenceBuilder.from_arrays(builder.arrays())
    found = builder.reference()
    expected = np.bincount(labels[:400] >= 0.5, weights[:400])
    assert found[LABEL].counts.tolist() == [*expected, 0]
    edges = np.quantile(values[:400], np.arange(1, 10) / 10)
    places = np.searchsorted(edges, values[:400])
    expected = np.bincount(places, weights[:400])
    assert found["feature"].counts[:-1] == pytest.approx(expected, abs=8)  # of values at an edge
    assert found["feature"].counts.sum() == weights[:400].sum()


def test_columns_with_few_numbers_or_none_have_a_reference() -> None:
    builder = ReferenceBuilder(4)
    nan = np.nan
    columns = {"none": np.full(4, nan), "few": np.array([nan, 1, 2, nan])}
    builder.add(columns, np.array([nan, 1, 1, 1]))
    builder = ReferenceBuilder.from_arrays(builder.arrays())
    found = Drift(builder.reference())
    assert found.reference["few"].counts[:-1].max() == 1  # 1 and 2 have bins of their own
    found.add(columns)
    report = found.report()
    assert report["drift/missing_share/none"] == 1
    assert report["drift/missing_share/few"] == 0.5


def test_arrays_that_no_reference_has_are_refused() -> None:
    builder = ReferenceBuilder(4)
    builder.add({"a": [1.0, 2.0]})
    for wrong in (np.zeros((1, 2)), np.array(["a", "b"])):
        with pytest.raises(ValueError, match=r"values\.0.*numbers"):
            ReferenceBuilder.from_arrays({**builder.arrays(), "values.0": wrong})
    arrays = reference_arrays(REFERENCE)
    with pytest.raises(ValueError, match="different names"):
        reference_from_arrays({**arrays, "columns": arrays["columns"][[0, 1, 1]]})


@pytest.mark.parametrize("weights", [None, np.full(400, 0.5)])
def test_a_reference_goes_on_after_a_restart(weights: np.ndarray | None) -> None:
    whole, broken = ReferenceBuilder(1000), ReferenceBuilder(1000)
    for seed in range(3):
        whole.add(batch(seed), weights)
        broken.add(batch(seed), weights)
        broken = ReferenceBuilder.from_arrays(broken.arrays())
    assert broken.complete
    for name, distribution in whole.reference().items():
        assert_equal_states(distribution, broken.reference()[name])


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_reference_may_begin_after_some_examples(size) -> None:
    values, weights = np.arange(100.0), np.arange(100.0) % 3
    builder, taken = ReferenceBuilder(20, 50), []
    for start in range(0, 100, size):
        part = slice(start, start + size)
        taken.append(builder.add({"x": values[part]}, weights[part]))
        builder = ReferenceBuilder.from_arrays(builder.arrays())
    assert builder.complete
    assert sum(taken) == 70
    expected = ReferenceBuilder(20)
    expected.add({"x": values[50:70]}, weights[50:70])
    assert builder.reference()["x"].equals(expected.reference()["x"])
