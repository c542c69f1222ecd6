"""`rec-summary gate`, as scripts meet it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from rec_summary import RecommenderMetrics, SummaryRecord, Task
from rec_summary.records.checkpoints.saved import SAVED, name_of
from tests.support.command import flat, run
from tests.support.served_scores import columns, record_served

BIAS = "The served model chose these items: "
LINE = (
    r"(better|not worse|worse|unknown): ΔNE [+−]\d+\.\d+ % ± \d\.\d+ over ([\d,]+) examples "
    r"since \d\d:\d\d"
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("records")
    for number, (name, worse, steps) in enumerate(
        [("worse", 0.3, 60), ("few", 0.0, 5), ("better", -0.25, 60)]
    ):
        record_served(directory / name, worse, steps)
        (directory / name / SAVED).mkdir()
        (directory / name / SAVED / name_of(0, 20)).write_bytes(b"")
        for path in (directory / name).iterdir():
            os.utime(path, (1e9 + number, 1e9 + number))
    return directory


@pytest.mark.parametrize(
    ("name", "arguments", "code", "outcome"),
    [
        ("better", (), 0, "better"),
        ("better", ("--min-gain", "0.1%"), 0, "better"),
        ("better", ("--min-gain", "0.5"), 1, "better"),
        ("better", ("--no-slice-worse",), 0, "better"),
        ("worse", (), 1, "worse"),
        ("few", (), 3, "unknown"),
    ],
)
def test_the_exit_code_is_the_verdict(
    records: Path, name: str, arguments: tuple[str, ...], code: int, outcome: str
) -> None:
    done = run("gate", records / name, *arguments)
    assert done.returncode == code, done.stderr
    [line] = done.stdout.splitlines()
    found = re.match(LINE, line)
    assert found is not None, line
    assert found[1] == outcome
    assert found[2] == ("5,000" if name == "few" else "60,000")
    assert flat(done.stderr).startswith(BIAS)


def test_the_line(records: Path) -> None:
    done = run("gate", records / "better", "--min-gain", "50%", "-q")
    assert done.stderr == ""
    rest = (
        r"; no gain of 50 % beyond chance"
        r"; worst slice country=(TR|DE|FR) −\d+\.\d+ % ± \d\.\d+"
        r"; newest checkpoint judged: checkpoints/rank_0_step_20\.ckpt\n"
    )
    assert re.fullmatch(LINE + rest, done.stdout)
    done = run("gate", records / "better", "--since", "30")
    assert "over 40,000 examples" in done.stdout
    assert done.stdout.endswith("; no checkpoint of this time in checkpoints/\n")


def test_json(records: Path) -> None:
    done = run("gate", records / "worse", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["run"], found["outcome"], found["holds"]) == ("worse", "worse", False)
    assert (found["first_step"], found["last_step"]) == (10, 60)
    assert found["checkpoint"] == "checkpoints/rank_0_step_20.ckpt"
    [task] = found["tasks"]
    assert task["ne_change"] > 2 * task["ne_change_error"] > 0
    assert {each["name"] for each in found["slices"]} == {
        f"country={x}" for x in ("TR", "DE", "FR")
    }
    found = json.loads(run("gate", records / "few", "--json").stdout)
    assert found["holds"] is None
    assert found["tasks"][0]["more_examples"] >= 5000


def test_of_several_runs_the_last_one_counts(records: Path) -> None:
    done = run("gate", records)
    assert done.returncode == 0
    assert "better: of 3 runs, the last one with served scores (--runs chooses another)" in flat(
        done.stderr
    )
    assert run("gate", records, "--runs", "worse").returncode == 1


def test_of_several_runs_the_last_one_with_served_scores_counts(tmp_path: Path) -> None:
    for number, name in enumerate(("older", "training", "evaluation")):
        record_served(tmp_path / name, -0.25, 10, served=name != "evaluation")
        for path in (tmp_path / name).iterdir():
            os.utime(path, (1e9 + number, 1e9 + number))
    done = run("gate", tmp_path, "--json")
    assert json.loads(done.stdout)["run"] == "training"
    expected = "training: of 3 runs, the last one with served scores (--runs chooses another)"
    assert expected in flat(done.stderr)
    done = run("gate", tmp_path, "--since", "1000")
    assert done.returncode == 3
    assert "no example with a served score since then in any of 3 runs" in flat(done.stderr)


def test_of_several_tasks_the_worst_one_decides(tmp_path: Path) -> None:
    places = {"labels": "click", "predictions": "score", "served": "served"}
    swapped = {"labels": "click", "predictions": "served", "served": "score"}
    metrics = RecommenderMetrics(
        tasks={"good": Task(**swapped), "bad": Task(**places)},
        slices={"country": "country"},
        report_steps=10,
        host=False,
    )
    random = np.random.default_rng(2)
    with SummaryRecord(tmp_path, recommender=metrics) as writer:
        for step in range(1, 31):
            writer.observe(**columns(random, worse=0.5))
            writer.record(step)
    done = run("gate", tmp_path, "-q")
    assert done.returncode == 1
    assert done.stdout.startswith("bad: worse: ΔNE +")
    assert re.search(r"; worst slice country=\d of bad \+[\d.]+ % ± [\d.]+, worse", done.stdout)
    assert re.search(r"; good: better −[\d.]+ % ± [\d.]+; no checkpoint", done.stdout)
    done = run("gate", tmp_path, "-q", "--task", "good")
    assert done.returncode == 0
    assert done.stdout.startswith("good: better: ΔNE −")


def test_of_two_tasks_that_are_worse_both_are_named(tmp_path: Path) -> None:
    places = {"labels": "click", "predictions": "score", "served": "served"}
    metrics = RecommenderMetrics(
        tasks={"ctr": Task(**places), "cvr": Task(**places)}, report_steps=10, host=False
    )
    random = np.random.default_rng(2)
    with SummaryRecord(tmp_path, recommender=metrics) as writer:
        for step in range(1, 31):
            batch = columns(random, worse=0.5)
            del batch["country"]
            writer.observe(**batch)
            writer.record(step)
    done = run("gate", tmp_path, "-q")
    assert re.search(r"^ctr: worse: .*; cvr: worse \+[\d.]+ % ± [\d.]+; ", done.stdout)


def test_of_a_single_example_no_error_is_known(tmp_path: Path) -> None:
    metrics = RecommenderMetrics(
        predictions="score", labels="click", served="served", report_steps=1, host=False
    )
    with SummaryRecord(tmp_path, recommender=metrics) as writer:
        writer.observe(score=np.array([0.3]), served=np.array([0.2]), click=np.array([1.0]))
        writer.record(1)
    done = run("gate", tmp_path, "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["tasks"][0]["ne_change_error"] is None


def test_a_source_without_served_scores(tmp_path: Path) -> None:
    record_served(tmp_path / "run", 0.0, 10, served=False)
    done = run("gate", tmp_path / "run")
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        "the source is invalid. Received: no example with a served score in run. "
        "Expected: reports of a task with Task(served=...)"
    ) in flat(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--task", "sales"), "a task with served scores"),
        (("--since", "soon"), "an age"),
        (("--min-gain", "much"), "'much' is not a valid float"),
        (("--min-gain", "nan"), "nan is not a share, such as 0.1% or 0.001"),
        (("--min-gain", "-1%"), "range"),
        (("--detectable", "0"), "range"),
        (("--detectable", "200%"), "200% is not a share"),
    ],
)
def test_mistakes(records: Path, arguments: tuple[str, ...], expected: str) -> None:
    done = run("gate", records / "better", *arguments)
    assert done.returncode == 2
    assert expected in flat(done.stderr)
    assert done.stdout == ""
