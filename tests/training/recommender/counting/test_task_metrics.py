"""Several tasks: the metrics of each are those of its own examples."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mindspore")
pytest.importorskip("sklearn")

from sklearn import metrics

from rec_summary import Advanced, RecommenderMetrics, Task, export_tensorboard
from rec_summary._pb.summary_pb2 import Event
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.report import Detail, MetricValues, read
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.training.recommender.counting.aggregator import Aggregator, ReportRequest
from rec_summary.training.recommender.counting.persistence import load, state_path, unpack
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join
from tests.support import event_files
from tests.support.laws import assert_equal_states
from tests.support.record_dirs import START

BATCH, USERS = 64, 30
COMMON = {"last": (512,), "half_lives": (512,), "detail": True, "throughput": False, "host": False}
TASKS = {
    "ctr": Task(predictions=1, labels=2, users=0),
    "cvr": Task(predictions=3, labels=4, mask=2, weights=5),
    "stars": Task(predictions=6, labels=7, missing=0, kind="ratings"),
}
OPTIONS = RecommenderMetrics(
    tasks=TASKS,
    features={"genre": 1},
    advanced=Advanced(reference_examples=200, user_cells=2048),
    **COMMON,
)


def columns(seed: int, size: int = BATCH) -> dict[tuple[str, int], np.ndarray]:
    """A batch as of MovieLens: clicks of users, and of clicks a conversion and a rating.

    Conversions of a tenth of the clicks are not known (NaN), ratings of films not seen are 0.
    """
    random = np.random.default_rng(seed)
    users = random.integers(0, USERS, size)
    taste = random.normal(size=size) + users / USERS
    score = 1 / (1 + np.exp(1 - taste))
    clicks = random.random(size) < score
    later = score * random.random(size)
    bought = np.where(clicks, random.random(size) < later, False).astype(np.float32)
    bought[random.random(size) < 0.1] = np.nan
    stars = np.where(clicks, random.integers(1, 6, size), 0)
    return {
        ("output", 1): score.astype(np.float32),
        ("output", 2): clicks.astype(np.float32).reshape(-1, 1),
        ("output", 3): later.astype(np.float32),
        ("output", 4): bought,
        ("output", 5): random.integers(1, 4, size).astype(np.float32),
        ("output", 6): (1 + 4 * score).astype(np.float32),
        ("output", 7): stars.astype(np.int32),
        ("input", 0): users,
        ("input", 1): users % 7,
    }


def batch(seed: int) -> StepInputs:
    return StepInputs(columns(seed), BATCH, 0.1, 0.0, 0.0)


def whole(seeds: range) -> dict[int, np.ndarray]:
    """The outputs of several batches, flat; users are output 0."""
    parts = [columns(seed) for seed in seeds]
    found = {
        place: np.concatenate([each["output", place].reshape(-1) for each in parts])
        for place in range(1, 8)
    }
    found[0] = np.concatenate([each["input", 0] for each in parts])
    return found


def counted(
    options: RecommenderMetrics, batches: list[StepInputs]
) -> tuple[RankMetrics, MetricValues, Troubles]:
    """Counts batches, and returns the values of a report."""
    troubles = Troubles()
    rank = RankMetrics(options, {}, troubles)
    for each in batches:
        rank.update(join([each], rank.places, troubles))
    values = read(rank.end_interval(), Detail())
    rank.mark_lost(values)
    return rank, values, troubles


def test_the_metrics_of_each_task_are_those_of_scikit_learn() -> None:
    _, values, troubles = counted(OPTIONS, [batch(seed) for seed in range(30)])
    assert troubles.counts == {}
    every = whole(range(30))
    clicks, known = every[2] == 1, ~np.isnan(every[4])
    bought = clicks & known
    stars = every[7] != 0
    weights = every[5][bought].astype(np.float64)
    scores, labels = every[3][bought].astype(np.float64), every[4][bought]
    rate = np.average(labels, weights=weights)
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    loss = metrics.log_loss(labels, scores, sample_weight=weights)
    errors = every[6][stars].astype(np.float64) - every[7][stars]
    of_users = [
        (np.count_nonzero(mine), metrics.roc_auc_score(clicks[mine], every[1][mine]))
        for mine in (every[0] == user for user in range(USERS))
        if 0 < clicks[mine].mean() < 1
    ]
    expected = {
        "ctr/auc": metrics.roc_auc_score(clicks, every[1]),
        "ctr/average_precision": metrics.average_precision_score(clicks, every[1]),
        "ctr/log_loss": metrics.log_loss(clicks, every[1].astype(np.float64)),
        "ctr/gauc": sum(n * area for n, area in of_users) / sum(n for n, _ in of_users),
        "ctr/examples": len(clicks),
        "cvr/auc": metrics.roc_auc_score(labels, scores, sample_weight=weights),
        "cvr/average_precision": metrics.average_precision_score(
            labels, scores, sample_weight=weights
        ),
        "cvr/log_loss": loss,
        "cvr/normalised_entropy": loss / entropy,
        "cvr/calibration": np.average(scores, weights=weights) / rate,
        "cvr/examples": weights.sum(),
        "cvr/masked": np.count_nonzero(~clicks),
        "cvr/missing_labels": np.count_nonzero(clicks & ~known),
        "stars/rmse": math.sqrt(np.mean(errors**2)),
        "stars/mae": np.mean(np.abs(errors)),
        "stars/examples": np.count_nonzero(stars),
        "stars/missing_labels": np.count_nonzero(~stars),
    }
    found = {name: values.scalars[f"recommender/{name}/lifetime"] for name in expected}
    assert found == pytest.approx(expected, rel=1e-6)
    assert not any("/refused/" in tag for tag in values.scalars)
    assert "recommender/ctr/masked/lifetime" not in values.scalars
    # Of the last 512 of the 1,920 examples; the window of the quality has 512 of the task.
    last = whole(range(22, 30))
    assert values.scalars["recommender/cvr/masked/last_512"] == np.count_nonzero(last[2] == 0)
    assert "recommender/cvr/pr_curve/lifetime" in values.pr_curves
    assert "recommender/cvr/reliability/lifetime" in values.reliabilities
    assert "recommender/cvr/scores/lifetime" in values.histograms


def test_a_named_task_has_the_values_of_an_unnamed_one() -> None:
    batches = [batch(seed) for seed in range(10)]
    one = RecommenderMetrics(
        predictions=1, labels=2, users=0, advanced=Advanced(reference_examples=100), **COMMON
    )
    named = RecommenderMetrics(
        tasks={"ctr": Task(predictions=1, labels=2, users=0)},
        advanced=Advanced(reference_examples=100),
        **COMMON,
    )
    rank, plain, _ = counted(one, batches)
    _, of_task, _ = counted(named, batches)
    for name, values in vars(plain).items():
        own = {f"recommender/ctr/{tag.removeprefix('recommender/')}" for tag in values}
        assert own == set(getattr(of_task, name))
    for tag, value in plain.scalars.items():
        assert of_task.scalars[f"recommender/ctr/{tag.removeprefix('recommender/')}"] == value
    windows = ("lifetime", "last_512", "decayed_512")
    keys = {"users/lifetime", "users/last_512", "drift", "sums"}
    assert set(rank.states()) == keys.union(f"quality/{window}" for window in windows)


@pytest.mark.parametrize("refused", [0, 5])
@pytest.mark.parametrize("middle", [0.0, 100.0, -2000.0])
def test_log_odds_rank_also_where_their_probabilities_are_all_0_or_1(middle, refused) -> None:
    random = np.random.default_rng(3)
    clicks, users = random.random(4000) < 0.3, np.repeat(np.arange(100), 40)
    odds = (middle + random.normal(0, 10, 4000) + 15 * clicks).astype(np.float32)
    options = RecommenderMetrics(
        predictions=1, labels=2, logits=True, users=0, lists=0, k=(5,), **COMMON
    )
    arrays = {("output", 1): odds, ("output", 2): clicks.astype(np.float32), ("input", 0): users}
    arrays["output", 1] = np.append(odds, np.full(refused, np.nan, np.float32))
    arrays["output", 2] = np.append(arrays["output", 2], np.zeros(refused, np.float32))
    arrays["input", 0] = np.append(users, np.zeros(refused, users.dtype))
    _, values, _ = counted(options, [StepInputs(arrays, 4000 + refused, 0.1, 0.0, 0.0)])
    found = {tag.split("/", 1)[1]: value for tag, value in values.scalars.items()}
    assert found["auc/lifetime"] == pytest.approx(metrics.roc_auc_score(clicks, odds), abs=1e-4)
    assert found["average_precision/lifetime"] == pytest.approx(
        metrics.average_precision_score(clicks, odds), abs=1e-3
    )
    by_user = (clicks.reshape(100, 40), odds.reshape(100, 40))
    areas = [metrics.roc_auc_score(*each) for each in zip(*by_user, strict=True)]
    assert found["gauc/lifetime"] == pytest.approx(np.mean(areas))
    assert found["ndcg_at_5/lifetime"] == pytest.approx(metrics.ndcg_score(*by_user, k=5))
    edges, counts = values.histograms["recommender/scores/lifetime"]
    assert (np.diff(edges) > 0).all()
    assert counts.sum() == 4000


def test_without_names_nan_is_an_error_and_with_missing_none_too() -> None:
    given = [
        StepInputs({("output", 1): np.full(8, 0.5), ("output", 2): np.full(8, np.nan)}, 8, 0, 0, 0)
    ]
    for options, start in (
        (RecommenderMetrics(predictions=1, labels=2, **COMMON), ""),
        (RecommenderMetrics(tasks={"a": Task(1, 2, missing=None)}, **COMMON), "a/"),
    ):
        _, values, troubles = counted(options, given)
        assert values.scalars[f"recommender/{start}refused/lifetime"] == 8
        assert len(troubles.counts) == 1
    _, values, troubles = counted(RecommenderMetrics(tasks={"a": Task(1, 2)}, **COMMON), given)
    assert values.scalars["recommender/a/missing_labels/lifetime"] == 8
    assert troubles.counts == {}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_label_that_stands_for_a_missing_one_is_compared_in_the_type_of_labels(dtype) -> None:
    labels = np.array([0, 1, -0.1, np.nan], dtype)
    given = StepInputs({("output", 1): np.full(4, 0.5), ("output", 2): labels}, 4, 0, 0, 0)
    options = RecommenderMetrics(tasks={"a": Task(1, 2, missing=-0.1)}, **COMMON)
    _, values, troubles = counted(options, [given])
    assert values.scalars["recommender/a/missing_labels/lifetime"] == 2
    assert values.scalars["recommender/a/examples/lifetime"] == 2
    assert troubles.counts == {}


def test_a_task_that_predicts_nan_is_lost_and_the_others_are_not() -> None:
    lost = batch(9)
    lost.values["output", 3][:] = np.nan
    _, values, _ = counted(OPTIONS, [batch(8), lost])
    assert math.isnan(values.scalars["recommender/cvr/auc/lifetime"])
    assert values.scalars["recommender/ctr/auc/lifetime"] > 0.5
    # A batch without a click says nothing of conversions.
    idle = batch(10)
    idle.values["output", 2][:] = 0
    idle.values["output", 3][:] = np.nan
    _, values, _ = counted(OPTIONS, [batch(8), idle])
    assert values.scalars["recommender/cvr/auc/lifetime"] > 0.5


def test_scores_that_are_no_probabilities_have_no_quality_until_they_are() -> None:
    options = RecommenderMetrics(predictions=1, labels=2, users=0, lists=0, k=(5,), **COMMON)
    rank = RankMetrics(options, {}, Troubles())

    def value_after(*batches: StepInputs) -> dict[str, float]:
        for each in batches:
            rank.update(join([each], rank.places, Troubles()))
        values = read(rank.end_interval(), Detail())
        rank.mark_lost(values)
        found = values.scalars
        return {
            each: found[f"recommender/{each}/lifetime"] for each in ("auc", "gauc", "ndcg_at_5")
        }

    def outside(seed: int, count: int) -> StepInputs:
        found = batch(seed)
        found.values["output", 1][:count] = 1.5
        return found

    assert value_after(batch(1))["auc"] > 0.5
    lost = value_after(batch(2), outside(3, BATCH // 2))
    assert math.isnan(lost["auc"])
    assert math.isnan(lost["gauc"])
    assert lost["ndcg_at_5"] > 0  # an order needs no probabilities
    assert math.isnan(value_after()["auc"])  # there are no newer examples
    few = value_after(outside(4, 1), *(batch(seed) for seed in range(5, 10)))
    assert few["auc"] > 0.5
    assert few["gauc"] > 0.5


def test_a_mask_of_another_length_is_reported_and_stops_no_other_task() -> None:
    broken = batch(1)
    broken.values["output", 2] = broken.values["output", 2][:-1]
    options = RecommenderMetrics(tasks={"cvr": TASKS["cvr"], "stars": TASKS["stars"]}, **COMMON)
    _, values, troubles = counted(options, [broken])
    assert list(troubles.counts) == ["recommender metrics: quality of cvr"]
    assert (
        "recommender/cvr/examples/lifetime" not in values.scalars
        or not values.scalars["recommender/cvr/examples/lifetime"]
    )
    assert values.scalars["recommender/stars/examples/lifetime"] > 0


@pytest.mark.parametrize(
    ("state", "method"),
    [(ClickQuality, "count"), (ScoreOrder, "auc"), (ClickQuality, "arrays")],
    ids=["waiting parts", "values", "merging"],
)
def test_a_failure_of_a_task_costs_its_own_report(tmp_path, monkeypatch, caplog, state, method):
    """Memory may run out when parts that waited are counted, and when states are read."""
    one, troubles = engine(tmp_path, rank_size=2)
    one.work([batch(seed) for seed in range(3)], None)

    def fail(*_: object) -> None:
        raise MemoryError("no memory for it")

    with monkeypatch.context() as patch:
        patch.setattr(state, method, fail)  # a test cannot use all memory up
        for step in (3, 4):
            event = Event.FromString(one.work([], request(step, final=False)))
            tags = {value.tag for value in event.summary.value}
            assert "recommender/stars/rmse/lifetime" in tags
            assert ("recommender/ctr/auc/lifetime" in tags) == (method == "arrays")
            assert ("recommender/states" in tags) == (method != "arrays")
    kinds = {f"recommender metrics: report of {name}" for name in ("ctr", "cvr")}
    assert set(troubles.counts) == (
        {"recommender metrics: merging"} if method == "arrays" else kinds
    )
    assert len(caplog.records) == len(troubles.counts)
    event = Event.FromString(one.work([batch(3)], request(5, final=False)))
    tags = {value.tag for value in event.summary.value}
    assert {"recommender/ctr/auc/last_512", "recommender/states"} <= tags


def test_each_task_has_drift_of_its_own_and_a_reference_has_all_of_them(tmp_path) -> None:
    rank, values, _ = counted(OPTIONS, [batch(seed) for seed in range(40)])
    for tag in ("ctr/drift/psi/label", "ctr/drift/label_rate", "stars/drift/psi/rating"):
        assert f"recommender/{tag}" in values.scalars
    assert "recommender/drift/psi/genre" in values.scalars
    names = {"genre", "ctr/prediction", "ctr/label", "cvr/prediction", "cvr/label"}
    assert set(rank.reference) == names.union(("stars/prediction", "stars/rating"))
    other = RankMetrics(OPTIONS, {}, Troubles())
    other.set_reference(rank.reference)
    assert set(other.reference) == set(rank.reference)
    other.update(join([batch(50)], other.places, Troubles()))
    again = read(other.end_interval(), Detail()).scalars
    clicks = columns(50)["output", 2]
    assert again["recommender/ctr/drift/label_rate"] == clicks.mean()
    assert again["recommender/cvr/drift/reference_label_rate"] == pytest.approx(
        values.scalars["recommender/cvr/drift/reference_label_rate"]
    )


def engine(folder: Path, rank: int = 0, rank_size: int = 1) -> tuple[Aggregator, Troubles]:
    troubles = Troubles()
    return Aggregator(OPTIONS, {}, str(folder), rank, rank_size, troubles), troubles


def request(step: int, *, final: bool = True) -> ReportRequest:
    return ReportRequest(step, START + step, True, final)


def test_a_restarted_run_is_where_an_unbroken_one_is(tmp_path) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    one, _ = engine(tmp_path / "whole")
    one.work([batch(seed) for seed in range(20)], request(20))
    for first, last in ((0, 2), (2, 13), (13, 20)):
        part, troubles = engine(tmp_path / "broken")  # a new process
        for seed in range(first, last):
            part.work([batch(seed)], None)
        part.work([], request(last))
        assert troubles.counts == {}
    expected, found = (
        unpack(load(state_path(str(tmp_path / name), 0))) for name in ("whole", "broken")
    )
    assert expected.keys() == found.keys()
    assert {"task/cvr/quality/lifetime", "task/cvr/labels/last_512"} <= expected.keys()
    for key, state in expected.items():
        assert_equal_states(state, found[key])


def test_two_ranks_merge_to_what_one_process_records(tmp_path) -> None:
    def written(run: Path, each: Aggregator, rank: int, parts: list[list[StepInputs]]) -> None:
        files = RunWriter(run, rank)
        for step, part in enumerate(parts, 1):
            payload = each.work(part, request(step, final=step == len(parts)))
            files.write(MessageRecord(Event.FromString(payload)))
        files.close()

    pairs = [[batch(2 * step), batch(2 * step + 1)] for step in range(4)]
    one, _ = engine(tmp_path / "state-one")
    written(tmp_path / "one" / "run", one, 0, pairs)
    for rank in range(2):
        each, _ = engine(tmp_path / "state", rank, 2)
        written(tmp_path / "two" / "run", each, rank, [[pair[rank]] for pair in pairs])
    lifetimes = []
    for name in ("one", "two"):
        export_tensorboard(tmp_path / name, tmp_path / f"logs-{name}")
        lifetimes.append(
            {
                (value.tag, step): value.SerializeToString(deterministic=True)
                for step, _, value in event_files.values(tmp_path / f"logs-{name}" / "run")
                if value.tag.startswith("recommender") and "/lifetime" in value.tag
            }
        )
    assert lifetimes[0] == lifetimes[1]
    tags = {tag for tag, _ in lifetimes[0]}
    assert {
        "recommender/cvr/auc/lifetime",
        "recommender/ctr/gauc/lifetime",
        "recommender/cvr/pr_curve/lifetime",
        "recommender/stars/rmse/lifetime",
        "recommender_detail/cvr/missing_labels/lifetime",
    } <= tags
