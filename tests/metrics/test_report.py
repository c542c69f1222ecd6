"""The tags of the values of states."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.metrics import roc_auc_score

from rec_summary.alerts.rules import read_rule
from rec_summary.metrics.feature_health import FeatureCounts
from rec_summary.metrics.lists import list_quality
from rec_summary.metrics.lists.choices import ChoiceQuality
from rec_summary.metrics.lists.ranked_lists import RankedLists
from rec_summary.metrics.quality import score_quality
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.labels import LabelCounts
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.quality.served import ServedQuality
from rec_summary.metrics.report import Detail, MetricValues, read, read_rows
from rec_summary.metrics.slices import report as slice_report
from rec_summary.metrics.slices.states import SlicedBatch, Slices, SliceState, Slicing
from rec_summary.metrics.state import State, restore
from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from rec_summary.metrics.tables.growth import IdTurnover, RowAges, hashed_ids
from rec_summary.metrics.tables.health import TableHealth
from rec_summary.metrics.tables.row_norms import RowNorms
from rec_summary.metrics.tags import GROUPS, OF_SLICES, named_tasks
from rec_summary.metrics.throughput import Throughput
from tests.support.laws import assert_equal_states, assert_laws, updated
from tests.support.metric_states import STORED, table_health


def clicks(seed: int, size: int = 500):
    random = np.random.default_rng(seed)
    scores = random.random(size).astype(np.float32) * 0.5
    return scores, (random.random(size) < scores).astype(np.float32)


def quality(seed: int) -> ClickQuality:
    return updated(ClickQuality(128), *clicks(seed))


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
    found = read({"quality/lifetime": state}, Detail())
    assert found.scalars["recommender/clicks/lifetime"] == clicks(1)[1].sum()
    assert "recommender/original_calibration/lifetime" not in found.scalars
    assert found.pr_curves["recommender/pr_curve/lifetime"].shape == (6, 129)
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
    assert not any((found.pr_curves, found.histograms, found.reliabilities, found.tops))


def test_curves_are_read_only_where_they_are_wanted() -> None:
    table = table_health(10)
    table.add(np.tile([1, 1, 2, 99], 2000))
    states = {"quality/lifetime": quality(1), "table/item": table}
    short, whole = (read(states, Detail(curves=curves)) for curves in (False, True))
    assert not any((short.pr_curves, short.histograms, short.tops))
    assert set(short.scalars) < set(whole.scalars)
    assert whole.tops["recommender/table/item/top_ids"][0].tolist()[:1] == [1]
    assert whole.scalars["recommender/table/item/out_of_range_share"] == 0.25


def test_the_alert_about_a_drop_of_an_auc_is_about_aucs_only() -> None:
    users = UserScores()
    scores, labels = clicks(1)
    users.update(np.arange(len(scores)) % 7, scores, labels)
    found = read({"quality/last_16": quality(1), "users/last_16": users}, Detail()).scalars
    pattern = read_rule("auc-drop").condition.tag
    assert pattern is not None
    meant = {tag for tag in found if pattern.matches(tag)}
    assert meant == {f"recommender/{name}/last_16" for name in ("auc", "gauc", "gauc_by_user")}
    assert found["recommender/grouped_users/last_16"] == 7


def test_every_value_is_in_a_group_and_a_task_has_it_in_its_own_part() -> None:
    scores, labels = clicks(1)
    rated = updated(RatingErrors(), [1, math.nan], [2, 2])
    users = updated(UserScores(), np.arange(len(scores)) % 7, scores, labels)
    left_out = updated(LabelCounts(), np.array([True, False]), np.array([False, True]))
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


def numbers(key: str, state: State, detail: Detail | None = None, **others: State):
    """Returns the numbers of a state, by their names."""
    found = read({key: state, **others}, detail or Detail(curves=False)).scalars
    return {tag.removeprefix("recommender/"): number for tag, number in found.items()}


def test_the_numbers_of_clicks() -> None:
    state = updated(ClickQuality(128, 0.5, (0.4,)), *clicks(1))
    state.update([2.0], [1])
    loss, order = state.loss, state.order
    brief = {
        "auc/x": order.auc().value,
        "roc_error_bound/x": 0.0,
        "normalised_entropy/x": loss.normalised_entropy(),
        "calibration/x": loss.calibration(),
        "clicks/x": loss.clicks,
        "click_rate/x": loss.click_rate,
        "examples/x": 500,
    }
    entropies = score_quality.entropies(state)
    threshold = score_quality.threshold_at(order, 0.4)
    only = {tag.removesuffix("/x") for tag in brief}
    assert numbers("quality/x", state, Detail(curves=False, only=only)) == brief
    assert numbers("quality/x", state) == {
        **brief,
        "average_precision/x": score_quality.average_precision(order),
        "log_loss/x": loss.log_loss(),
        "calibration_error/x": score_quality.expected_calibration_error(state).value,
        "calibration_error_bound/x": score_quality.expected_calibration_error(state).bound,
        "calibration_free_entropy/x": loss.calibration_free_entropy(),
        "recalibrated_entropy/x": entropies.recalibrated,
        "entropy_of_clicks/x": entropies.of_clicks,
        "original_calibration/x": score_quality.original_calibration(state),
        "threshold_at_precision_40/x": threshold.score,
        "recall_at_precision_40/x": threshold.recall,
        "refused/x": 1,
    }


@pytest.mark.parametrize(
    ("size", "cells"), [(1, 4096), (2, 4096), (64, 4096), (65, 4096), (1000, 4096), (20_000, 128)]
)
def test_the_histogram_of_scores_is_that_of_numpy(size: int, cells: int) -> None:
    random = np.random.default_rng(size)
    scores, weights = random.permutation(size) / (2 * size), random.integers(1, 9, size) / 4
    state = updated(ClickQuality(cells), scores, random.random(size) < 0.3, weights)
    state.seal()
    edges, counts = read({"quality/x": state}, Detail()).histograms["recommender/scores/x"]
    assert counts.tolist() == np.histogram(scores, edges, weights=weights)[0].tolist()
    assert (np.diff(edges) > 0).all()
    assert edges[-1] == pytest.approx(scores.max(), rel=0.02, abs=1e-300)
    if cells > size:  # a cell for each score
        of_bucket = -(-size // 64)
        assert len(counts) == -(-size // of_bucket)
    assert len(counts) <= 64


def test_the_numbers_of_served_scores() -> None:
    scores, labels = clicks(3)
    state = ServedQuality()
    served = np.append(scores[:-5] / 2, [math.nan] * 5)
    state.update(scores, labels, None, None, served, np.arange(500))
    change, gain = state.loss_change(), state.auc_gain()
    brief = {
        "served_ne_change/x": change.change,
        "served_ne_change_standard_error/x": change.error,
        "served_auc_gain/x": gain[0],
        "served_auc_gain_standard_error/x": gain[1],
        "served_calibration/x": state.served.loss.calibration(),
        "served_skewed_share/x": 1.0,
        "served_missing/x": 0.01,
    }
    assert numbers("served/x", state, Detail(curves=False, full=False)) == brief
    difference = {"served_score_difference/x": state.score_difference()}
    assert numbers("served/x", state) == brief | difference
    only = Detail(curves=False, only={"served_auc_gain"})
    assert numbers("served/x", state, only) == {
        "served_auc_gain/x": gain[0],
        "served_auc_gain_chance_error/x": gain[1],
    }
    assert numbers("served/x", ServedQuality()) == {}


def test_the_numbers_of_ratings_choices_and_labels() -> None:
    rated = updated(RatingErrors(), [1, 2, math.nan], [2, 5, 2])
    expected = {"rmse/x": math.sqrt(5), "mae/x": 2, "bias/x": -2, "examples/x": 2, "refused/x": 1}
    assert numbers("quality/x", rated) == pytest.approx(expected)
    classes = updated(ChoiceQuality(), [[0.5, 0.5], [0.25, 0.75], [0.5, 0.2]], [0, 1, 0])
    loss = (math.log(2) - math.log(0.75)) / 2
    expected = {"accuracy/x": 0.5, "log_loss/x": loss, "examples/x": 2, "refused/x": 1}
    assert numbers("quality/x", classes) == pytest.approx(expected)
    retrieval = ChoiceQuality(0, (1, 2))
    retrieval.update([[0.5, 0.2], [0.5, 0.2], [0.5, math.nan], [math.inf, 0]], [0, 1, 0, 0])
    assert numbers("quality/x", retrieval) == pytest.approx(
        {
            **{f"in_batch_{name}_at_1/x": 2 / 3 for name in ("recall", "ndcg", "mrr")},
            "in_batch_recall_at_2/x": 1,
            "in_batch_ndcg_at_2/x": (2 + 1 / math.log2(3)) / 3,
            "in_batch_mrr_at_2/x": 2.5 / 3,
            "in_batch_candidates/x": 5 / 3,
            "in_batch_examples/x": 3,
            "refused/x": 1,
        }
    )
    left_out = updated(LabelCounts(), np.array([True, False, False]), np.array([False, True, True]))
    assert numbers("labels/x", left_out) == {"masked/x": 1, "missing_labels/x": 2}
    assert numbers("labels/x", LabelCounts()) == {}


def test_the_numbers_of_users_and_lists() -> None:
    users = UserScores(64, 16)
    random = np.random.default_rng(0)
    users.update(random.zipf(1.5, 500) % 60, random.random(500), random.random(500) < 0.5)
    assert numbers("users/x", users) == {
        "gauc/x": users.gauc().value,
        "gauc_by_user/x": users.gauc(by_user=True).value,
        "grouped_users/x": users.gauc().users,
        "grouped_standard_error/x": users.gauc().standard_error,
        "gauc_by_user_standard_error/x": users.gauc(by_user=True).standard_error,
        "grouped_error_bound/x": users.gauc().cell_error_bound + users.gauc().bias_bound,
    }
    assert users.gauc().value != users.gauc(by_user=True).value
    assert min(users.gauc().cell_error_bound, users.gauc().bias_bound) > 0
    lists = RankedLists(64, 4, at=(1, 2))
    lists.update([1, 1, 1, 2, 2, *[3] * 5], [3, 2, 1, 2, 1, *range(5)], [0, 1, 0, 0, 0, *[1] * 5])
    at_1, at_2 = (list_quality.top_of_lists(lists.sampled(), k) for k in (1, 2))
    expected = {
        f"{name}_at_{k}/x": getattr(top, name)
        for k, top in ((1, at_1), (2, at_2))
        for name in ("ndcg", "recall", "precision", "hit_rate", "mrr")
    }
    assert expected["mrr_at_2/x"] == 0.5
    assert numbers("lists/x", lists) == {
        **expected,
        **{name.replace("/", "_standard_error/"): 0 for name in expected},
        "pair_accuracy/x": 0.5,
        "pair_accuracy_standard_error/x": 0,
        "lists_counted/x": 1,
        "lists_standard_error/x": 0,
        "lists_without_hit_share/x": 0.5,
        "lists_sampled_share/x": 1,
        "lists_too_long_share/x": 1 / 3,
    }
    random, part = np.random.default_rng(0), RankedLists(64, 4, at=(1, 2))
    part.update(np.arange(400) // 4, random.random(400), random.random(400) < 0.4)
    first, second = (list_quality.top_of_lists(part.sampled(), k) for k in (1, 2))
    errors = first.standard_errors[0], second.standard_errors[0]
    assert 0 < errors[0] != errors[1]
    found = numbers("lists/x", part)
    assert found["lists_standard_error/x"] == found["ndcg_at_1_standard_error/x"] == errors[0]
    assert found["ndcg_at_2_standard_error/x"] == errors[1]
    sampled = list_quality.pairs_in_lists(part.sampled())
    assert found["pair_accuracy_standard_error/x"] == sampled.standard_error > 0
    pairs = list_quality.pairs_of_all(lists.sampled())
    assert numbers("pairs/x", lists) == {"xauc/x": pairs, "xauc_sampled_share/x": 1}
    assert set(numbers("lists/x", RankedLists(64, 4, at=(1,))).values()) == {0}
    assert numbers("pairs/x", RankedLists(64, 4)) == {}


def test_the_numbers_of_tables_and_features() -> None:
    table, window = table_health(10, 9), table_health(10, 9)
    before = table.touched.copy()
    before.add([1])
    table.add([1, 2, 9, 12])
    window.add([2, 9])
    shares = {"ids": 4, "out_of_range_share": 0.25, "unknown_share": 0.25}
    of_table = {"touched_rows": 3, "touched_share": 0.3, **shares}
    of_window = {"touched_rows": 2, "touched_share": 0.2, "ids": 2, "unknown_share": 0.5}
    of_window |= {"out_of_range_share": 0}
    turnover = IdTurnover(before, hashed=True)
    turnover.add_batch(np.array([2, 2, 9]))
    hashed, colliding = hashed_ids(table.touched)
    of_turnover = {
        "window/new_rows": 2,
        "window/new_share": 1,
        "window/different_share": 2 / 3,
        "hashed_ids": hashed,
        "colliding_share": colliding,
    }
    both = {"table/item": table, "table_window/item": window}

    def named(start: str, expected: dict[str, float]) -> dict[str, float]:
        return {f"table/item/{start}{name}": number for name, number in expected.items()}

    plain = {**named("", of_table), **named("window/", of_window)}
    assert numbers("table/item", table) == named("", of_table)
    assert numbers("table_window/item", window) == named("window/", of_window)
    assert numbers("turnover/item", turnover, **both) == {**plain, **named("", of_turnover)}
    assert numbers("turnover/item", turnover, **{"table/item": table}) == {
        **named("", of_table),
        **named("", {"hashed_ids": hashed, "colliding_share": colliding}),
    }
    assert numbers("turnover/item", IdTurnover(before), **both) == {
        **plain,
        **named("", dict(itertools.islice(of_turnover.items(), 2))),
    }
    unchanged = numbers("turnover/item", IdTurnover(table.touched.copy()), **both)
    assert unchanged["table/item/window/new_rows"] == 0
    assert numbers("ages/item", turnover, **both) == plain
    nothing = both | {"table_window/item": table_health(10)}
    assert "table/item/window/new_rows" not in numbers("turnover/item", turnover, **nothing)
    assert numbers("turnover/item", LabelCounts(), **both) == plain
    assert numbers("turnover/item", turnover, **(both | {"table/item": LabelCounts()})) == named(
        "window/", of_window
    )
    assert numbers("table_window/item", table_health(10)) == {}
    known = table_health(10)
    known.add([1])
    assert "table/item/unknown_share" not in numbers("table/item", known)
    assert "table/item/touched_share" not in numbers("table/item", table_health(None))
    whole = IdFrequency(FrequencyOptions(1000, sample_one_in=1))
    many = TableHealth(TouchedRows(TouchedOptions(1000)), whole)
    many.add(np.concatenate([np.arange(300), np.arange(100), np.full(5, 7)]))
    found = read({"table/item": many}, Detail())
    assert found.scalars["recommender/table/item/top_100_share"] == 205 / 405
    counts = found.tops["recommender/table/item/top_ids"][1]
    assert counts[:3].tolist() == [7, 2, 2]
    assert len(counts) == 20
    outside = table_health(10)
    outside.add([99])
    assert not read({"table/item": outside}, Detail()).tops
    ages = RowAges(np.arange(2))
    ages.touch(np.array([True, False]), 5)
    ages.touch(np.array([False, False]), 12)
    shares = ("p0", "p25", "p50", "p75", "p99", "p100")
    assert numbers("ages/item", ages) == {f"table/item/row_age/{name}": 7 for name in shares}
    norms = RowNorms(np.arange(2), 1)
    norms.snapshot([[3.0], [-3.0]])
    values = MetricValues()
    read_rows(values, "item", norms, np.array([True, False]), Detail())
    expected = {f"recommender/table/item/row_norm/{name}": 3.0 for name in shares}
    assert values.scalars == {**expected, "recommender/table/item/dead_share": 0.5}
    feature = FeatureCounts()
    assert numbers("feature/age", feature) == {}
    feature.add(np.array([0.0, 0.0, 0.0, math.nan, 200.0]), 0, 0, 100)
    assert numbers("feature/age", feature) == {
        "feature/age/missing_share": 0.2,
        "feature/age/default_share": 0.6,
        "feature/age/out_of_range_share": 0.2,
    }
    assert numbers("cardinality/age", table.touched) == {"feature/age/different_values": 3}


@pytest.mark.parametrize("name", ["drift", "throughput", "log histogram"])
def test_the_numbers_of_states_that_have_reports(name) -> None:
    state = restore(*STORED[name])
    if name == "log histogram":
        assert numbers("label_delay", state) == state.report("label_delay/seconds")
        return
    finite = {tag: value for tag, value in state.report().items() if math.isfinite(value)}
    assert finite
    assert numbers(name, state) == finite


def test_the_numbers_of_slices_of_clicks() -> None:
    random = np.random.default_rng(2)
    names = random.permutation(np.repeat(["good", "bad", "few", "rest"], [1000, 800, 150, 30]))
    labels = random.random(1980) < np.where(names == "few", 0.2, 0.4)
    signal = np.where(names == "bad", 0.1, 0.5)
    scores = 0.25 + signal * labels * random.random(1980) + 0.25 * random.random(1980)
    state = Slices(
        SliceState(("auc", "calibration", "log_loss"), {"quality": ClickQuality(4096)}), 3, 2
    )
    values, codes = np.unique(names, return_inverse=True)
    prepared = ClickQuality(4096).prepare(clean(scores, labels))
    state.count(SlicedBatch(Slicing(codes, values.tolist()), {"quality": prepared}))
    assert state.closed
    found = read({"slice/country/x": state}, Detail())
    aucs, calibrations, errors = {}, {}, {}
    for name in ("good", "bad", "few", "rest"):
        own = names == name
        quality = updated(ClickQuality(4096), scores[own], labels[own])
        aucs[name] = roc_auc_score(labels[own], scores[own])
        calibrations[name] = scores[own].sum() / labels[own].sum()
        errors[name] = slice_report.auc_standard_error(quality)
    expected = {
        f"recommender/slice/country={slice_}/{metric}/x": of[name]
        for slice_, name in (("good", "good"), ("bad", "bad"), ("other", "rest"))
        for metric, of in (("auc", aucs), ("calibration", calibrations))
    }
    ends = [calibrations["good"], calibrations["bad"]]
    of_column = {
        "auc_worst": aucs["bad"],
        "auc_gap": aucs["good"] - aucs["bad"],
        "auc_gap_error": math.hypot(errors["good"], errors["bad"]),
        "auc_error_bound": 0,
        "calibration_worst": max(ends, key=lambda each: abs(each - 1)),
        "calibration_gap": max(ends) - min(ends),
    }
    expected |= {f"recommender/slice/country/{name}/x": of_column[name] for name in of_column}
    scalars = {tag: each for tag, each in found.scalars.items() if "/log_loss" not in tag}
    assert scalars == pytest.approx(expected, rel=1e-6)
    (table,) = found.tables.values()
    assert table[0][:4] == ("country", "examples", "clicks", "click rate")
    assert table[0][4] == "auc"
    assert [row[0] for row in table[1:]] == ["bad", "good", "few", "other"]
    assert [row[1] for row in table[1:]] == ["800", "1,000", "150", "30"]
    assert table[1][4] == f"{aucs['bad']:.4f} ± {errors['bad']:.4f}"
    assert list(found.tables) == ["recommender/slice/country/table/x"]
    assert not read({"slice/country/x": state}, Detail(curves=False)).tables


def test_slices_may_have_all_metrics_of_clicks() -> None:
    metrics = (*OF_SLICES, "log_loss", "average_precision")
    state = Slices(SliceState(metrics, {"quality": ClickQuality(128)}))
    codes, prepared = np.zeros(500, np.intp), ClickQuality(128).prepare(clean(*clicks(1)))
    state.count(SlicedBatch(Slicing(codes, ["a"]), {"quality": prepared}))
    alone = numbers("quality/x", quality(1))
    assert numbers("slice/c/x", state) == {
        f"slice/c=a/{name}/x": alone[f"{name}/x"]
        for name in ("auc", "calibration", "log_loss", "average_precision")
    }


@pytest.mark.parametrize(
    ("weight", "shown"),
    [(2.0**-16, "0.00305"), (2.0**-3, "25"), (1.0, "200"), (2.0**12, "819,200")],
)
def test_a_table_of_slices_has_sums_of_weights_also_if_they_are_small(weight, shown) -> None:
    state = Slices(RatingErrors())
    labels = np.arange(200) % 2
    state.update(np.full(200, "a"), np.full(200, 0.5), labels, np.full(200, weight))
    (table,) = read({"slice/c/x": state}, Detail()).tables.values()
    assert dict(zip(*table, strict=True))["examples"] == shown


@pytest.mark.parametrize("weight", [0.125, 8.0])
@pytest.mark.parametrize(("clicks", "compared"), [(99, False), (100, True)])
def test_slices_are_compared_by_their_effective_numbers_of_clicks(weight, clicks, compared) -> None:
    state = Slices(ClickQuality(64))
    for name, number in (("a", clicks), ("b", 100)):
        labels = np.arange(2 * number) < number
        size = len(labels)
        state.update(np.full(size, name), np.full(size, 0.5), labels, np.full(size, weight))
    assert ("slice/c/auc_gap/x" in numbers("slice/c/x", state)) == compared


@pytest.mark.parametrize(("examples", "compared"), [(99, False), (100, True)])
def test_slices_of_ratings_are_compared_from_100_examples_on(examples, compared) -> None:
    state = Slices(RatingErrors())
    state.update(np.full(examples, "a"), np.full(examples, 3.0), np.full(examples, 1))
    state.update(np.full(200, "b"), np.full(200, 3.0), np.full(200, 4))
    found = numbers("slice/c/x", state, Detail())
    of_slices = {
        "slice/c=a/rmse/x": 2,
        "slice/c=a/bias/x": 2,
        "slice/c=b/rmse/x": 1,
        "slice/c=b/bias/x": -1,
    }
    of_column = {
        "slice/c/rmse_worst/x": 2,
        "slice/c/rmse_gap/x": 1,
        "slice/c/bias_worst/x": 2,
        "slice/c/bias_gap/x": 3,
    }
    assert found == (of_slices | of_column if compared else of_slices)
    (table,) = read({"slice/c/x": state}, Detail()).tables.values()
    assert table[0] == ("c", "examples", "rmse", "mae", "bias")
    rows = [("a", f"{examples}", "2", "2", "2"), ("b", "200", "1", "1", "-1")]
    assert table[1:] == (rows if compared else rows[::-1])


def test_slices_of_a_retrieval_have_a_number_of_examples_and_one_click_no_error() -> None:
    metric, choices = "in_batch_recall_at_1", ChoiceQuality(0, (1,))
    state = Slices(SliceState((metric,), {"quality": choices}))
    batch, _ = choices.prepare([[0.5, 0.2]] * 300, np.repeat([0, 1], 150))
    codes = np.repeat([0, 1, 2], 100)
    state.count(SlicedBatch(Slicing(codes, ["a", "b", "c"]), {"quality": batch}))
    found = numbers("slice/c/x", state)
    assert [found[f"slice/c={name}/{metric}/x"] for name in "abc"] == [1, 0.5, 0]
    assert (found[f"slice/c/{metric}_worst/x"], found[f"slice/c/{metric}_gap/x"]) == (0, 1)
    clicked = updated(ClickQuality(64), np.arange(9) / 9, np.arange(9) == 4)
    assert math.isnan(slice_report.auc_standard_error(clicked))
    clicked.update([0.5], [1])
    assert slice_report.auc_standard_error(clicked) > 0
