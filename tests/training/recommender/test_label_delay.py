"""Labels that come later: their delay, and metrics by their age."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("mindspore")

from rec_summary import RecommenderMetrics
from rec_summary.metrics.report import Detail, read
from rec_summary.metrics.state import kind_of, restore
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join

NOW = 1.7e9
OPTIONS = RecommenderMetrics(
    predictions=1,
    labels=2,
    event_times="event",
    label_times="label",
    last=(),
    detail=True,
    host=False,
)


def batch(seed: int, now: float = NOW, dtype: type = np.float64) -> StepInputs:
    """1,000 examples, whose labels came a minute after the event: half of them an hour ago."""
    random = np.random.default_rng(seed)
    age = np.where(np.arange(1000) < 500, 10.0, 3700.0)
    score = random.random(1000).astype(np.float32)
    fair = random.random(1000) < score
    label = np.where(age < 60, fair, random.random(1000) < 0.5)
    values = {
        ("output", 1): score,
        ("output", 2): label.astype(np.float32),
        ("name", "label"): (now - age).astype(dtype),
        ("name", "event"): (now - age - 60).astype(dtype),
    }
    return StepInputs(values, 1000, 0.1, 0.0, now)


def scalars(rank: RankMetrics) -> dict[str, float]:
    found = read(rank.end_interval(), Detail()).scalars
    return {tag.removeprefix("recommender/"): each for tag, each in found.items()}


def test_the_delay_and_the_quality_by_age() -> None:
    troubles = Troubles()
    rank = RankMetrics(OPTIONS, {}, troubles)
    # Steps that are counted together have times of their own.
    steps = [batch(seed, NOW + 1000 * seed) for seed in range(3)]
    steps[0].values["name", "label"][:5] = math.nan
    rank.update(join(steps, rank.places, troubles))
    assert troubles.counts == {}
    stored = {key: restore(kind_of(each), each.arrays()) for key, each in rank.states().items()}
    found = scalars(rank)
    for share in (50, 90, 99):
        assert found[f"label_delay/seconds/p{share}"] == pytest.approx(60, rel=0.011)
    new, old = (
        found[f"slice/label_age={age}/auc/lifetime"]
        for age in ("below a minute", "an hour to a day")
    )
    assert new > 0.75 > 0.6 > old
    again = RankMetrics(OPTIONS, {}, Troubles())
    again.restore(stored, 3000)
    assert scalars(again) == found
    # The delay is of the last report, the quality of all examples.
    rank.update(join([batch(5)], rank.places, troubles))
    rank.end_interval()
    assert "label_delay/seconds/p50" not in scalars(rank)


def test_times_that_are_not_precise_are_reported() -> None:
    troubles = Troubles()
    rank = RankMetrics(OPTIONS, {}, troubles)
    rank.update(join([batch(0, dtype=np.float32)], rank.places, troubles))
    assert "recommender metrics: label times" in troubles.counts


def test_mistakes_in_options_are_named() -> None:
    with pytest.raises(ValueError, match="event_times is invalid"):
        RecommenderMetrics(predictions=1, labels=2, label_times="label")
    with pytest.raises(ValueError, match="a name of slices is invalid"):
        RecommenderMetrics(
            predictions=1,
            labels=2,
            event_times="event",
            label_times="label",
            slices={"label_age": "age"},
        )
    with pytest.raises(ValueError, match="label_times is invalid"):
        RecommenderMetrics(event_times="event", label_times="")
