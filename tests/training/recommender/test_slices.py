"""Slices: the metrics of each value of a column, and which value an example has."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

pytest.importorskip("mindspore")
pytest.importorskip("sklearn")

from sklearn import metrics

from rec_summary import RecommenderMetrics, Slice, Task, export_tensorboard
from rec_summary._pb.summary_pb2 import Event
from rec_summary.metrics.report import Detail, MetricValues, read
from rec_summary.metrics.state import kind_of, restore
from rec_summary.metrics.tables.seen import SeenCounts
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.training.recommender.counting.aggregator import Aggregator, ReportRequest
from rec_summary.training.recommender.counting.persistence import load, state_path, unpack
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join
from rec_summary.training.recommender.slices import slicing
from tests.support import event_files
from tests.support.laws import assert_equal_states
from tests.support.record_dirs import START

SIZE = 300
TASKS = MappingProxyType(
    {
        "ctr": Task(predictions=1, labels=2),
        "stars": Task(predictions=3, labels=4, mask=2, kind="ratings"),
    }
)
SLICES = MappingProxyType(
    {
        "country": Slice(("context", 1), names={0: "DE", 1: "FR"}),
        "age": Slice("age", edges=(18, 30.5)),
        "user": Slice("user", new=3),
    }
)
OPTIONS = RecommenderMetrics(
    tasks=TASKS, slices=SLICES, last=(1200,), detail=True, throughput=False, host=False
)


def batch(seed: int, size: int = SIZE) -> StepInputs:
    random = np.random.default_rng(seed)
    country = random.integers(0, 3, size)
    score = 1 / (1 + np.exp(1 - country - random.normal(size=size)))
    click = random.random(size) < score
    values = {
        ("output", 1): score.astype(np.float32),
        ("output", 2): click.astype(np.float32),
        ("output", 3): (1 + 4 * score).astype(np.float32),
        ("output", 4): random.integers(1, 6, size),
        ("name", "context"): np.stack([country * 7, country], axis=1),
        ("name", "age"): random.integers(10, 60, size),
        ("name", "user"): random.integers(0, 200, size),
    }
    return StepInputs(values, size, 0.1, 0.0, 0.0)


def counted(
    options: RecommenderMetrics, batches: list[StepInputs]
) -> tuple[MetricValues, Troubles]:
    troubles = Troubles()
    rank = RankMetrics(options, {}, troubles)
    for each in batches:
        rank.update(join([each], rank.places, troubles))
    return read(rank.end_interval(), Detail()), troubles


def whole(batches: list[StepInputs]) -> dict[object, np.ndarray]:
    return {
        place[1]: np.concatenate([each.values[place] for each in batches])
        for place in batches[0].values
    }


def test_the_metrics_of_each_slice_are_those_of_scikit_learn() -> None:
    batches = [batch(seed) for seed in range(8)]
    values, troubles = counted(OPTIONS, batches)
    assert troubles.counts == {}
    every = whole(batches)
    for window, last in (("lifetime", 2400), ("last_1200", 1200)):
        now = {name: column[-last:] for name, column in every.items()}
        country, age, click = now["context"][:, 1], now["age"], now[2] == 1
        earlier = [np.count_nonzero(every["user"][:at] == u) for at, u in enumerate(every["user"])]
        new = np.array(earlier[-last:]) < 3
        slices = {
            **{f"country={name}": country == code for code, name in enumerate(("DE", "FR", "2"))},
            "age=below 18": age < 18,
            "age=18 to 30.5": (age >= 18) & (age < 30.5),
            "age=from 30.5": age >= 30.5,
            "user=new": new,
            "user=known": ~new,
        }
        expected = {}
        for name, mine in slices.items():
            score = now[1].astype(np.float64)
            area = metrics.roc_auc_score(click[mine], score[mine])
            expected[f"ctr/slice/{name}/auc"] = area
            expected[f"ctr/slice/{name}/calibration"] = score[mine].sum() / click[mine].sum()
        for name, mine in slices.items():
            errors = (now[3].astype(np.float64) - now[4])[mine & click]
            # A window of the task has the last clicks, and not those of the last examples.
            if window == "lifetime":
                expected[f"stars/slice/{name}/rmse"] = math.sqrt(np.mean(errors**2))
        found = {tag: values.scalars[f"recommender/{tag}/{window}"] for tag in expected}
        # Of more than 1,024 examples, the cells of a slice are coarser than the scores.
        bounds = [
            values.scalars[f"recommender/ctr/slice/{name}/auc_error_bound/lifetime"]
            for name in SLICES
        ]
        assert 0 < max(bounds) < 0.008
        for tag, number in expected.items():
            exact = pytest.approx(number, rel=1e-6)
            if tag.endswith("/auc"):
                exact = pytest.approx(number, abs=5e-4)
            assert found[tag] == exact, tag
        areas = [found[f"ctr/slice/country={name}/auc"] for name in ("DE", "FR", "2")]
        start = "recommender/ctr/slice/country/auc"
        assert values.scalars[f"{start}_worst/{window}"] == pytest.approx(min(areas))
        assert values.scalars[f"{start}_gap/{window}"] == pytest.approx(max(areas) - min(areas))
        assert f"recommender/ctr/slice/country/table/{window}" not in values.tables
        header, *rows = values.tables[f"recommender/stars/slice/country/table/{window}"]
        assert header == ("country", "examples", "rmse", "mae", "bias")
        start = "recommender/stars/slice/country"
        errors = [values.scalars[f"{start}={name}/rmse/{window}"] for name in ("DE", "FR", "2")]
        assert [row[2] for row in rows] == [f"{e:.5g}" for e in sorted(errors, reverse=True)]


EVERY_METRIC = RecommenderMetrics(
    tasks={
        "ctr": Task(predictions=1, labels=2, users="user", lists="list"),
        "stars": Task(predictions=3, labels=4, kind="ratings", lists="list"),
        "kind": Task(predictions=5, labels=6, kind="classes"),
        "tower": Task(predictions=7, kind="retrieval"),
    },
    slices={
        "country": Slice(
            ("context", 1),
            metrics=(
                *("auc", "log_loss", "recalibrated_entropy", "gauc", "gauc_by_user"),
                *("ndcg_at_5", "recall_at_5", "pair_accuracy", "rmse", "xauc", "accuracy"),
                *("in_batch_ndcg_at_5", "in_batch_mrr_at_5"),
            ),
        )
    },
    k=(5,),
    last=(1200,),
    half_lives=(640,),
    detail=True,
    throughput=False,
    host=False,
)


def of_every_kind(seed: int, invalid: bool = False) -> StepInputs:
    random = np.random.default_rng(seed)
    found = batch(seed)
    shares = random.random((SIZE, 4))
    found.values.update(
        {
            ("name", "list"): 100 * seed + random.integers(0, 30, SIZE),
            ("output", 5): shares / shares.sum(axis=1, keepdims=True),
            ("output", 6): random.integers(0, 4, SIZE),
            ("output", 7): random.normal(size=(SIZE, SIZE)) + 2 * np.eye(SIZE),
        }
    )
    if invalid:
        found.values["output", 1][:2] = np.nan
    return found


@pytest.mark.parametrize("invalid", [False, True])
def test_each_metric_of_a_slice_is_that_of_a_task_with_its_examples_alone(invalid) -> None:
    batches = [of_every_kind(seed, invalid) for seed in range(4)]
    values, troubles = counted(EVERY_METRIC, batches)
    assert troubles.counts == {}
    plain = replace(EVERY_METRIC, slices={})
    for code, name in enumerate("012"):
        only = []
        for each in batches:
            mine = each.values["name", "context"][:, 1] == code
            own = {place: value[mine] for place, value in each.values.items()}
            only.append(StepInputs(own, int(mine.sum()), 0.1, 0.0, 0.0))
            # The label is the column of the own item, of the whole batch.
            own["output", 8] = np.flatnonzero(mine)
        tower = Task(predictions=7, labels=8, kind="retrieval")
        alone = replace(plain, tasks={**plain.tasks, "tower": tower})
        expected = counted(alone, only)[0].scalars
        for task in EVERY_METRIC.tasks:
            found = {
                metric: values.scalars[f"recommender/{task}/slice/country={name}/{metric}/lifetime"]
                for metric in EVERY_METRIC.slices["country"].metrics
                if f"recommender/{task}/{metric}/lifetime" in expected
            }
            assert len(found) == {"ctr": 8, "stars": 5, "kind": 2, "tower": 2}[task]
            for metric, number in found.items():
                tolerance = 5e-3 if metric in ("auc", "recalibrated_entropy") else 1e-6
                wanted = expected[f"recommender/{task}/{metric}/lifetime"]
                assert number == pytest.approx(wanted, abs=tolerance), (task, metric)
    every = whole(batches)
    mine = (every["context"][:, 1] == 1) & ~np.isnan(every[1])
    areas, sizes = [], []
    for user in np.unique(every["user"][mine]):
        own = mine & (every["user"] == user)
        if 0 < every[2][own].sum() < own.sum():
            areas.append(metrics.roc_auc_score(every[2][own], every[1][own]))
            sizes.append(own.sum())
    gauc = values.scalars["recommender/ctr/slice/country=1/gauc/lifetime"]
    assert gauc == pytest.approx(np.average(areas, weights=sizes), abs=1e-9)
    assert "recommender/ctr/slice/country/gauc_worst/last_1200" in values.scalars
    header = values.tables["recommender/ctr/slice/country/table/lifetime"][0]
    assert {"auc", "gauc", "ndcg at 5"} <= set(header)


def test_the_states_of_several_metrics_by_slice_merge_and_restart(tmp_path) -> None:
    parts = []
    for first in (0, 2):
        rank = RankMetrics(EVERY_METRIC, {}, Troubles())
        for seed in range(first, first + 2):
            rank.update(join([of_every_kind(seed)], rank.places, Troubles()))
        parts.append(rank.states())
    restored = RankMetrics(EVERY_METRIC, {}, Troubles())
    restored.restore({key: restore(kind_of(s), s.arrays()) for key, s in parts[0].items()}, 600)
    key = "task/ctr/slice/country/lifetime"
    assert_equal_states(restored.states()[key], parts[0][key])
    merged = parts[0][key].total()
    merged.merge(parts[1][key].total())
    both = counted(EVERY_METRIC, [of_every_kind(seed) for seed in range(4)])[0].scalars
    found = read({key: merged}, Detail()).scalars
    assert len(found) > 20
    for tag, number in found.items():
        assert number == pytest.approx(both[tag], abs=1e-9 if "auc" not in tag else 5e-3), tag


def test_metrics_that_no_task_has_or_that_slices_cannot_have_are_refused() -> None:
    for metric in ("gauc", "ndcg_at_10", "acu"):
        with pytest.raises(ValueError, match=f"metrics of slices.*{metric}.*auc, average"):
            RecommenderMetrics(
                predictions=1, labels=2, slices={"a": Slice("x", metrics=["auc", metric])}
            )
    with pytest.raises(TypeError, match="metrics is invalid"):
        Slice("x", metrics="auc")
    with pytest.raises(ValueError, match=r"metrics is invalid. Received: \(\)"):
        Slice("x", metrics=())
    chosen = RecommenderMetrics(
        predictions=1, labels=2, users="u", slices={"a": Slice("x", metrics=("gauc",))}
    )
    settings = json.loads(RankMetrics(chosen, {}, Troubles()).settings)
    assert settings["slices"]["a"]["metrics"] == ["gauc"]


def test_the_slices_of_a_task_that_predicts_nan_are_lost_and_those_of_others_are_not() -> None:
    lost = batch(9)
    lost.values["output", 1][:] = np.nan
    rank = RankMetrics(OPTIONS, {}, Troubles())
    rank.update(join([batch(8), lost], rank.places, Troubles()))
    values = read(rank.end_interval(), Detail())
    rank.mark_lost(values)
    found = {
        task: [v for t, v in values.scalars.items() if t.startswith(f"recommender/{task}/slice/")]
        for task in OPTIONS.tasks
    }
    assert {task: {math.isnan(each) for each in found[task]} for task in found} == {
        task: {task == "ctr"} for task in OPTIONS.tasks
    }


def test_slices_of_too_many_values_show_the_frequent_ones_and_the_rest() -> None:
    options = RecommenderMetrics(
        predictions=1,
        labels=2,
        slices={"user": Slice("user", shown=2, most=5, metrics=("auc", "log_loss"))},
        throughput=False,
        host=False,
    )
    values, troubles = counted(options, [batch(seed) for seed in range(8)])
    assert troubles.counts == {}
    shown = {tag.split("/")[2] for tag in values.scalars if "/slice/user=" in tag}
    assert len(shown) == 3
    assert "user=other" in shown
    assert len(values.tables["recommender/slice/user/table/last_100000"]) == 1 + 5 + 1


def names_of(options: Slice, values: np.ndarray, seen: SeenCounts | None = None) -> list[str]:
    found = slicing(options, values, seen)
    return [found.names[code] if code >= 0 else "-" for code in found.codes.ravel().tolist()]


def test_the_names_of_values() -> None:
    plain = Slice("x")
    assert names_of(plain, np.array([[3], [-1]])) == ["3", "-1"]
    assert names_of(plain, np.array(["DE", "FR"])) == ["DE", "FR"]
    assert names_of(plain, np.array([b"DE", b"\xff"])) == ["DE", "�"]
    assert names_of(plain, np.array(["DE", "x"], object)) == ["DE", "x"]
    with pytest.raises(ValueError, match=r"Received: dtype.'float32'.*floats need `edges`, or"):
        names_of(plain, np.array([0, 0.5], np.float32))
    assert names_of(Slice("x", missing=0), np.array([[1, 0], [2, 1]])) == ["1", "-", "2", "1"]
    assert names_of(Slice("x", missing=0), np.array([1, 0])) == ["1", "missing"]
    # A category in a column of floats has its name.
    gender, floats = Slice("x", names={0: "female", 1: "male"}), [0.0, 1.0, 7.0, np.nan, -np.inf]
    assert names_of(gender, np.array(floats)) == ["female", "male", "7", "missing", "missing"]
    cold = Slice("x", new=2, names={0: "cold", 1: "warm"})
    seen = SeenCounts()
    assert names_of(cold, np.array([7, 7, 7, 8]), seen) == ["cold", "cold", "warm", "cold"]
    assert names_of(cold, np.array([8, 8, 7]), seen) == ["cold", "warm", "warm"]
    assert names_of(cold, np.array(["a", "a", "a"]), SeenCounts()) == ["cold", "cold", "warm"]


def test_a_column_that_does_not_fit_stops_nothing_else() -> None:
    broken = batch(1)
    broken.values["name", "age"] = broken.values["name", "age"][:-1]
    broken.values["name", "user"] = np.zeros((2, 2, 2), np.int64)
    values, troubles = counted(OPTIONS, [broken])
    assert set(troubles.counts) == {
        "recommender metrics: slice user",
        "recommender metrics: slice age of ctr",
        "recommender metrics: slice age of stars",
    }
    assert "recommender/ctr/slice/country=DE/auc/lifetime" in values.scalars
    assert "recommender/stars/rmse/lifetime" in values.scalars


def engine(folder: Path, rank: int = 0, rank_size: int = 1) -> Aggregator:
    folder.mkdir(parents=True, exist_ok=True)
    return Aggregator(OPTIONS, {}, str(folder), rank, rank_size, Troubles())


def request(step: int, *, final: bool = True) -> ReportRequest:
    return ReportRequest(step, START + step, True, final)


def test_a_restarted_run_is_where_an_unbroken_one_is(tmp_path) -> None:
    whole = engine(tmp_path / "whole")
    for first, last in ((0, 2), (2, 6)):
        whole.work([batch(seed) for seed in range(first, last)], request(last))
    for first, last in ((0, 2), (2, 6)):
        part = engine(tmp_path / "broken")
        for seed in range(first, last):
            part.work([batch(seed)], None)
        part.work([], request(last))
    expected, found = (
        unpack(load(state_path(str(tmp_path / name), 0))) for name in ("whole", "broken")
    )
    assert {"task/ctr/slice/age/lifetime", "seen/user"} <= expected.keys() == found.keys()
    for key, state in expected.items():
        assert_equal_states(state, found[key])


def test_ranks_merge_to_the_slices_of_all_data_and_the_table_is_shown(tmp_path) -> None:
    for rank in range(2):
        each = engine(tmp_path / "state", rank, 2)
        files = RunWriter(tmp_path / "records" / "run", rank)
        parts = [batch(seed) for seed in range(rank, 8, 2)]
        files.write(MessageRecord(Event.FromString(each.work(parts, request(4)))))
        files.close()
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    merged = {value.tag: value for _, _, value in event_files.values(tmp_path / "logs" / "run")}
    every = whole([batch(seed) for seed in range(8)])
    mine = every["context"][:, 1] == 1
    area = metrics.roc_auc_score(every[2][mine], every[1][mine])
    shown = merged["recommender_detail/ctr/slice/country=FR/auc/lifetime"]
    assert shown.simple_value or shown.tensor.float_val[0] == pytest.approx(area, abs=1e-5)
    assert "recommender/ctr/slice/country/auc_gap/lifetime" in merged
    text = merged["recommender/stars/slice/country/table/lifetime"].tensor.string_val[0].decode()
    header, line, *rows = text.splitlines()
    assert header.startswith("| country | examples | rmse | mae | bias |")
    assert line == "|" + " --- |" * header.count(" |")
    assert sorted(row.split(" | ")[0] for row in rows) == ["| 2", "| DE", "| FR"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"edges": (2, 1)}, "edges is invalid"),
        ({"edges": (math.inf,)}, "edges is invalid"),
        ({"new": 256}, "new is invalid"),
        ({"new": 1, "edges": (1,)}, "new is invalid"),
        ({"names": ["a"]}, "names is invalid"),
        ({"names": {"a": "b"}}, "names is invalid"),
        ({"most": 0}, "most is invalid"),
        ({"missing": "x"}, "missing is invalid"),
    ],
)
def test_an_invalid_slice_is_refused(options, error) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        Slice("x", **options)


def test_slices_need_a_task_and_a_name_that_fits_a_tag() -> None:
    with pytest.raises(ValueError, match="slices is invalid"):
        RecommenderMetrics(slices={"a": "x"})
    with pytest.raises(ValueError, match="a name of slices is invalid"):
        RecommenderMetrics(predictions=1, labels=2, slices={"a/b": "x"})
    with pytest.raises(TypeError, match=r"slices\['a'\]"):
        RecommenderMetrics(predictions=1, labels=2, slices={"a": 1.5})
    settings = json.loads(RankMetrics(OPTIONS, {}, Troubles()).settings)
    assert sorted(settings["slices"]) == ["age", "country", "user"]


@pytest.mark.filterwarnings("error")
def test_ids_that_are_no_integers_are_missing_and_not_seen() -> None:
    ids, seen = np.array([5.0, np.nan, 5.0, np.inf, 1e300, -1.0]), SeenCounts()
    options = Slice("x", new=1, missing=-1)
    names = ["new", "missing", "known", "missing", "missing", "missing"]
    assert names_of(options, ids, seen) == names
    assert names_of(options, np.full(2, np.nan), seen) == ["missing", "missing"]
    assert seen.add(np.array([5, 0, -1, np.iinfo(np.int64).min])).tolist() == [2, 0, 0, 0]


def test_a_value_that_has_had_a_tag_keeps_it_over_a_restart(tmp_path) -> None:
    slices = {"country": Slice(("context", 1), shown=1)}
    options = RecommenderMetrics(predictions=1, labels=2, slices=slices, last=(1200,))

    def tagged(country: int, step: int) -> set[str]:
        part = batch(step, 300 * step)
        part.values["name", "context"][:, 1] = country
        rank = Aggregator(options, {}, str(tmp_path), 0, 1, Troubles())
        event = Event.FromString(rank.work([part], request(step)))
        tags = [value.tag for value in event.summary.value]
        return {tag.split("/")[2] for tag in tags if "/slice/country=" in tag}

    assert tagged(0, 1) == {"country=0"}
    assert tagged(1, 2) == {"country=0", "country=1"}
