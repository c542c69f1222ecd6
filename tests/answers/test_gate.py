"""The gate, asked of records: however examples were cut into reports and ranks."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary import Gate
from rec_summary._pb import summary_pb2
from rec_summary.answers.gate import GateAnswer, gate_of
from rec_summary.errors import ArgumentError, SourceError
from rec_summary.records.checkpoints.saved import SAVED, name_of
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.report import Report
from rec_summary.values.slice_sums import SlicedSums, encode_sums
from tests.support.record_dirs import START, event, write_segment
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


def test_without_served_scores(tmp_path: Path) -> None:
    quiet = columns(np.arange(SIZE))
    for each in quiet:
        each.sums[:, 11:] = 0
    encoded = map(summary_pb2.Summary.Value.FromString, encode_sums(0, quiet, {}))
    write_segment(tmp_path, event(100, *encoded))
    with pytest.raises(SourceError, match=r"no example with a served score in .*Task\(served="):
        ask(tmp_path)


def test_a_time_without_reports(records: Path) -> None:
    with pytest.raises(SourceError, match="no example with a served score since then"):
        ask(records, since=1001)


def test_a_task_that_is_not_there(records: Path) -> None:
    with pytest.raises(ArgumentError, match="a task with served scores: ''"):
        ask(records, Gate(task="ctr"))


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
