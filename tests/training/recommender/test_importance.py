"""The importance of features in a loop of one's own: it is that of an offline permutation."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary import Importance, RecommenderMetrics, SummaryRecord, Task
from rec_summary.answers.reading import why_of
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.report import Report
from tests.support.training_records import events, scalars

EXAMPLES = 2000
OVER = {"recommender metrics: importance": 1, "recommender metrics: no more passes": 1}
WEIGHTS = {"strong": 2.0, "weak": 0.5, "noise": 0.0}


def batch(random: np.random.Generator, dead: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Returns a batch in which clicks depend on features; the scores are what they should be."""
    columns = {name: random.normal(size=EXAMPLES) for name in WEIGHTS}
    odds = sum(weight * columns[name] for name, weight in WEIGHTS.items()) - 1.0
    labels = (random.random(EXAMPLES) < 1 / (1 + np.exp(-odds))).astype(float)
    for name in dead:
        columns[name] = np.zeros(EXAMPLES)
    return {**columns, "y": labels, "p": scores(columns)}


def scores(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    odds = sum(weight * columns[name] for name, weight in WEIGHTS.items()) - 1.0
    return 1 / (1 + np.exp(-odds))


def auc(values: np.ndarray, labels: np.ndarray) -> float:
    """Returns the area under the ROC curve, from ranks."""
    ranks = values.argsort().argsort() + 1.0
    clicks = labels.sum()
    below = ranks[labels > 0].sum() - clicks * (clicks + 1) / 2
    return float(below / (clicks * (len(labels) - clicks)))


def options(**importance: Any) -> RecommenderMetrics:
    settings = {"every": 1, "budget": 1.0, "predict": scores, **importance}
    return RecommenderMetrics(
        predictions="p", labels="y", report_steps=20, importance=Importance(**settings)
    )


def record(directory: Path, metrics: RecommenderMetrics, steps: int = 40, **more: Any) -> Any:
    random = np.random.default_rng(0)
    dead_from, dead = more.get("dead", (steps + 1, ()))
    with SummaryRecord(directory, recommender=metrics) as recorder:
        for step in range(1, steps + 1):
            columns = batch(random, dead if step >= dead_from else ())
            recorder.observe(**columns)
            end_step(recorder, step)
    return recorder


def end_step(recorder: SummaryRecord, step: int) -> None:
    """Ends a step, and waits until it is counted: these steps take no time of their own."""
    recorder.record(step)
    if step % 10 == 0:
        recorder.flush()


def last(directory: Path, tag: str) -> float:
    return list(scalars(directory, f"recommender/{tag}").values())[-1]


def tables(directory: Path) -> list[Any]:
    return [
        value
        for event in events(directory)
        for value in event.summary.value
        if value.tag.endswith("importance/table")
    ]


def test_the_importance_is_that_of_an_offline_permutation(tmp_path: Path) -> None:
    record(tmp_path, options())
    random = np.random.default_rng(1)
    for name in WEIGHTS:
        lost = []
        for _ in range(40):
            columns = batch(random)
            moved = {**columns, name: random.permutation(columns[name])}
            lost.append(auc(columns["p"], columns["y"]) - auc(scores(moved), columns["y"]))
        error = np.std(lost) * np.sqrt(1 / 20 + 1 / 40)
        assert abs(last(tmp_path, f"importance/{name}") - np.mean(lost)) < 4 * error + 1e-9
    assert last(tmp_path, "importance/strong") > 0.1
    assert 0.003 < last(tmp_path, "importance/weak") < 0.05
    assert tables(tmp_path)


def test_the_columns_that_the_metrics_need_are_no_features_by_default(tmp_path: Path) -> None:
    record(tmp_path, options())
    tags = {value.tag for event in events(tmp_path) for value in event.summary.value}
    found = {tag.removeprefix("recommender/importance/") for tag in tags if "importance/" in tag}
    assert found == {*WEIGHTS, "table"}


def test_a_group_is_permuted_together(tmp_path: Path) -> None:
    """Two copies of a feature stand in for each other; as a group they have its importance."""

    def robust(columns: Mapping[str, np.ndarray]) -> np.ndarray:
        matrix, copy = columns["matrix"], columns["copy"]
        return np.where(np.abs(matrix[:, 1]) > np.abs(copy), matrix[:, 1], copy)

    groups = {
        "one": ("matrix", 1),
        "other": "copy",
        "both": [("matrix", 1), "copy"],
        "unused": ("matrix", 0),
    }
    random = np.random.default_rng(0)
    metrics = options(features=groups, predict=robust)
    with SummaryRecord(tmp_path, recommender=metrics) as recorder:
        for step in range(1, 41):
            copy = random.random(EXAMPLES)
            matrix = np.stack([random.random(EXAMPLES), copy], axis=1)
            labels = (random.random(EXAMPLES) < copy).astype(float)
            recorder.observe(matrix=matrix, copy=copy, y=labels, p=copy)
            end_step(recorder, step)
    assert recorder.troubles == {}
    one, other, both = (last(tmp_path, f"importance/{name}") for name in ("one", "other", "both"))
    assert both > 0.2
    assert max(one, other) < 0.7 * both
    assert last(tmp_path, "importance/unused") == 0


def test_each_task_has_an_importance_of_its_own(tmp_path: Path) -> None:
    metrics = RecommenderMetrics(
        tasks={
            "ctr": Task("p", "y"),
            "stars": Task("rating", "true", kind="ratings"),
            "kind": Task("shares", "class", kind="classes"),
            "cvr": Task("odds", "y", mask="mask", weights="w", logits=True),
        },
        report_steps=20,
        importance=Importance(
            every=1,
            budget=1.0,
            predict=lambda columns: {
                "p": columns["a"],
                "rating": columns["b"],
                "shares": np.stack([columns["a"], 1 - columns["a"]], axis=1),
                "odds": 4 * columns["b"] - 2,
            },
        ),
    )
    random = np.random.default_rng(0)
    with SummaryRecord(tmp_path, recommender=metrics) as recorder:
        for step in range(1, 41):
            a, b = random.random((2, EXAMPLES))
            recorder.observe(
                a=a, b=b, p=a, rating=b, shares=np.stack([a, 1 - a], axis=1), odds=4 * b - 2,
                y=(random.random(EXAMPLES) < a).astype(float), true=b + 0.01, mask=b > 0.5, w=a + 1,
                **{"class": (random.random(EXAMPLES) > a).astype(int)},
            )  # fmt: skip
            end_step(recorder, step)
    assert recorder.troubles == {}
    assert last(tmp_path, "ctr/importance/a") == pytest.approx(1 / 3, abs=0.03)
    assert last(tmp_path, "ctr/importance/b") == 0
    # The mean square of the difference of two uniform numbers.
    assert last(tmp_path, "stars/importance/b") == pytest.approx(1 / 6, abs=0.01)
    assert last(tmp_path, "stars/importance/a") == 0
    assert last(tmp_path, "kind/importance/a") > 0.3
    assert abs(last(tmp_path, "cvr/importance/b")) < 0.05


def test_a_label_is_no_feature(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = record(tmp_path, options(features=["y", "strong"]))
    assert recorder.troubles == OVER
    assert "y, a label, a weight or a mask of a task" in caplog.text


@pytest.mark.parametrize(
    ("importance", "words"),
    [
        ({"features": ["price"]}, "a feature of importance"),
        ({"features": {"strong": 3}}, "a feature of importance"),
        ({"features": {"strong": ("strong", 0)}}, "a feature of importance"),
        ({"predict": lambda columns: {"q": columns["weak"]}}, "what predict returns"),
        ({"predict": lambda columns: 1 / 0}, "ZeroDivisionError"),
        ({"predict": lambda columns: "?"}, "predictions"),
        (
            {"predict": lambda columns: np.random.default_rng().random(EXAMPLES)},
            "nothing random without training",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_costs_the_importance_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, importance: dict, words: str
) -> None:
    recorder = record(tmp_path, options(**importance))
    assert recorder.troubles.keys() == OVER.keys()
    assert 1 <= recorder.troubles["recommender metrics: importance"] <= 3
    assert words in caplog.text
    assert "no more passes are made in this training" in caplog.text
    assert last(tmp_path, "auc/last_100000") > 0.7


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"every": 0}, ValueError, "every"),
        ({"budget": 0}, ValueError, "budget"),
        ({"budget": 1.5}, ValueError, "at most 1"),
        ({"budget": "1 %"}, TypeError, "budget"),
        ({"features": []}, TypeError, "features of importance"),
        ({"features": "price"}, TypeError, "features of importance"),
        ({"features": {"price": []}}, ValueError, "features of importance"),
        ({"features": {"a b": 1}}, ValueError, "a name of features of importance"),
        ({"features": ["table"]}, ValueError, "the table of the features has this one"),
        ({"features": {"a": lambda inputs, outputs: inputs}}, TypeError, "features of importance"),
        ({"predict": 3}, TypeError, "predict"),
    ],
)
def test_wrong_options_are_errors_at_once(
    arguments: dict, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        Importance(**arguments)


def test_what_cannot_have_an_importance_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="importance"):
        RecommenderMetrics(ids={"item": "item"}, importance=Importance())
    with pytest.raises(TypeError, match=r"a rec_summary\.Importance or None"):
        RecommenderMetrics("p", "y", importance=1000)
    with pytest.raises(ValueError, match="predict of importance"):
        SummaryRecord(tmp_path, recommender=RecommenderMetrics("p", "y", importance=Importance()))


