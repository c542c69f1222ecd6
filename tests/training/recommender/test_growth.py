"""Tables that grow and features that break, as the metrics of a rank record them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mindspore")

from rec_summary import Advanced, Feature, RecommenderMetrics
from rec_summary.metrics.report import Detail, read
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join

ROWS = 500
OPTIONS = RecommenderMetrics(
    ids={"user": 0, "film": 1},
    hashed_ids=["user"],
    features={
        "age": Feature("age", default=-1, low=0, high=120),
        "price": Feature("price", default=0, low=0),
        "country": Feature("country", default="unknown"),
        "plain": "age",
    },
    detail=True,
    advanced=Advanced(reference_examples=50),
    throughput=False,
    host=False,
)


def batch(seed: int, size: int = 64) -> StepInputs:
    random = np.random.default_rng(seed)
    price = random.normal(size=size).astype(np.float32)
    price[random.random(size) < 0.2] = np.nan
    price[:3] = 0
    values = {
        ("input", 0): random.integers(0, ROWS, size),
        ("input", 1): random.integers(0, 2**60, size),
        ("name", "age"): random.choice([-1, 200, 20, 30, 40], size),
        ("name", "price"): price,
        ("name", "country"): random.choice(["DE", "FR", "unknown", ""], size),
    }
    return StepInputs(values, size, 0.1, 0.0, 0.0)


def updated(rank: RankMetrics, seeds: range) -> dict[str, float]:
    troubles = Troubles()
    rank.update(join([batch(seed) for seed in seeds], rank.places, troubles))
    found = read(rank.end_interval(), Detail()).scalars
    assert troubles.counts == {}
    return {tag.removeprefix("recommender/"): number for tag, number in found.items()}


def ranked(troubles: Troubles) -> RankMetrics:
    return ranked_with(OPTIONS, troubles)


def ranked_with(options: RecommenderMetrics, troubles: Troubles) -> RankMetrics:
    return RankMetrics(options, {"user": ROWS, "film": None}, troubles)


def whole(seeds: range, place: tuple[str, object]) -> np.ndarray:
    return np.concatenate([batch(seed).values[place] for seed in seeds])


def test_the_numbers_of_tables_are_those_of_their_ids() -> None:
    troubles = Troubles()
    rank = ranked(troubles)
    updated(rank, range(3))
    found = updated(rank, range(3, 5))
    before = set(whole(range(3), ("input", 0)).tolist())
    now = whole(range(3, 5), ("input", 0))
    new = len(set(now.tolist()) - before)
    assert found["table/user/window/new_rows"] == new
    assert found["table/user/window/new_share"] == new / len(now)
    last = batch(4).values["input", 0]
    assert found["table/user/window/different_share"] == len(np.unique(last)) / len(last)
    # Of a table of open size, the number of rows is an estimate.
    assert found["table/film/window/new_share"] == pytest.approx(1, abs=0.05)
    touched = len(before | set(now.tolist()))
    assert found["table/user/hashed_ids"] == pytest.approx(
        math.log1p(-touched / ROWS) / math.log1p(-1 / ROWS)
    )
    assert 0 < found["table/user/colliding_share"] < 1
    assert "table/film/colliding_share" not in found
    # A row's age is 0 or the examples of the second interval.
    ages = [number for tag, number in found.items() if tag.startswith("table/user/row_age/")]
    assert ages
    assert set(ages) <= {0, 128}
    assert troubles.counts == {}


def test_a_feature_without_numbers_costs_no_other_drift() -> None:
    troubles = Troubles()
    rank = ranked_with(replace(OPTIONS, features={"age": "age", "price": "price"}), troubles)
    for seed, price in enumerate([np.nan, np.nan, 2.5]):
        values = {**batch(seed).values, ("name", "price"): np.full(64, price)}
        rank.update(join([StepInputs(values, 64, 0.1, 0.0, 0.0)], rank.places, troubles))
    assert troubles.counts == {}
    found = read(rank.end_interval(), Detail()).scalars
    assert found["recommender/drift/psi/age"] >= 0
    assert "recommender/drift/psi/price" not in found  # the reference has none


def test_the_shares_of_features_are_those_of_their_values() -> None:
    found = updated(ranked(Troubles()), range(5))
    age, price, country = (whole(range(5), ("name", name)) for name in ("age", "price", "country"))
    expected = {
        "age/missing_share": 0,
        "age/default_share": np.mean(age == -1),
        "age/out_of_range_share": np.mean((age < 0) | (age > 120)),
        "age/different_values": 5,
        "price/missing_share": np.mean(np.isnan(price)),
        "price/default_share": np.mean(price == 0),
        "price/out_of_range_share": np.mean(price < 0),
        "price/different_values": len(np.unique(price[~np.isnan(price)])),
        "country/missing_share": np.mean(country == ""),
        "country/default_share": np.mean(country == "unknown"),
        "country/out_of_range_share": 0,
        "plain/default_share": 0,
    }
    shown = {name: found[f"feature/{name}"] for name in expected}
    assert shown == pytest.approx(expected, rel=0.05)


def test_a_restarted_rank_goes_on_and_one_without_a_state_of_an_interval_begins_it() -> None:
    troubles = Troubles()
    unbroken, first, second = (ranked(troubles) for _ in range(3))
    updated(unbroken, range(3))
    updated(first, range(3))
    stored = {key: each.copy() for key, each in first.states().items()}
    second.restore(first.states(), first.examples)
    expected = updated(unbroken, range(3, 5))
    assert updated(second, range(3, 5)) == expected
    third = ranked(troubles)
    rest = {key: each for key, each in stored.items() if not key.startswith("turnover/")}
    third.restore(rest, first.examples)
    found = updated(third, range(3, 5))
    for table in ("user", "film"):
        for metric in ("new_rows", "new_share", "different_share"):
            tag = f"table/{table}/window/{metric}"
            assert found[tag] == expected[tag]
    assert troubles.counts == {}


@pytest.mark.parametrize("group", ["ages", "feature", "cardinality", "table"])
def test_a_restart_without_a_state_that_the_settings_ask_for_is_refused(group: str) -> None:
    first, second = (ranked(Troubles()) for _ in range(2))
    updated(first, range(3))
    stored = {key: each for key, each in first.states().items() if key.split("/")[0] != group}
    with pytest.raises(ValueError, match="the stored states is invalid"):
        second.restore(stored, first.examples)
    assert second.examples == 0
    assert updated(second, range(3)) == updated(ranked(Troubles()), range(3))


@pytest.mark.parametrize("hashed", [(), ("user", "film")])
def test_a_restarted_rank_may_have_other_hashed_ids(hashed) -> None:
    troubles = Troubles()
    options = replace(OPTIONS, hashed_ids=hashed)
    first, unbroken = ranked(troubles), ranked_with(options, troubles)
    for rank in (first, unbroken):
        updated(rank, range(3))
        rank.update(join([batch(3)], rank.places, troubles))
    second = ranked_with(options, troubles)
    second.restore(first.states(), first.examples)
    assert second.examples == first.examples
    found, expected = (updated(rank, range(4, 5)) for rank in (second, unbroken))
    assert found.keys() == expected.keys()
    # Of the interval before, only how many ids of a batch are different is lost.
    assert {tag for tag in found if found[tag] != expected[tag]} <= {
        "table/user/window/different_share"
    }


def test_a_reference_of_another_number_of_examples_is_reported_and_the_rest_goes_on() -> None:
    troubles = Troubles()
    rank = ranked_with(replace(OPTIONS, advanced=Advanced(reference_examples=500)), Troubles())
    updated(rank, range(3))
    second = ranked_with(replace(OPTIONS, advanced=Advanced(reference_examples=1000)), troubles)
    second.restore(rank.states(), rank.examples)
    assert second.examples == rank.examples
    assert troubles.counts == {"recommender metrics: the drift of an earlier run": 1}


def test_invalid_features_and_tables_are_refused() -> None:
    for wrong in ({"low": 2, "high": 1}, {"low": math.nan}, {"default": ()}, {"high": "1"}):
        with pytest.raises((TypeError, ValueError), match="is invalid"):
            Feature("x", **wrong)
    with pytest.raises(ValueError, match="hashed_ids is invalid"):
        RecommenderMetrics(ids={"user": 0}, hashed_ids=["film"])
    with pytest.raises(TypeError, match=r"features\['a'\]"):
        RecommenderMetrics(features={"a": 1.5})
