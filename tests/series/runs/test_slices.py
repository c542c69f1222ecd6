"""The sums of a run by slice: of all ranks, without what a restart supersedes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary import RecommenderMetrics, Slice, SummaryRecord, load
from rec_summary._pb.summary_pb2 import Event
from rec_summary.metrics.slices.sums import CELLS, FIELDS
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.slices import histories, intervals
from rec_summary.values.slice_sums import SlicedSums, encode_interval, encode_sums
from rec_summary.values.summary import encode_event
from tests.support.record_dirs import event, write_segment

OPTIONS = RecommenderMetrics(
    predictions="score",
    labels="label",
    slices={"country": Slice("country", most=8), "tags": "tags"},
    report_steps=2,
)


def batches(seed: int, count: int, size: int = 500) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        scores = 0.4 * random.random(size)
        found.append(
            {
                "score": scores,
                "label": random.random(size) < scores,
                "country": random.integers(0, 6, size),
                "tags": random.integers(0, 4, (size, 2)),
            }
        )
    return found


def recorded(directory: Path, steps: dict[int, dict[str, Any]], **options: Any) -> None:
    with SummaryRecord(directory, recommender=OPTIONS, **options) as record:
        for step, batch in steps.items():
            record.observe(**batch)
            record.flush()
            record.record(step)


def run_of(directory: Path) -> Run:
    (run,) = find_runs(str(directory))
    return run


def test_the_slices_of_a_column_add_up_to_the_task(tmp_path: Path) -> None:
    data = batches(1, 7)
    recorded(tmp_path, dict(enumerate(data, 1)))
    report = Report()
    ((_, found),) = histories(run_of(tmp_path), EVERYTHING, report).items()
    assert report.problems == []
    whole, country, tags = found
    assert [(each.column, each.is_partition) for each in found] == [
        ("", True),
        ("country", True),
        ("tags", False),
    ]
    assert whole.steps.tolist() == [2, 4, 6, 7]
    assert whole.sums[:, 0, 0].tolist() == [1000, 1000, 1000, 500]
    np.testing.assert_allclose(country.sums.sum(axis=1), whole.sums[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(country.orders.sum(axis=1), whole.orders[:, 0])
    assert whole.orders.sum() == 3500
    values = np.concatenate([batch["country"] for batch in data]).astype(str)
    labels = np.concatenate([batch["label"] for batch in data])
    for value, own in zip(country.values, country.sums.sum(axis=0), strict=True):
        assert own[FIELDS.index("clicks")] == labels[values == value].sum()
    assert tags.sums[..., 0].sum() > 3500  # an example has up to two


def test_ranks_add_up(tmp_path: Path) -> None:
    data = batches(2, 8)
    recorded(tmp_path / "one", dict(enumerate(data, 1)))
    for rank in (0, 1):
        steps = dict(enumerate(data[rank::2], 1))
        recorded(tmp_path / "two", steps, rank=rank, rank_size=2)
    table = load(tmp_path).slices(total=True)
    one, two = (
        table[table.run == name].sort_values(["column", "value"]).drop(columns=["run", "step"])
        for name in ("one", "two")
    )
    for name in ("column", "value", "examples", "clicks"):
        assert one[name].tolist() == two[name].tolist()
    for name in ("predicted", "loss", "normalised_entropy", "auc", "auc_error"):
        np.testing.assert_allclose(one[name], two[name], rtol=1e-6)


def test_what_a_restart_supersedes_does_not_count(tmp_path: Path) -> None:
    recorded(tmp_path, dict(enumerate(batches(3, 8), 1)))
    recorded(tmp_path, dict(enumerate(batches(4, 4), 5)))
    table = load(tmp_path).slices()
    whole = table[table.column == ""]
    assert whole.step.tolist() == [2, 4, 6, 8]
    assert whole.examples.tolist() == [1000] * 4


def test_an_auc_is_of_the_examples_since_the_detailed_report_before(tmp_path: Path) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    data = batches(5, 10)
    recorded(tmp_path, dict(enumerate(data, 1)))
    table = load(tmp_path).slices()
    whole = table[table.column == ""].set_index("step")
    assert whole.auc.notna().tolist() == [True, False, False, False, True]
    since = data[2:]
    labels = np.concatenate([batch["label"] for batch in since])
    scores = np.concatenate([batch["score"] for batch in since])
    assert whole.auc[10] == pytest.approx(sklearn.roc_auc_score(labels, scores), abs=1e-3)
    assert whole.normalised_entropy[10] == pytest.approx(1, abs=0.2)


def test_neighbours_are_added_up_if_there_are_many(tmp_path: Path) -> None:
    recorded(tmp_path, dict(enumerate(batches(6, 40, 20), 1)))
    run = run_of(tmp_path)
    (few,) = intervals(run, EVERYTHING, Report(), 4).values()
    (each,) = intervals(run, EVERYTHING, Report()).values()
    assert len(each) == 20
    assert 4 <= len(few) <= 8
    assert few[-1].step == 40
    key = ("", "country")
    for parts in (few, each):
        assert sum(part.columns[key].sums[:, 0].sum() for part in parts) == 800


def test_a_damaged_value_is_a_problem_and_the_others_are_read(tmp_path: Path) -> None:
    recorded(tmp_path / "good", dict(enumerate(batches(7, 2), 1)))
    bad = event(1)
    value = bad.summary.value.add()
    value.ParseFromString(encode_interval("recommender/sums", 0, []))
    value.slice_sums.columns.add(column="country", values=["a", "a"])
    write_segment(tmp_path / "bad", bad)
    with pytest.warns(UserWarning, match="cannot be read"):
        table = load(tmp_path).slices()
    assert set(table.run) == {"good"}


def test_without_sums_there_is_an_empty_table(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1))
    assert len(load(tmp_path).slices()) == 0


def test_a_history_of_very_many_values_has_the_most_frequent_ones(tmp_path: Path) -> None:
    count, events = 40_000, []
    random = np.random.default_rng(8)
    for step in range(1, 41):
        # A thousand new values with each report, beside one that is always there.
        values = ["always", *(f"{step}-{number}" for number in range(count // 40)), "other"]
        sums = np.ones((len(values), len(FIELDS)))
        sums[0] = 7
        cells = np.arange(len(values)) * 2 * CELLS + random.integers(0, 2 * CELLS, len(values))
        part = SlicedSums("", "item", False, values, sums, cells, np.ones(len(values)))
        value = encode_sums(step - 1, [part], {})
        events.append(Event.FromString(encode_event(step, 1.7e9 + step, value)))
    write_segment(tmp_path, *events)
    ((found,),) = histories(run_of(tmp_path), EVERYTHING, Report()).values()
    assert len(found.values) < 2000
    assert {"always", "other"} < set(found.values)
    assert found.sums[..., 0].sum() == 40 * 7 + count + 40
    assert found.sums[:, found.values.index("always"), 0].tolist() == [7] * 40
    assert found.orders.sum() == 40 * (2 + count // 40)
