"""What one rank counts of a feature, and of drift."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rec_summary.metrics import tags
from rec_summary.training.recommender.columns import Feature
from rec_summary.training.recommender.counting.meters import DriftMeter, FeatureMeter

COUNTRIES = np.array(["DE", "", "unknown", "FR", "", "ü"])


@pytest.mark.parametrize(
    "values",
    [
        COUNTRIES,
        np.char.encode(COUNTRIES, "utf-8"),
        COUNTRIES.astype(object),
        np.char.encode(COUNTRIES, "utf-8").astype(object),
    ],
    ids=["str", "bytes", "objects of str", "objects of bytes"],
)
def test_strings_are_counted_alike_in_every_kind_of_array(values) -> None:
    meter = FeatureMeter(Feature("country", default="unknown"), detail=True)
    meter.add(values)
    states = meter.end_interval()
    counts = states[tags.FEATURE]
    assert (counts.values, counts.missing, counts.default, counts.out_of_range) == (6, 2, 1, 0)
    assert states[tags.CARDINALITY].count() == pytest.approx(5, rel=0.01)


def test_objects_that_are_no_strings_are_an_error() -> None:
    with pytest.raises(TypeError, match=r"objects of NoneType, str'\. Expected: str or bytes"):
        FeatureMeter(Feature("country")).add(np.array(["DE", None], object))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.bool_])
def test_numbers_are_in_range_up_to_both_ends(dtype) -> None:
    meter = FeatureMeter(Feature("age", default=1, low=1, high=2))
    meter.add(np.array([[0, 1, 2, 3]], dtype))
    counts = meter.end_interval()[tags.FEATURE]
    expected = (4, 0, 3, 1) if dtype == np.bool_ else (4, 0, 1, 2)
    assert (counts.values, counts.missing, counts.default, counts.out_of_range) == expected


def test_nan_is_missing_and_neither_out_of_range_nor_a_value() -> None:
    meter = FeatureMeter(Feature("price", low=0), detail=True)
    meter.add(np.array([math.nan, 0.0, -0.0, 0.5, math.nan], np.float32))
    meter.add(np.array([0.5, 0.0]))  # the same in double precision
    states = meter.end_interval()
    counts = states[tags.FEATURE]
    assert (counts.values, counts.missing, counts.default, counts.out_of_range) == (7, 2, 0, 0)
    assert states[tags.CARDINALITY].count() == pytest.approx(2, rel=0.01)


def test_an_interval_begins_empty_and_different_values_are_of_all_intervals() -> None:
    meter = FeatureMeter(Feature("age"), detail=True)
    meter.add(np.array([1, 2]))
    first = meter.end_interval()
    meter.add(np.array([2, 3, 4]))
    second = meter.end_interval()
    assert (first[tags.FEATURE].values, second[tags.FEATURE].values) == (2, 3)
    assert first[tags.CARDINALITY].count() == pytest.approx(2, rel=0.01)
    assert second[tags.CARDINALITY].count() == pytest.approx(4, rel=0.01)


EXAMPLES = 2000  # of a reference


def predictions_of(random: np.random.Generator, part: float) -> np.ndarray:
    """Returns predictions of a network that has learned this part of what there is to learn."""
    return 1 / (1 + np.exp(-(random.normal(size=EXAMPLES) - 2) * part))


def learned(step: int) -> float:
    return 1 - math.exp(-step / 5)


def trained(meter: DriftMeter, random: np.random.Generator, steps: range) -> list[dict[str, float]]:
    """Returns the drift of each step of a training that learns more and more."""
    found = []
    for step in steps:
        columns = {
            "prediction": predictions_of(random, learned(step)),
            "age": random.normal(size=EXAMPLES),
        }
        meter.add(columns, None)
        states = meter.end_interval()
        found.append(states[tags.DRIFT].report() if states else {})
    return found


def test_the_reference_of_predictions_is_of_a_network_that_has_settled() -> None:
    random, meter = np.random.default_rng(0), DriftMeter(EXAMPLES)
    found = trained(meter, random, range(120))
    drift = np.array([each.get("drift/psi/prediction", math.nan) for each in found])
    assert np.isnan(drift[:4]).all()
    assert np.nanmax(drift) < 0.25  # against the first predictions, it is up to 9
    assert np.isfinite(drift[32:]).all()
    ages = [each["drift/psi/age"] for each in found[1:]]
    assert max(ages) < 0.1  # from the second interval on
    # From then on, a shift stays one.
    for _ in range(5):
        meter.add({"prediction": predictions_of(random, 2.0), "age": np.zeros(EXAMPLES)}, None)
        shifted = meter.end_interval()[tags.DRIFT].report()
        assert shifted["drift/psi/prediction"] > 0.25 < shifted["drift/psi/age"]


@pytest.mark.parametrize("stop", [1, 3, 12, 31, 35])
def test_a_restart_does_not_change_the_reference_of_predictions(stop) -> None:
    whole = DriftMeter(EXAMPLES)
    expected = trained(whole, np.random.default_rng(0), range(40))
    random, first, second = np.random.default_rng(0), DriftMeter(EXAMPLES), DriftMeter(EXAMPLES)
    found = trained(first, random, range(stop))
    second.restore(first.states)
    found += trained(second, random, range(stop, 40))
    np.testing.assert_equal(found, expected)
    assert second.states.keys() == whole.states.keys() == {tags.DRIFT}


def test_a_given_reference_is_not_renewed() -> None:
    random, given = np.random.default_rng(0), DriftMeter(EXAMPLES)
    trained(given, random, range(2))
    meter = DriftMeter(EXAMPLES)
    meter.set_reference(given.reference)
    found = trained(meter, random, range(2, 30))
    assert meter.reference is given.reference
    assert found[-1]["drift/psi/prediction"] > 1
    meter.restore(given.states)  # of a training that still looks for its reference
    assert meter.states.keys() == {tags.DRIFT}
