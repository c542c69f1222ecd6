"""Alerts in words, as JSON, and in a log."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import multiprocessing
import os
import resource
from pathlib import Path

import pytest
from rich.console import Console

from rec_summary.alerts.actions import InJson, InWords, ToLog, as_json, sentence
from rec_summary.alerts.grammar import parse
from rec_summary.alerts.states import Transition
from rec_summary.series.options import ArgumentError


def transition(value: float | None = 1.5, *, firing: bool = True, run: str = "run") -> Transition:
    rule = parse("loss > 1")
    return Transition(firing, rule, run, 2, "loss", 7, 1_700_000_000.0, value, "loss = 1.5")


def test_in_words() -> None:
    out = io.StringIO()
    InWords(Console(file=out, width=40))(transition(run="[red]a\x1b[0m\n" + "b" * 60))
    text = out.getvalue()
    assert "FIRING [red]a\\x1b[0m\\n" + "b" * 60 + " (rank 2): loss > 1: loss = 1.5\n" in text
    assert text.count("\n") == 1


def test_in_json() -> None:
    out = io.StringIO()
    InJson(out)(transition(firing=False))
    assert json.loads(out.getvalue()) == {
        "state": "resolved",
        "name": "loss > 1",
        "rule": "loss > 1",
        "run": "run",
        "rank": 2,
        "tag": "loss",
        "step": 7,
        "value": 1.5,
        "wall_time": 1_700_000_000.0,
        "time": "2023-11-14T22:13:20.000+00:00",
        "reason": "loss = 1.5",
        "text": "resolved: run (rank 2): loss > 1: loss = 1.5",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (0.10000000149011612, 0.1),  # the float32 that 0.1 is
    ],
)
def test_values_in_json(value: float | None, expected: object) -> None:
    assert as_json(transition(value))["value"] == expected
    json.dumps(as_json(transition(value)), allow_nan=False)


@pytest.mark.parametrize("wall_time", [1e300, -1e300, 1e12])
def test_a_time_beyond_the_calendar_is_no_date(wall_time: float) -> None:
    out = io.StringIO()
    each = dataclasses.replace(transition(), wall_time=wall_time)
    InWords(Console(file=out))(each)
    assert out.getvalue().startswith("at no time FIRING run")
    assert as_json(each)["time"] is None
    assert as_json(each)["wall_time"] == wall_time


def test_a_sentence_names_the_rule_and_says_what_it_is() -> None:
    named = parse("hot: loss > 1")
    each = transition()
    text = sentence(Transition(True, named, "run", 0, "loss", 7, 0.0, 1.5, each.reason))
    assert text == "firing: run: hot (loss > 1): loss = 1.5"


def _append(path: str, run: str) -> None:
    log = ToLog(path, lambda text: None)
    for _ in range(200):
        log(transition(run=run))
    log.close()


def test_a_log_is_appended_to_by_several_processes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("torn")
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_append, args=(str(path), letter * 3000)) for letter in "ab"
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    first, *lines = [line for line in path.read_text().split("\n") if line]
    assert first == "torn"
    runs = [json.loads(line)["run"] for line in lines]
    assert sorted(runs) == ["a" * 3000] * 200 + ["b" * 3000] * 200


def test_a_log_that_cannot_be_opened_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the log of alerts is invalid"):
        ToLog(tmp_path / "missing" / "log", lambda text: None)


def _full(path: str, out: str) -> None:
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    reports: list[str] = []
    log = ToLog(path, reports.append)
    log(transition())
    size = os.path.getsize(path)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # as a full disk: half a line
    log(transition())
    log(transition())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log(transition())
    Path(out).write_text(json.dumps(reports))


def test_a_full_disk_is_told_once_and_costs_no_other_line(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "out"
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_full, args=(str(path), str(out)))
    process.start()
    process.join(60)
    [report] = json.loads(out.read_text())
    assert "an alert cannot be written to" in report
    first, torn, last, end = path.read_text().split("\n")
    assert json.loads(first) == json.loads(last)
    assert first.startswith(torn)
    assert end == ""