def test_passes_take_their_share_of_the_time_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    calls = []

    def slow(columns: Mapping[str, np.ndarray]) -> np.ndarray:
        begun = time.perf_counter()
        time.sleep(0.002)
        calls.append(time.perf_counter() - begun)
        return scores(columns)

    begun = time.perf_counter()
    metrics = options(predict=slow, budget=0.25, features=["strong"])
    record(tmp_path, metrics, steps=400)
    # One pass of a feature, and one of the batch, may be beyond it.
    assert sum(calls[:-2]) <= 0.25 * (time.perf_counter() - begun)
    assert len(calls) > 10
    assert "each feature has a pass every" in caplog.text


def test_a_feature_that_is_worth_nothing_any_more_is_found(tmp_path: Path) -> None:
    record(tmp_path, options(features=["weak"]), steps=1200, dead=(800, ("weak",)))
    (run,) = find_runs(str(tmp_path))
    answer = why_of(run, Report())
    (finding,) = [each for each in answer.findings if each.metric == "importance"]
    assert (finding.kind, finding.name) == ("feature", "weak")
    assert abs(finding.step - 800) <= 40
    assert finding.after == pytest.approx(0, abs=1e-3)


def test_a_restart_keeps_the_passes(tmp_path: Path) -> None:
    counts = []
    for _ in range(2):
        record(tmp_path, options(), steps=20)
        counts.append(int([*tables(tmp_path)[-1].metric_table.cells][-1]))
    assert counts[0] < 20 < counts[1]


