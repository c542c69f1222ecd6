"""`rec-summary slices`: the quality of each value of each column."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rec_summary import RecommenderMetrics, SummaryRecord, Task
from tests.support.command import run
from tests.support.record_dirs import event, scalar, write_segment


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A run with two tasks, whose model is wrong about FR from step 3 on."""
    options = RecommenderMetrics(
        tasks={"ctr": Task("p", "y"), "cvr": Task("p", "z")},
        slices={"country": "c"},
        report_steps=1,
    )
    random = np.random.default_rng(1)
    with SummaryRecord(tmp_path / "run", recommender=options) as record:
        for step in range(1, 5):
            scores = random.beta(2, 5, 3000)
            labels = random.random(3000) < scores
            country = np.array(["DE", "FR", "US"])[random.integers(0, 3, 3000)]
            lost = labels & ((country != "FR") | (step < 3) | (random.random(3000) < 0.2))
            record.observe(p=scores, y=labels, z=lost, c=country)
            record.record(step)
            record.flush()
    return tmp_path / "run"


def printed(*arguments: object) -> str:
    done = run("slices", *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_value_has_a_row_of_all_its_examples(records: Path) -> None:
    rows = json.loads(printed(records, "--json"))
    assert [(row["task"], row["column"], bool(row["value"])) for row in rows] == [
        (task, column, bool(column))
        for task in ("ctr", "cvr")
        for column in ("", "country", "country", "country")
    ]
    for whole in (row for row in rows if not row["column"]):
        parts = [row for row in rows if row["task"] == whole["task"] and row["column"]]
        assert whole["examples"] == sum(row["examples"] for row in parts) == 12_000
        assert [row["auc"] for row in parts] == sorted(row["auc"] for row in parts)


def test_a_broken_slice_is_first_if_one_sorts_by_calibration(records: Path) -> None:
    text = printed(
        records,
        "--since",
        3,
        "--task",
        "cvr",
        "--column",
        "country",
        "--sort",
        "-calibration",
    )
    head, first, *_ = text.splitlines()
    assert head.split()[:4] == ["column", "value", "examples", "clicks"]
    assert first.split()[:2] == ["country", "FR"]
    assert "±" in first
    limited = printed(records, "--sort", "-calibration", "--limit", 2)
    assert "all" in limited
    assert "and 6 more rows" in limited


def test_served_scores_have_a_column_where_there_are_any(records: Path, tmp_path: Path) -> None:
    assert "ne change" not in printed(records)
    options = RecommenderMetrics(predictions="p", labels="y", served="q", report_steps=1)
    random = np.random.default_rng(1)
    with SummaryRecord(tmp_path / "served", recommender=options) as record:
        scores = random.beta(2, 5, 3000)
        labels = random.random(3000) < scores
        record.observe(p=scores, y=labels, q=np.clip(scores + 0.2, 0, 1))
        record.record(1)
    head, whole = printed(tmp_path / "served").splitlines()
    assert head.endswith("ne change ")
    change, _, error = whole.split()[-3:]
    assert change.startswith("-")
    assert float(change.rstrip("%")) < -3 * float(error.rstrip("%")) < 0
    (row,) = json.loads(printed(tmp_path / "served", "--json"))
    assert row["served_examples"] == 3000
    assert row["served_calibration"] > 1.3 * row["compared_calibration"]


def test_a_run_without_slices_says_how_they_are_recorded(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, scalar("loss", 1.0)))
    assert "RecommenderMetrics(slices=" in printed(tmp_path)
    assert "of the task cvr" in printed(tmp_path, "--task", "cvr")
    assert json.loads(printed(tmp_path, "--json")) == []


def test_an_unknown_column_to_sort_by_is_an_error(records: Path) -> None:
    done = run("slices", records, "--sort", "nothing")
    assert done.returncode == 2
    assert "a column" in done.stderr
