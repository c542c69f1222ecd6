"""The tags of the values of states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rec_summary.alerts.rules import read_rule
from rec_summary.metrics.quality import score_quality
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.labels import LabelCounts
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.quality.slices import Slices, SliceState
from rec_summary.metrics.report import Detail, read
from rec_summary.metrics.tags import GROUPS, named_tasks
from rec_summary.metrics.throughput import Throughput
from tests.support.laws import assert_equal_states, assert_laws
from tests.support.metric_states import table_health


def clicks(seed: int, size: int = 500):
    random = np.random.default_rng(seed)
    scores = random.random(size).astype(np.float32) * 0.5
    return scores, (random.random(size) < scores).astype(np.float32)


def quality(seed: int) -> ClickQuality:
    state = ClickQuality(128)
    state.update(*clicks(seed))
    return state


def test_a_state_that_is_not_of_the_class_of_its_key_has_no_values() -> None:
    # A damaged or crafted record may pair any key with any class.
    others = {
        "quality/lifetime": Throughput(),
        "users/lifetime": LabelCounts(),
        "throughput": quality(1),
        "slice/country/lifetime": UserScores(),
        "table/items": LogLoss(),
        "task/ctr/drift": RatingErrors(),
    }
    found = read(others, Detail())
    assert not any(vars(found).values())


def test_crafted_states_have_the_values_that_they_can_have() -> None:
    alone = ClickQuality(128)
    alone.loss.update(*clicks(1))
    sliced = Slices(SliceState(("auc",), {}))
    found = read({"quality/lifetime": alone, "slice/country/lifetime": sliced}, Detail())
    assert found.scalars["recommender/examples/lifetime"] == 500
    assert not found.histograms
    assert not any(tag.startswith("recommender/slice") for tag in found.scalars)


def test_quality_is_its_parts_and_obeys_the_laws() -> None:
    assert_laws(quality(1), quality(2), quality(3))
    loss, order = LogLoss(), ScoreOrder(256)
    order.update(*clicks(1))
    assert_equal_states(quality(1).order, order)
    loss.update(*clicks(1))
    assert_equal_states(quality(1).loss, loss)
    scaled = quality(1)
    scaled.scale(0.5)
    assert scaled.loss.weight == 250
    assert scaled.order.positives.sum() == order.positives.sum() / 2


def test_every_number_has_its_name() -> None:
    state = quality(1)
    found = read({"quality/lifetime": state}, Detail(thresholds=5))
    assert found.scalars["recommender/auc/lifetime"] == state.order.auc().value
    assert found.scalars["recommender/roc_error_bound/lifetime"] == 0.0
    assert found.scalars["recommender/log_loss/lifetime"] == state.loss.log_loss()
    assert found.scalars["recommender/examples/lifetime"] == 500
    assert found.scalars["recommender/clicks/lifetime"] == clicks(1)[1].sum()
    area = score_quality.average_precision(state.order)
    assert found.scalars["recommender/average_precision/lifetime"] == area
    assert "recommender/original_calibration/lifetime" not in found.scalars
    assert found.pr_curves["recommender/pr_curve/lifetime"].shape == (6, 5)
    edges, counts = found.histograms["recommender/scores/lifetime"]
    assert counts.sum() == 500
    assert len(counts) <= 64
    assert edges[-1] >= 0.49
    assert (np.diff(edges) > 0).all()
    _, observed, weights = found.reliabilities["recommender/reliability/lifetime"]
    assert observed @ weights == pytest.approx(state.order.positives.sum())


def test_empty_states_have_no_values() -> None:
    empty = {
        "quality/lifetime": ClickQuality(),
        "quality/last_100": RatingErrors(),
        "table/item": table_health(10),
        "table_window/item": table_health(10),
        "throughput": Throughput(),
        "of/another/version": RatingErrors(),
    }
    found = read(empty, Detail())
    assert all(math.isfinite(number) for number in found.scalars.values())
    assert {tag for tag, number in found.scalars.items() if number} == set()
    assert not (found.pr_curves)
    assert not (found.histograms)
    assert not (found.reliabilities)
    assert not (found.tops)


def test_curves_are_read_only_where_they_are_wanted() -> None:
    table = table_health(10)
    table.add(np.tile([1, 1, 2, 99], 200))
    states = {"quality/lifetime": quality(1), "table/item": table}
    short, whole = (read(states, Detail(curves=curves)) for curves in (False, True))
    assert not (short.pr_curves)
    assert not (short.histograms)
    assert not (short.tops)
    assert set(short.scalars) < set(whole.scalars)
    assert whole.tops["recommender/table/item/top_ids"][0].tolist()[:1] == [1]
    assert whole.scalars["recommender/table/item/out_of_range_share"] == 0.25


def test_the_alert_about_a_drop_of_an_auc_is_about_aucs_only() -> None:
    users = UserScores()
    scores, labels = clicks(1)
    users.update(np.arange(len(scores)) % 7, scores, labels)
    found = read({"quality/lifetime": quality(1), "users/lifetime": users}, Detail()).scalars
    pattern = read_rule("auc-drop").condition.tag
    assert pattern is not None
    meant = {tag for tag in found if pattern.matches(tag)}
    assert meant == {f"recommender/{name}/lifetime" for name in ("auc", "gauc", "gauc_by_user")}
    assert found["recommender/grouped_users/lifetime"] == 7


def test_the_calibration_of_all_examples_is_there_for_sampled_non_clicks() -> None:
    state = ClickQuality(128, 0.5)
    state.update(*clicks(1))
    found = read({"quality/lifetime": state}, Detail(curves=False)).scalars
    expected = score_quality.original_calibration(state.order, 0.5)
    assert found["recommender/original_calibration/lifetime"] == expected


def test_every_value_is_in_a_group_and_a_task_has_it_in_its_own_part() -> None:
    scores, labels = clicks(1)
    rated, users, left_out = RatingErrors(), UserScores(), LabelCounts()
    rated.update([1, math.nan], [2, 2])
    users.update(np.arange(len(scores)) % 7, scores, labels)
    left_out.update(np.array([True, False]), np.array([False, True]))
    original, refusing = ClickQuality(128, 0.5), quality(1)
    original.update(scores, labels)
    refusing.update([2.0], [1])
    states = {
        "quality/lifetime": refusing,
        "quality/last_16": original,
        "quality/last_32": rated,
        "users/lifetime": users,
        "labels/lifetime": left_out,
        "throughput": Throughput(),
        "table/item": table_health(10),
    }
    plain = read(states, Detail())
    tags = {tag for found in vars(plain).values() for tag in found}
    assert {tag.split("/")[1] for tag in tags} <= GROUPS
    assert named_tasks(tags) == []
    of_task = read({f"task/ctr/{key}": state for key, state in states.items()}, Detail())
    own = {tag for found in vars(of_task).values() for tag in found}
    assert own == {tag.replace("recommender/", "recommender/ctr/") for tag in tags}
    assert named_tasks([*own, *tags, "recommender/table/auc/lifetime"]) == ["ctr"]
    broken = dict.fromkeys(("task", "task/", "task/ctr", "task/ctr/"), rated)
    assert read(broken, Detail()).scalars == {}