def test_only_columns_of_the_examples_are_features_by_default(tmp_path: Path) -> None:
    metrics = RecommenderMetrics(
        predictions="p",
        labels="y",
        weights="w",
        report_steps=20,
        importance=Importance(every=1, budget=1.0, predict=lambda columns: columns["a/b"]),
    )
    random = np.random.default_rng(0)
    with SummaryRecord(tmp_path, recommender=metrics) as recorder:
        for step in range(1, 41):
            p = random.random(EXAMPLES)
            y = (random.random(EXAMPLES) < p).astype(float)
            columns = {"p": p, "y": y, "w": np.ones(EXAMPLES), "a/b": p, "table": 1 - p}
            recorder.observe(
                **columns, label=y, weight=np.ones(EXAMPLES), one=np.float64(3), other=p[:5]
            )
            end_step(recorder, step)
    assert recorder.troubles == {}
    tags = {value.tag for event in events(tmp_path) for value in event.summary.value}
    found = {tag for tag in tags if "importance/" in tag}
    assert found == {f"recommender/importance/{name}" for name in ("a_b", "_table", "table")}


def test_a_rollback_of_the_steps_goes_on_with_passes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with SummaryRecord(tmp_path, recommender=options()) as recorder:
        for step in [*range(1, 41), *range(20, 60)]:
            recorder.observe(**batch(random))
            end_step(recorder, step)
    assert int([*tables(tmp_path)[-1].metric_table.cells][-1]) > 60


def test_passes_that_fail_now_and_then_are_made_again(tmp_path: Path) -> None:
    calls = 0

    def moody(columns: Mapping[str, np.ndarray]) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls % 31 == 30:
            raise OSError("busy")
        return scores(columns)

    recorder = record(tmp_path, options(predict=moody), steps=200)
    assert recorder.troubles.keys() == {"recommender metrics: importance"}
    assert recorder.troubles["recommender metrics: importance"] > 5


def test_classes_with_a_probability_of_0_have_an_importance(tmp_path: Path) -> None:
    metrics = RecommenderMetrics(
        "shares",
        "class",
        task="classes",
        report_steps=20,
        importance=Importance(
            every=1, budget=1.0, predict=lambda c: np.eye(3)[(c["a"] > 0.5).astype(int)]
        ),
    )
    random = np.random.default_rng(0)
    with SummaryRecord(tmp_path, recommender=metrics) as recorder:
        for step in range(1, 41):
            a = random.random(EXAMPLES)
            labels = (a > 0.5).astype(int)
            shares = np.eye(3)[labels]
            labels[:3] = -1, 3, 2  # the first two are refused
            recorder.observe(a=a, shares=shares, **{"class": labels})
            end_step(recorder, step)
    # Half of the permuted examples have the probability 0.
    assert last(tmp_path, "importance/a") > 5
