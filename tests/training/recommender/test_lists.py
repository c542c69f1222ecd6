"""Lists, classes and retrievals: from the outputs of steps to the tags, over restarts and ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("mindspore")
pytest.importorskip("sklearn")

from sklearn import metrics

from rec_summary import Advanced, RecommenderMetrics, Task
from rec_summary.metrics.report import Detail, read
from rec_summary.metrics.state import kind_of, restore
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join

BATCH = 32
COMMON = {"last": (256,), "half_lives": (256,), "detail": True, "throughput": False, "host": False}
OPTIONS = RecommenderMetrics(
    tasks={
        "ctr": Task(predictions=1, labels=2, lists="session", mask=8),
        "watch": Task(predictions=3, labels=4, kind="ratings", lists="session"),
        "genre": Task(predictions=5, labels=6, kind="classes", logits=True, missing=-1),
        "tower": Task(predictions=7, kind="retrieval"),
    },
    k=(5, 1),
    advanced=Advanced(reference_examples=100),
    **COMMON,
)
SESSION = ("name", "session")


def columns(seed: int, size: int = BATCH) -> dict[tuple[str, object], np.ndarray]:
    """Sessions of about ten examples over two batches or more, each of three genres."""
    random = np.random.default_rng(seed)
    score = random.random(size)
    minutes = random.gamma(2.0, 5.0, size)
    genres = random.integers(0, 3, size)
    return {
        ("output", 1): score.astype(np.float32),
        ("output", 2): (random.random(size) < score).astype(np.float32),
        ("output", 3): (minutes + random.normal(0, 5, size)).astype(np.float32),
        ("output", 4): minutes.astype(np.float32),
        ("output", 5): random.normal(size=(size, 3)) + 2 * np.eye(3)[genres],
        ("output", 6): np.where(random.random(size) < 0.1, -1, genres),
        ("output", 7): random.normal(size=(size, size)) + 3 * np.eye(size),
        ("output", 8): random.random(size) < 0.9,
        SESSION: (seed // 2 * 10 + random.integers(0, 6, size)).astype(np.int64),
    }


def batch(seed: int, size: int = BATCH) -> StepInputs:
    return StepInputs(columns(seed, size), size, 0.1, 0.0, 0.0)


def counted(batches: list[StepInputs], at_once: int = 3) -> RankMetrics:
    troubles = Troubles()
    rank = RankMetrics(OPTIONS, {}, troubles)
    for start in range(0, len(batches), at_once):
        rank.update(join(batches[start : start + at_once], rank.places, troubles))
    assert troubles.counts == {}
    return rank


def values_of(rank: RankMetrics) -> dict[str, float]:
    found = read(rank.end_interval(), Detail())
    rank.mark_lost(found)
    return {tag.removeprefix("recommender/"): each for tag, each in found.scalars.items()}


def test_every_metric_is_that_of_scikit_learn() -> None:
    found = values_of(counted([batch(seed) for seed in range(9)]))
    parts = [columns(seed) for seed in range(9)]
    every = {
        place: np.concatenate([each[place] for each in parts])
        for place in parts[0]
        if place != ("output", 7)
    }
    score, click, guess, minutes, logits, genre, _ = (
        every["output", n] for n in (1, 2, 3, 4, 5, 6, 8)
    )
    session, there = every[SESSION], every["output", 8]

    def ndcg(scores: np.ndarray, gains: np.ndarray, kept: np.ndarray, k: int) -> float:
        return float(
            np.mean(
                [
                    metrics.ndcg_score(gains[None, of], scores[None, of], k=k)
                    if of.sum() > 1
                    else 1.0
                    for of in ((session == each) & kept for each in np.unique(session))
                    if gains[of].any()
                ]
            )
        )

    assert found["ctr/ndcg_at_5/lifetime"] == pytest.approx(ndcg(score, click, there, 5))
    assert found["ctr/ndcg_at_1/lifetime"] == pytest.approx(ndcg(score, click, there, 1))
    everything = np.ones(len(session), bool)
    assert found["watch/ndcg_at_5/lifetime"] == pytest.approx(ndcg(guess, minutes, everything, 5))
    assert found["ctr/hit_rate_at_1/lifetime"] == found["ctr/precision_at_1/lifetime"]
    assert found["ctr/mrr_at_1/lifetime"] == found["ctr/hit_rate_at_1/lifetime"]
    assert 0 < found["ctr/recall_at_1/lifetime"] < found["ctr/recall_at_5/lifetime"] < 1
    lists = len(np.unique(session))
    assert found["watch/lists_counted/lifetime"] == lists
    higher = minutes[:, None] > minutes
    right = (guess[:, None] > guess)[higher].mean()
    assert found["watch/xauc/lifetime"] == pytest.approx(right)
    same = higher & (session[:, None] == session)
    assert found["watch/pair_accuracy/lifetime"] == pytest.approx(
        (guess[:, None] > guess)[same].mean()
    )
    known = genre >= 0
    odds = np.exp(logits[known])
    shares = odds / odds.sum(axis=1, keepdims=True)
    assert found["genre/log_loss/lifetime"] == pytest.approx(metrics.log_loss(genre[known], shares))
    assert found["genre/accuracy/lifetime"] == pytest.approx(
        (shares.argmax(1) == genre[known]).mean()
    )
    assert found["genre/missing_labels/lifetime"] == np.count_nonzero(~known)
    tower = [metrics.ndcg_score(np.eye(BATCH), part["output", 7], k=5) for part in parts]
    assert found["tower/in_batch_ndcg_at_5/lifetime"] == pytest.approx(np.mean(tower))
    assert found["tower/in_batch_candidates/lifetime"] == BATCH
    assert found["tower/in_batch_examples/lifetime"] == 9 * BATCH
    # The sizes of the batches of a report differ: only the last one is smaller.
    assert 0.5 < found["tower/in_batch_mrr_at_5/last_256"] <= 1
    assert 0.5 < found["genre/accuracy/decayed_256"] <= 1


def test_the_last_batch_may_be_smaller() -> None:
    found = values_of(counted([batch(1), batch(2, 8)]))
    expected = (BATCH * BATCH + 8 * 8) / (BATCH + 8)
    assert found["tower/in_batch_candidates/lifetime"] == pytest.approx(expected)


def test_how_batches_are_joined_stored_and_split_over_ranks_changes_nothing() -> None:
    batches = [batch(seed) for seed in range(8)]
    whole, single = counted(batches, 8), counted(batches, 1)
    expected = values_of(single)
    assert values_of(whole) == expected
    # A restart in the middle, from stored states.
    first = counted(batches[:3])
    stored = {key: restore(kind_of(each), each.arrays()) for key, each in first.states().items()}
    second = RankMetrics(OPTIONS, {}, Troubles())
    assert second.settings == first.settings
    second.restore(stored, first.examples)
    for each in batches[3:]:
        second.update(join([each], second.places, Troubles()))
    assert values_of(second) == expected
    # Two ranks, whose sessions are partly the same.
    one, other = (counted(batches[start::2]).end_interval() for start in (0, 1))
    for key, state in one.items():
        if "drift" not in key:
            state.merge(other[key])
    merged = read(one, Detail()).scalars
    for tag, number in expected.items():
        if tag.endswith("/lifetime") and "drift" not in tag:
            assert merged[f"recommender/{tag}"] == pytest.approx(number), tag


def test_a_network_that_predicts_nan_has_lost_its_lists() -> None:
    lost = batch(5)
    for number in (1, 5, 7):
        lost.values["output", number][:] = np.nan
    found = values_of_lost([batch(4), lost])
    for name in ("ctr/ndcg_at_5", "ctr/pair_accuracy", "genre/accuracy", "tower/in_batch_mrr_at_1"):
        assert math.isnan(found[f"{name}/lifetime"]), name
    assert found["watch/ndcg_at_5/lifetime"] > 0


def values_of_lost(batches: list[StepInputs]) -> dict[str, float]:
    troubles = Troubles()
    rank = RankMetrics(OPTIONS, {}, troubles)
    for each in batches:
        rank.update(join([each], rank.places, troubles))
    assert all("refused" in kind for kind in troubles.counts)
    return values_of(rank)


def test_probabilities_that_are_none_are_reported_with_the_remedy(caplog) -> None:
    options = RecommenderMetrics(predictions=5, labels=6, task="classes", **COMMON)
    troubles = Troubles()
    rank = RankMetrics(options, {}, troubles)
    rank.update(join([batch(1)], rank.places, troubles))
    assert "set logits=True" in caplog.text
    vector = RecommenderMetrics(predictions=1, labels=6, task="classes", **COMMON)
    troubles = Troubles()
    rank = RankMetrics(vector, {}, troubles)
    rank.update(join([batch(1)], rank.places, troubles))
    assert "a row of scores for each example" in caplog.text


def test_mistakes_in_options_are_named() -> None:
    for wrong in ((0,), (2, 2), (1001,)):
        with pytest.raises(ValueError, match="k is invalid"):
            RecommenderMetrics(predictions=1, labels=2, lists="session", k=wrong)
    with pytest.raises(ValueError, match="lists is invalid"):
        RecommenderMetrics(lists="session")
    assert RecommenderMetrics(predictions=1, task="retrieval").labels is None


def test_thresholds_at_precisions_have_tags_and_names_that_no_task_has() -> None:
    options = RecommenderMetrics(
        predictions=1, labels=2, advanced=Advanced(precisions=(0.6, 0.999)), **COMMON
    )
    rank = RankMetrics(options, {}, Troubles())
    rank.update(join([batch(seed) for seed in range(9)], rank.places, Troubles()))
    found = values_of(rank)
    assert 0 < found["threshold_at_precision_60/lifetime"] < 1
    assert 0 < found["recall_at_precision_99.9/last_256"] < 1
    for name in ("threshold_at_precision_60", "ndcg_at_10", "in_batch_mrr_at_5", "xauc"):
        with pytest.raises(ValueError, match="a name of tasks is invalid"):
            RecommenderMetrics(tasks={name: Task(1, 2)})
    for wrong in ((0,), (1.5,), 0.9):
        with pytest.raises((TypeError, ValueError), match="precisions is invalid"):
            Advanced(precisions=wrong)
