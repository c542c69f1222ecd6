"""The gate, asked of records: however examples were cut into reports and ranks."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary import Gate
from rec_summary._pb import summary_pb2
from rec_summary.answers.gate import GateAnswer, gate_of
from rec_summary.errors import ArgumentError
from rec_summary.metrics.slices.sums import CELLS
from rec_summary.records.checkpoints.saved import SAVED, name_of
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.report import Report
from rec_summary.values.slice_sums import SlicedSums, encode_sums
from tests.support.laws import refused
from tests.support.record_dirs import START, event, lineage, scalar, train, write_segment
from tests.support.served_scores import compared_sums, draw

SIZE, COUNTRIES = 40_000, 4
RANDOM = np.random.default_rng(1)
EXAMPLES = compared_sums(*draw(RANDOM, SIZE, 0.1))
COUNTRY = RANDOM.integers(0, COUNTRIES, SIZE)
VALUES = [f"c{number}" for number in range(COUNTRIES)]


def columns(chosen: np.ndarray, task: str = "") -> list[SlicedSums]:
    """Returns the sums of some examples: of the whole task, and by country."""
    sums = np.zeros((COUNTRIES, EXAMPLES.shape[1]))
    np.add.at(sums, COUNTRY[chosen], EXAMPLES[chosen])
    whole = EXAMPLES[chosen].sum(axis=0, keepdims=True)
    return [
        SlicedSums(task, "", False, [""], whole, None, None),
        SlicedSums(task, "country", False, VALUES, sums, None, None),
    ]


def write(directory: Path, reports: np.ndarray, ranks: np.ndarray, *, of: int = 100) -> None:
    """Writes each example into a report, at each hundredth step, of a rank."""
    for rank in np.unique(ranks).tolist():
        events = []
        for number in np.unique(reports[ranks == rank]).tolist():
            own = columns(np.flatnonzero((reports == number) & (ranks == rank)))
            encoded = map(summary_pb2.Summary.Value.FromString, encode_sums(0, own, {}))
            events.append(event(of * (number + 1), *encoded))
        write_segment(directory, *events, rank=rank)


def ask(directory: Path, gate: Gate | None = None, since: str | int | None = None) -> GateAnswer:
    [run] = find_runs(str(directory))
    report = Report()
    answer = gate_of(run, report, gate or Gate(), since)
    assert answer is not None
    assert report.problem_count == 0
    return answer


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    write(directory, np.arange(SIZE) * 10 // SIZE, np.zeros(SIZE, int))
    return directory


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 9))
def test_how_examples_are_cut_changes_nothing(reports: int, ranks: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        at_once, in_parts = Path(folder) / "a", Path(folder) / "b"
        write(at_once, np.zeros(SIZE, int), np.zeros(SIZE, int))
        write(in_parts, random.integers(0, reports, SIZE), random.integers(0, ranks, SIZE))
        first, second = (ask(each).verdict for each in (at_once, in_parts))
    assert (first.outcome, first.holds) == (second.outcome, second.holds)
    assert [each.name for each in first.slices] == [each.name for each in second.slices]
    for one, other in zip(
        (first.tasks[0].whole, *first.slices), (second.tasks[0].whole, *second.slices), strict=True
    ):
        assert one.examples == other.examples
        assert one.ne_change == pytest.approx(other.ne_change, abs=1e-6)
        assert one.ne_change_error == pytest.approx(other.ne_change_error, rel=1e-3)


def test_what_is_judged(records: Path) -> None:
    answer = ask(records)
    assert answer.steps == (100, 1000)
    assert answer.times == (START + 25, START + 250)
    assert answer.verdict.tasks[0].whole.examples == SIZE
    assert answer.verdict.compared_slices == COUNTRIES
    assert answer.checkpoint is None
    then = datetime.fromtimestamp(START + 150 - 1).isoformat()
    for since in (501, then):
        answer = ask(records, since=since)
        assert answer.steps == (600, 1000)
        assert answer.verdict.tasks[0].whole.examples == SIZE / 2


def test_the_newest_checkpoint_that_was_judged(records: Path) -> None:
    (records / SAVED).mkdir()
    for step in (50, 400, 700, 1001):
        (records / SAVED / name_of(0, step)).write_bytes(b"")
    assert ask(records).checkpoint == f"{SAVED}/{name_of(0, 700)}"
    assert ask(records, since=800).checkpoint is None
    (records / SAVED / name_of(0, 700)).unlink()
    (records / SAVED / name_of(0, 400)).unlink()
    assert ask(records).checkpoint == f"{SAVED}/{name_of(0, 50)}"  # of the first report
    assert ask(records, since=100).checkpoint is None
    by_time = records / SAVED / "CKP-1_9.ckpt"
    by_time.write_bytes(b"")
    for at, name in ((START + 240, None), (START + 260, None)):
        os.utime(by_time, (at, at))
        found = ask(records, since=800).checkpoint
        assert found == (f"{SAVED}/{by_time.name}" if at < START + 250 else name)


def write_reports(directory: Path, steps: range, began: float, **state: float) -> None:
    """Writes what a process records that goes on at a step, and begins at a time after `START`."""
    parts = np.array_split(np.arange(SIZE), len(steps))
    events: list[Any] = [lineage(began, train_lineage=train(**state))]
    for step, part in zip(steps, parts, strict=True):
        encoded = map(summary_pb2.Summary.Value.FromString, encode_sums(0, columns(part), {}))
        events.append(event(step, scalar("loss", 1.0), *encoded, at=START + began + step))
    write_segment(directory, *events)


@pytest.mark.parametrize("states_starts", [True, False])
def test_checkpoints_that_a_restart_superseded(tmp_path: Path, states_starts: bool) -> None:
    for first, last, began in ((10, 90, 0), (50, 120, 1000)):
        state = {"start_time": START + began} if states_starts else {}
        write_reports(tmp_path, range(first, last + 1, 10), began, **state)
    (tmp_path / SAVED).mkdir()

    def save(name: str, at: float) -> str | None:
        path = tmp_path / SAVED / name
        path.write_bytes(b"")
        os.utime(path, (START + at, START + at))
        return ask(tmp_path).checkpoint

    assert ask(tmp_path).steps == (10, 120)
    assert save(name_of(0, 80), 80) is None
    assert save(name_of(0, 95), 95) is None
    assert save(name_of(0, 35), 35) == f"{SAVED}/{name_of(0, 35)}"
    if states_starts:  # else, the training may have gone on from these
        for name, at in ((name_of(0, 50), 50), (name_of(0, 45), 45), ("CKP-1_8.ckpt", 80)):
            assert save(name, at) == f"{SAVED}/{name_of(0, 35)}"
    assert save(name_of(0, 40), 49) == f"{SAVED}/{name_of(0, 40)}"
    assert save(name_of(0, 45), 1045) == f"{SAVED}/{name_of(0, 45)}"
    assert save(name_of(0, 80), 1080) == f"{SAVED}/{name_of(0, 80)}"
    assert save("CKP-1_11.ckpt", 1110) == f"{SAVED}/CKP-1_11.ckpt"
    assert ask(tmp_path, since=90).checkpoint == f"{SAVED}/CKP-1_11.ckpt"
    assert save(name_of(0, 115), 5000) == f"{SAVED}/{name_of(0, 115)}"  # a copy


def test_all_slices_of_a_long_run_are_compared(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    new, served, labels = draw(random, SIZE // 20, 1.0)
    values = [f"v{number:03}" for number in range(600)]
    sums = np.resize(EXAMPLES.reshape(20, -1, EXAMPLES.shape[1]).sum(axis=1), (600, 22))
    sums[-1] = compared_sums(new, served, labels).sum(axis=0) / 2  # rarer than the others
    order = {"cells": np.arange(600) * 2 * CELLS, "weights": np.ones(600)}
    events = []
    for number in range(64):
        parts = [
            SlicedSums("", "", False, [""], sums.sum(axis=0, keepdims=True), None, None),
            SlicedSums("", "item", False, values, sums, **order),
        ]
        encoded = map(summary_pb2.Summary.Value.FromString, encode_sums(0, parts, {}))
        events.append(event(number + 1, *encoded))
    write_segment(tmp_path, *events)
    verdict = ask(tmp_path, Gate(no_slice_worse=True)).verdict
    assert verdict.compared_slices == 600
    assert (verdict.holds, verdict.slices[0].name) == (False, "item=v599")


def test_of_two_processes_at_once_the_first_counts(tmp_path: Path) -> None:
    for _ in range(2):
        write_reports(tmp_path, range(10, 100, 10), 0)
    assert ask(tmp_path).verdict.tasks[0].whole.examples == SIZE


def test_without_served_scores(tmp_path: Path) -> None:
    quiet = columns(np.arange(SIZE))
    for each in quiet:
        each.sums[:, 11:] = 0
    encoded = map(summary_pb2.Summary.Value.FromString, encode_sums(0, quiet, {}))
    write_segment(tmp_path, event(100, *encoded))
    [run] = find_runs(str(tmp_path))
    assert gate_of(run, Report(), Gate()) is None


def test_a_time_without_reports(records: Path) -> None:
    [run] = find_runs(str(records))
    assert gate_of(run, Report(), Gate(), 1001) is None


def test_a_task_that_is_not_there(records: Path) -> None:
    refused(ArgumentError, "a task with served scores: ''", ask, records, Gate(task="ctr"))


def test_json(records: Path) -> None:
    found = ask(records).as_json()
    assert set(found) == {
        *("holds", "outcome", "tasks", "slices", "compared_slices", "worse_slices", "checkpoint"),
        *("first_step", "last_step", "first_time", "last_time"),
    }
    numbers = {"examples", "ne_change", "ne_change_error"}
    numbers |= {"compared_calibration", "served_calibration"}
    about = {"task", "outcome", "holds", "reasons", "more_examples"}
    assert set(found["tasks"][0]) == numbers | about
    assert set(found["slices"][0]) == numbers | {"task", "name"}
