"""What one rank counts of a feature."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rec_summary.metrics import tags
from rec_summary.training.recommender.columns import Feature
from rec_summary.training.recommender.counting.meters import FeatureMeter

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
