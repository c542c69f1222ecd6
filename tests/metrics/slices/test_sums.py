"""Sums by slice: each is that of its own examples, and they add up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.served import Comparison
from rec_summary.metrics.slices.report import auc_standard_error
from rec_summary.metrics.slices.states import Slicing
from rec_summary.metrics.slices.sums import (
    FIELDS,
    SERVED_EXAMPLES,
    WEIGHT,
    WEIGHT_SQUARES,
    ColumnSums,
    Moments,
    ValueSums,
    areas,
    calibration_of,
    normalised_entropy_of,
)
from rec_summary.metrics.state import restore


def batch(
    scores: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    served: np.ndarray | None = None,
    negative_rate: float = 1.0,
) -> Moments:
    clicks = clean(scores, labels, weights)
    compared = None if served is None else Comparison.of(clicks, served, negative_rate)
    return Moments.of(clicks, *LogLoss().terms(clicks), compared)


def slicing(names: np.ndarray) -> Slicing:
    values, codes = np.unique(names, return_inverse=True)
    return Slicing(codes.reshape(names.shape).astype(np.intp), values.tolist())


def counted(sums: ValueSums, names: list[str]) -> ColumnSums:
    """Counts one example of each name; returns the interval."""
    size = len(names)
    sums.count(batch(np.full(size, 0.5), np.zeros(size)), slicing(np.array(names)))
    return sums.end_interval(detailed=False)


def stream(seed: int, size: int, values: int = 9) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    scores = random.random(size)
    names = (random.zipf(1.4, size) % values).astype(np.str_)
    return names, scores, random.random(size) < scores, random.random(size)


def by_field(part: ColumnSums) -> dict[str, dict[str, float]]:
    return {
        value: dict(zip(FIELDS, row.tolist(), strict=True))
        for value, row in zip(part.values, part.sums, strict=True)
    }


def test_each_sum_is_that_of_its_own_examples() -> None:
    names, scores, labels, weights = stream(1, 400)
    sums = ValueSums()
    sums.count(batch(scores, labels, weights), slicing(names))
    found = by_field(sums.end_interval(detailed=True))
    assert set(found) == set(names.tolist())
    rounded = scores.astype(np.float32).astype(np.float64)
    weights = np.rint(weights * 2**20) / 2**20
    losses = -np.log(np.where(labels, rounded, 1 - rounded))
    for name, own in found.items():
        w, y, p, loss = (each[names == name] for each in (weights, labels, rounded, losses))
        assert dict(list(own.items())[:SERVED_EXAMPLES]) == pytest.approx(
            {
                "examples": len(w),
                "weight": w.sum(),
                "clicks": (w * y).sum(),
                "predicted": (w * p).sum(),
                "loss": (w * loss).sum(),
                "weight_squares": (w**2).sum(),
                "click_squares": (w**2 * y).sum(),
                "squared_loss_weights": (w**2 * loss).sum(),
                "loss_squares": (w**2 * loss**2).sum(),
                "click_losses": (w**2 * loss * y).sum(),
                "error_squares": (w**2 * (p - y) ** 2).sum(),
            }
        )


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_the_sums_of_served_scores_are_those_of_the_original_traffic(
    sliced: bool, rate: float
) -> None:
    names, scores, labels, weights = stream(1, 400)
    served = np.random.default_rng(2).random(400)
    served[:9] = [np.nan, -0.1, 1.1, np.inf, 0, 1, 0, 1, 0.5]
    sums = ValueSums()
    moments = batch(scores, labels, weights, served, rate)
    sums.count(moments, slicing(names) if sliced else None)
    found = by_field(sums.end_interval(detailed=False))
    scores, q = (each.astype(np.float32).astype(np.float64) for each in (scores, served))
    odds = scores / (1 - scores) * rate
    p = odds / (1 + odds)
    v = np.rint(weights * 2**20) / 2**20
    v = np.where(labels, v, v / rate)
    clipped = (np.clip(each, 1e-7, 1 - 1e-7) for each in (p, q))
    one, other = (-np.log(np.where(labels, each, 1 - each)) for each in clipped)
    fields = {
        "served_examples": np.ones(400),
        "served_weight": v,
        "served_clicks": v * labels,
        "compared_loss": v * one,
        "served_loss": v * other,
        "served_weight_squares": v**2,
        "loss_differences": v**2 * (one - other),
        "loss_difference_squares": v**2 * (one - other) ** 2,
        "compared_predicted": v * p,
        "served_predicted": v * q,
        "score_difference_squares": v**2 * (p - q) ** 2,
    }
    for name, own in found.items():
        chosen = (served >= 0) & (served <= 1) & ((names == name) | (not sliced))
        expected = {field: numbers[chosen].sum() for field, numbers in fields.items()}
        assert {field: own[field] for field in fields} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_soft_labels_are_compared_as_whole_examples(rate: float) -> None:
    labels, served = np.array([0.25, 1.0, 0.0]), np.array([0.5, 0.5, np.nan])
    sums = ValueSums()
    sums.count(batch(np.array([0.2, 0.9, 0.1]), labels, None, served, rate))
    own = by_field(sums.end_interval(detailed=False))[""]
    others, clicks = np.array([0.75, 0]) / rate, np.array([0.25, 1])
    weights, scores = others + clicks, np.array([0.2, 0.9])
    scores = rate * scores / (rate * scores + 1 - scores)
    new, old = (-(clicks * np.log(p) + others * np.log1p(-p)) for p in (scores, np.full(2, 0.5)))
    expected = {
        "served_examples": 2,
        "served_weight": weights.sum(),
        "served_clicks": 1.25,
        "compared_loss": new.sum(),
        "served_loss": old.sum(),
        "served_weight_squares": weights @ weights,
        "loss_differences": weights @ (new - old),
        "loss_difference_squares": (new - old) @ (new - old),
        "compared_predicted": weights @ scores,
        "served_predicted": weights.sum() / 2,
        "score_difference_squares": weights**2 @ (scores - 0.5) ** 2,
    }
    assert {name: own[name] for name in expected} == pytest.approx(expected, rel=1e-5)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.lists(st.integers(1, 120), max_size=6))
def test_sums_do_not_depend_on_the_batches(seed: int, sizes: list[int]) -> None:
    names, scores, labels, weights = stream(seed, 300, 40)
    whole, parts = ValueSums(4), ValueSums(4)
    whole.count(batch(scores, labels, weights), slicing(names))
    bounds = [0, *np.minimum(np.cumsum(sizes, dtype=int), 300).tolist(), 300]
    for start, stop in itertools.pairwise(bounds):
        at = slice(start, stop)
        if stop > start:
            parts.count(batch(scores[at], labels[at], weights[at]), slicing(names[at]))
    one, other = (sums.end_interval(detailed=True) for sums in (whole, parts))
    assert one.values == other.values
    np.testing.assert_allclose(one.sums, other.sums, rtol=1e-12)
    assert one.orders is not None
    assert other.orders is not None
    np.testing.assert_array_equal(one.orders, other.orders)


def test_the_most_frequent_values_have_sums_of_their_own() -> None:
    names = ["a"] * 5 + ["b"] * 3 + ["c"] * 2 + ["d"]
    part = counted(ValueSums(2), names)
    assert part.values == ["a", "b", "other"]
    assert part.sums[:, 0].tolist() == [5, 3, 3]


def test_a_value_keeps_its_place_until_another_has_twice_as_many_examples() -> None:
    sums = ValueSums(1)
    assert counted(sums, ["a", "a"]).values == ["a"]
    assert counted(sums, ["b", "b", "b"]).values == ["other"]
    assert counted(sums, ["a"]).values == ["a"]
    assert counted(sums, ["b"] * 9).values == ["b"]
    assert counted(sums, ["a", "b"]).values == ["b", "other"]


def test_an_example_counts_once_in_each_of_its_values() -> None:
    codes = np.array([[0, 1], [0, 0], [-1, -1], [1, -1]], np.intp)
    sums = ValueSums()
    sums.count(batch(np.full(4, 0.5), np.ones(4)), Slicing(codes, ["x", "y"]))
    part = sums.end_interval(detailed=False)
    assert dict(zip(part.values, part.sums[:, 0].tolist(), strict=True)) == {"x": 2, "y": 2}


def test_the_whole_task_has_one_value_without_a_name() -> None:
    sums = ValueSums(1)
    sums.count(batch(np.full(3, 0.5), np.ones(3)))
    part = sums.end_interval(detailed=True)
    assert part.values == [""]
    assert part.sums[0, 0] == 3


def test_orders_gather_until_a_detailed_report() -> None:
    sums = ValueSums()
    assert counted(sums, ["a"]).orders is None
    sums.count(batch(np.array([0.2, 0.2]), np.array([0, 1])), slicing(np.array(["a", "b"])))
    part = sums.end_interval(detailed=True)
    assert part.orders is not None
    assert {
        value: order.sum(axis=1).tolist()
        for value, order in zip(part.values, part.orders, strict=True)
    } == {"a": [2, 0], "b": [0, 1]}
    assert sums.end_interval(detailed=True).values == []


def test_a_value_that_is_called_other_is_not_all_others() -> None:
    part = counted(ValueSums(1), ["other", "other", "b"])
    assert part.values == ["'other'", "other"]


def test_a_soft_label_is_one_example() -> None:
    sums = ValueSums()
    sums.count(batch(np.array([0.5, 0.25]), np.array([0.25, 1.0])))
    own = by_field(sums.end_interval(detailed=False))[""]
    assert (own["examples"], own["weight"], own["clicks"]) == (2, 2, 1.25)


def test_restored_values_keep_their_places() -> None:
    sums = ValueSums(1)
    counted(sums, ["a", "a"])
    restored = restore("ValueSums", sums.arrays())
    assert isinstance(restored, ValueSums)
    names = ["b", "b", "b", "a", "a"]
    assert counted(restored, names).values == ["a", "other"]
    assert counted(ValueSums(1), names).values == ["b", "other"]


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_areas_are_those_of_all_scores(scale: float) -> None:
    random = np.random.default_rng(3)
    scores = scale * random.beta(2, 5, 40_000)
    labels = random.random(40_000) < scores
    sums, exact = ValueSums(), ClickQuality(4096)
    sums.count(batch(scores, labels))
    exact.update(scores, labels)
    part = sums.end_interval(detailed=True)
    assert part.orders is not None
    area, error, numbers = areas(part.orders, part.sums.T)
    assert numbers.tolist() == [[len(labels) - labels.sum(), labels.sum()]]
    # What is within a cell is small beside chance.
    assert area[0] == pytest.approx(roc_auc_score(labels, scores), abs=max(5e-4, error[0] / 20))
    assert error[0] == pytest.approx(auc_standard_error(exact), rel=0.01)


def test_there_is_no_area_without_clicks() -> None:
    orders = np.zeros((1, 2, 5))
    orders[0, 0, 2] = 3
    sums = np.zeros((len(FIELDS), 1))
    sums[[WEIGHT, WEIGHT_SQUARES]] = 3
    area, error, _ = areas(orders, sums)
    assert np.isnan([*area, *error]).all()


def test_scores_of_0_and_1_have_cells() -> None:
    sums = ValueSums()
    sums.count(batch(np.array([0.0, 1.0, 0.5]), np.array([0, 1, 0])))
    part = sums.end_interval(detailed=True)
    assert part.orders is not None
    places = np.argwhere(part.orders[0])
    assert places[:, 1].tolist() == [0, (part.orders.shape[2] - 1) // 2, part.orders.shape[2] - 1]


def test_there_is_no_area_of_scores_that_are_nearly_the_same() -> None:
    random = np.random.default_rng(0)
    sums = ValueSums()
    sums.count(batch(0.3 + 1e-4 * random.random(1000), random.random(1000) < 0.3))
    part = sums.end_interval(detailed=True)
    assert part.orders is not None
    area, error, _ = areas(part.orders, part.sums.T)
    assert np.isnan([*area, *error]).all()


def test_ratios_of_sums_are_those_of_the_examples() -> None:
    _, scores, labels, weights = stream(4, 500)
    sums, loss = ValueSums(), LogLoss()
    sums.count(batch(scores, labels, weights))
    loss.update(scores, labels, weights)
    part = sums.end_interval(detailed=False).sums.T
    assert calibration_of(part) == pytest.approx([loss.calibration()])
    assert normalised_entropy_of(part) == pytest.approx([loss.normalised_entropy()])
    nothing = np.zeros((len(FIELDS), 1))
    assert np.isnan([calibration_of(nothing), normalised_entropy_of(nothing)]).all()
