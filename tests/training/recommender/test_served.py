"""Scores that were served, beside those of the training: options, tags, slices, restarts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from rec_summary import RecommenderMetrics, Slice, SummaryRecord, Task, load
from rec_summary.metrics.report import Detail, MetricValues, read
from rec_summary.metrics.state import kind_of, restore
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join
from tests.support.laws import assert_equal_states, assert_three_parts

SIZE = 2000
OPTIONS = RecommenderMetrics(
    predictions=1, labels=2, served=0, model_age="age", last=(4 * SIZE,), host=False
)
DEFAULT = {
    *("served_ne_change", "served_ne_change_standard_error"),
    *("served_auc_gain", "served_auc_gain_standard_error"),
    *("served_calibration", "served_skewed_share"),
}


def sigmoid(odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-odds))


def batch(seed: int) -> StepInputs:
    """Examples whose served score is worse, and much worse from a model of a day ago."""
    random = np.random.default_rng(seed)
    truth = random.normal(-1, 1, SIZE)
    age = np.where(np.arange(SIZE) < SIZE / 2, 100.0, 90_000.0)
    noise = np.where(age < 3600, 0.5, 1.5) * random.normal(size=SIZE)
    values = {
        ("output", 1): sigmoid(truth).astype(np.float32),
        ("output", 2): (random.random(SIZE) < sigmoid(truth)).astype(np.float32),
        ("input", 0): sigmoid(truth + noise),
        ("name", "age"): age,
    }
    return StepInputs(values, SIZE, 0.1, 0.0, 1.7e9)


def rank_of(options: RecommenderMetrics, *batches: StepInputs, rank: int = 0) -> RankMetrics:
    troubles = Troubles()
    found = RankMetrics(options, {}, troubles, rank)
    for each in batches:
        found.update(join([each], found.places, troubles))
    assert troubles.counts == {}
    return found


def values_of(rank: RankMetrics, *, curves: bool = False) -> MetricValues:
    values = read(rank.end_interval(), rank.detail(curves=curves))
    rank.mark_lost(values)
    return values


def scalars(rank: RankMetrics) -> dict[str, float]:
    found = values_of(rank).scalars
    return {tag.removeprefix("recommender/"): each for tag, each in found.items()}


def test_a_handful_of_tags_compares_both_scores() -> None:
    window = f"last_{4 * SIZE}"
    found = scalars(rank_of(OPTIONS, batch(1), batch(2)))
    own = {tag.rpartition("/")[0] for tag in found if tag.startswith("served_")}
    assert own == DEFAULT
    change, gain = (found[f"{name}/{window}"] for name in ("served_ne_change", "served_auc_gain"))
    assert change < -5 * found[f"served_ne_change_standard_error/{window}"] < 0
    assert gain > 5 * found[f"served_auc_gain_standard_error/{window}"] > 0
    detailed = values_of(rank_of(replace(OPTIONS, detail=True), batch(1)), curves=True)
    assert "recommender/served_score_difference/lifetime" in detailed.scalars
    edges, weights = detailed.histograms["recommender/served_odds_differences/lifetime"]
    assert (len(edges), weights.sum()) == (len(weights) + 1, SIZE)
    without = scalars(rank_of(replace(OPTIONS, served=None, model_age=None), batch(1)))
    assert not [tag for tag in without if "served" in tag]


def test_the_age_of_the_served_model_gives_slices() -> None:
    found = scalars(rank_of(OPTIONS, batch(1), batch(2)))
    new, old = (
        found[f"slice/served_model_age={age}/served_ne_change/last_{4 * SIZE}"]
        for age in ("a minute to an hour", "a day to a week")
    )
    assert old < 2 * new < 0
    worst = f"slice/served_model_age/served_ne_change_worst/last_{4 * SIZE}"
    assert found[worst] == new


def test_a_slice_has_the_metrics_that_it_names() -> None:
    slices = {"age": Slice("age", edges=(3600,), metrics=("served_auc_gain",))}
    found = scalars(rank_of(replace(OPTIONS, slices=slices), batch(1)))
    own = {tag.split("/")[2] for tag in found if tag.startswith("slice/age")}
    assert own == {f"served_auc_gain{end}" for end in ("", "_worst", "_gap", "_gap_error")}
    with pytest.raises(ValueError, match="metrics of slices"):
        replace(OPTIONS, slices=slices, served=None)


def test_a_restart_goes_on_and_ranks_are_merged() -> None:
    first, other = rank_of(OPTIONS, batch(1), batch(2)), rank_of(OPTIONS, batch(3), rank=1)
    stored = {key: restore(kind_of(each), each.arrays()) for key, each in first.states().items()}
    again = RankMetrics(OPTIONS, {}, Troubles())
    again.restore(stored, 2 * SIZE)
    for each in (first, again):
        each.update(join([batch(4)], each.places, Troubles()))
    assert scalars(again) == scalars(first)
    key = f"served/last_{4 * SIZE}"
    one, two = (rank.end_interval()[key] for rank in (first, other))
    whole = one.copy()
    whole.merge(two)
    two.merge(one)
    assert_equal_states(whole, two)
    numbers = read({key: whole}, Detail()).scalars
    assert numbers[f"recommender/served_skewed_share/last_{4 * SIZE}"] > 0.5
    assert whole.served.loss.weight == 4 * SIZE


def test_the_settings_of_tasks_without_served_scores_are_those_of_earlier_versions() -> None:
    plain = replace(OPTIONS, served=None, model_age=None)
    before, now = (
        json.loads(RankMetrics(options, {}, Troubles()).settings) for options in (plain, OPTIONS)
    )
    names = {"kind", "logits", "missing", "negative_rate", "mask", "users", "lists"}
    assert before["tasks"][""].keys() == names
    assert now["tasks"][""] == {**before["tasks"][""], "served": True}
    assert before["slices"] == {}


def test_a_network_that_predicts_nan_has_no_comparison() -> None:
    lost = batch(2)
    lost.values["output", 1][:] = np.nan
    rank = rank_of(OPTIONS, batch(1))
    rank.update(join([lost], rank.places, Troubles()))
    found = scalars(rank)
    for name in ("served_ne_change", "served_auc_gain"):
        assert math.isnan(found[f"{name}/last_{4 * SIZE}"])
        assert math.isnan(found[f"{name}_standard_error/last_{4 * SIZE}"])
        assert math.isnan(found[f"slice/served_model_age/{name}_worst/last_{4 * SIZE}"])


def test_log_odds_are_compared_with_served_probabilities() -> None:
    odds = batch(1)
    scores = odds.values["output", 1].astype(float)
    odds.values["output", 1] = np.log(scores) - np.log1p(-scores)
    one = scalars(rank_of(OPTIONS, batch(1)))
    other = scalars(rank_of(replace(OPTIONS, logits=True), odds))
    for tag, number in one.items():
        if tag.startswith("served_"):
            assert other[tag] == pytest.approx(number, rel=1e-4), tag


def test_an_example_without_a_served_score_has_all_other_metrics() -> None:
    part = batch(1)
    part.values["input", 0][: SIZE // 4] = np.nan
    found, every = (scalars(rank_of(OPTIONS, each)) for each in (part, batch(1)))
    window = f"last_{4 * SIZE}"
    assert found.pop(f"served_missing/{window}") == 0.25
    for tag, number in every.items():
        if "served" not in tag and "throughput" not in tag:
            assert found[tag] == number, tag


def test_a_task_most_of_whose_scores_are_missing_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    troubles = Troubles()
    rank = RankMetrics(OPTIONS, {}, troubles)
    odds = batch(1)
    odds.values["input", 0] = np.log(odds.values["input", 0])
    rank.update(join([odds], rank.places, troubles))
    rank.end_interval()
    assert troubles.counts == {"recommender metrics: served scores": 1}
    assert "2,000 of 2,000 examples" in caplog.text
    assert "a served score is a probability, also with logits=True" in caplog.text


@pytest.mark.parametrize("name", ["served", "model_age"])
def test_only_a_task_of_clicks_has_them(name: str) -> None:
    for kind in ("ratings", "classes", "retrieval"):
        with pytest.raises(ValueError, match=f"{name} is invalid") as caught:
            Task(1, 2, kind=kind, **{name: "q"})
        assert_three_parts(caught)
    for options in ({"tasks": {"ctr": Task(1, 2)}}, {}):
        with pytest.raises(ValueError, match=f"{name} is invalid") as caught:
            RecommenderMetrics(**options, **{name: "q"})
        assert_three_parts(caught)


def test_all_tasks_have_one_age_of_the_served_model_and_a_slice_has_another_name() -> None:
    tasks = {"a": Task(1, 2, model_age="x"), "b": Task(1, 2, model_age="x"), "c": Task(3, 4)}
    RecommenderMetrics(tasks=tasks)
    for wrong, slices in ({"d": Task(3, 4, model_age=7)}, {}), ({}, {"served_model_age": "z"}):
        with pytest.raises(ValueError, match="is invalid") as caught:
            RecommenderMetrics(tasks=tasks | wrong, slices=slices)
        assert_three_parts(caught)


def test_a_run_has_the_comparison_by_slice_as_a_table(tmp_path: Path) -> None:
    options: dict[str, Any] = {"predictions": "p", "labels": "y", "slices": {"country": "c"}}
    metrics = RecommenderMetrics(**options, served="q", report_steps=1)
    with SummaryRecord(tmp_path / "run", recommender=metrics) as record:
        for step in range(1, 4):
            part = batch(step).values
            p, y, q = (part[place] for place in (("output", 1), ("output", 2), ("input", 0)))
            q[:100] = np.nan
            record.observe(p=p, y=y, q=q, c=np.arange(SIZE) % 3)
            record.record(step)
            record.flush()
    table = load(tmp_path).slices(total=True).set_index(["column", "value"])
    assert (table.served_examples.loc["country"].sum(), len(table)) == (3 * SIZE - 300, 4)
    assert (table.ne_change < -3 * table.ne_change_error).all()
    assert (table.ne_change_error > 0).all()
    assert table.compared_calibration.loc["", ""] == pytest.approx(1, abs=0.06)
    assert table.served_calibration.loc["", ""] > table.compared_calibration.loc["", ""]
