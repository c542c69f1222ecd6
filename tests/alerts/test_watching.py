"""Watching records: what is there, what is added, what is taken away."""

from __future__ import annotations

import concurrent.futures
import json
import math
import os
import shutil
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rec_summary._pb import lineage_pb2
from rec_summary.alerts.builtin import read_rule
from rec_summary.alerts.states import Transition
from rec_summary.alerts.watching import Seen, Since, read_since, watch
from rec_summary.records.writing.run_writer import Retention, RunWriter
from rec_summary.records.writing.task import MessageRecord
from rec_summary.series.options import ArgumentError
from tests.support.record_dirs import (
    START,
    event,
    lineage,
    scalar,
    summary_name,
    train,
    write_payloads,
    write_segment,
)

RunState = lineage_pb2.RunState
PATIENCE_SECS = 20.0


def once(source: Path, *rules: str, **options: Any) -> list[str]:
    """Returns what is told of the records that are there."""
    told: list[Transition] = []
    watched = [read_rule(rule) for rule in rules]
    watch(source, watched, told.append, stop=threading.Event(), once=True, **options)
    return [words(each) for each in told]


def words(each: Transition) -> str:
    return f"{'+' if each.firing else '-'} {each.run} {each.tag} {each.step}"


class Watching:
    """Watches in a thread until it is left, as a context."""

    def __init__(self, source: Path, *rules: str, **options: Any) -> None:
        self.told: list[Transition] = []
        self._stop = threading.Event()
        self._caught_up = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._arguments = (source, [read_rule(rule) for rule in rules], self.told.append)
        self._options = options

    def __enter__(self) -> Watching:
        self._task = self._pool.submit(
            watch,
            *self._arguments,
            stop=self._stop,
            interval=0.02,
            caught_up=lambda seen: self._caught_up.set(),
            **self._options,
        )
        assert self._caught_up.wait(PATIENCE_SECS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.seen: Seen = self._task.result(PATIENCE_SECS)
        self._pool.shutdown()

    def tells(self, *expected: str) -> bool:
        eventually(lambda: len(self.told) >= len(expected))
        return [words(each) for each in self.told] == list(expected)


def eventually(ask: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECS
    while not ask():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write(writer: RunWriter, *events: Any) -> None:
    for each in events:
        writer.write(MessageRecord(each))
    writer.flush()


def old_segment(directory: Path, *events: Any) -> None:
    """Writes files of which every record is old: without the version, which tells the time."""
    name = summary_name()
    for kind, path in (("Event", name), ("LineageEvent", name.replace("_MS", "_lineage"))):
        mine = [each for each in events if type(each).__name__ == kind]
        write_payloads(directory / path, *(each.SerializeToString() for each in mine))


def losses(*values: float, first: int = 1) -> list[Any]:
    return [event(at, scalar("loss/auto", value)) for at, value in enumerate(values, first)]


def test_of_the_past_only_what_is_not_over_is_told(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", *losses(1, math.nan, 1))
    write_segment(tmp_path / "b", *losses(1, math.nan, math.nan))
    assert once(tmp_path, "nan-loss") == ["+ b loss/auto 2"]
    assert once(tmp_path, "nan-loss", history=True) == [
        *("+ a loss/auto 2", "- a loss/auto 3", "+ b loss/auto 2"),
    ]
    assert once(tmp_path, "nan-loss", runs="a") == []


def test_rotation_ranks_and_a_restart_from_a_checkpoint(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", 1, Retention(max_file_size=1))
    for each in losses(*[0.5] * 10):
        write(writer, each)
    writer.close()
    assert len(list((tmp_path / "run").glob("*_MS"))) > 5
    write_segment(tmp_path / "run", *losses(0.4, 0.4, first=5), rank=1)
    assert once(tmp_path, "loss > 0.4 for 9 steps", history=True) == [
        *("+ run loss/auto 10", "- run loss/auto 5"),
    ]


def test_a_run_that_has_ended_is_not_stalled_and_one_that_was_killed_is(tmp_path: Path) -> None:
    running = lineage(train_lineage=train(status=RunState.RUNNING))
    old_segment(tmp_path / "killed", running, *losses(1, 2))
    for status in (RunState.FINISHED, RunState.STOPPED, RunState.FAILED):
        over = lineage(at=START + 10, train_lineage=train(status=status))
        old_segment(tmp_path / f"over{status}", running, *losses(1), over)
    # MindSpore's collector writes a lineage without a state, at the end.
    old_segment(tmp_path / "mindspore", *losses(1), lineage(START + 9, train_lineage=train()))
    old_segment(
        tmp_path / "again", *losses(1), lineage(START + 9, train_lineage=train()),
        event(2, scalar("loss/auto", 1), at=START + 900),
    )  # fmt: skip
    assert sorted(once(tmp_path, "stall")) == ["+ again None 2", "+ killed None 2"]


def test_evaluations_that_are_in_the_lineage_only(tmp_path: Path) -> None:
    def evaluation(at: float, auc: Any, **more: Any) -> Any:
        metric = json.dumps({"auc": auc})
        told = lineage_pb2.EvaluationLineage(metric=metric, **more)
        return lineage(START + at, evaluation_lineage=told)

    write_segment(tmp_path / "a", evaluation(1, 0.8, train_step=5), evaluation(2, 0.7))
    write_segment(tmp_path / "text", evaluation(1, 0.8), evaluation(2, "none"))
    # Recorded as scalars as well: those count, and nothing counts twice.
    write_segment(
        tmp_path / "both",
        event(5, scalar("eval/auc", 0.8), at=START + 1),
        evaluation(1.1, 0.8, train_step=5),
        event(6, scalar("eval/auc", 0.79), at=START + 2),
        evaluation(2.1, 0.1, train_step=6),
    )
    assert once(tmp_path, "auc-drop", history=True) == ["+ a eval/auc 5"]


def test_from_where_on_records_are_judged(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *losses(5, 5, 1, 5))
    rule = "loss > 2"
    assert once(tmp_path, rule, history=True, since=Since(step=2))[0] == "+ run loss/auto 2"
    after = Since(wall_time=START + 3 / 4)  # the time of step 3
    assert once(tmp_path, rule, history=True, since=after) == ["+ run loss/auto 4"]


def test_what_since_means() -> None:
    assert read_since("5000", 100.0) == Since(step=5000)
    assert read_since("2h", 10_000.0) == Since(wall_time=2800.0)
    assert read_since("1.5m", 100.0) == Since(wall_time=10.0)
    moment = datetime(2026, 1, 31, 12).timestamp()
    assert read_since("2026-01-31T12:00", 0.0) == Since(wall_time=moment)
    for text in ("", "soon", "2 weeks", "h"):
        with pytest.raises(ArgumentError, match="since is invalid"):
            read_since(text, 0.0)


def test_a_file_that_was_passed_over_as_old_is_read_when_it_grows(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    write(writer, *losses(5))
    [path] = (tmp_path / "run").glob("*_MS")
    old = time.time() - 7200
    os.utime(path, (old, old))
    hour = Since(wall_time=time.time() - 3600)
    with Watching(tmp_path, "loss > 2", since=hour) as watching:
        write(writer, event(2, scalar("loss/auto", 6), at=time.time()))
        assert watching.tells("+ run loss/auto 2")
    assert watching.seen.problem_count == 0
    writer.close()


def test_runs_files_and_values_may_come_later(tmp_path: Path) -> None:
    source = tmp_path / "records"
    with Watching(source, "nan-loss") as watching:
        writer = RunWriter(source / "a")
        write(writer, *losses(math.nan))
        assert watching.tells("+ a loss/auto 1")
        write(writer, *losses(1, first=2))
        assert watching.tells("+ a loss/auto 1", "- a loss/auto 2")
        writer.close()
        write_segment(source / "a", *losses(math.nan, first=3))
        write_segment(source / "b" / "c", *losses(math.inf))
        eventually(lambda: len(watching.told) == 4)
    assert {words(each) for each in watching.told[2:]} == {
        *("+ a loss/auto 3", "+ b/c loss/auto 1"),
    }


def test_silence_is_told_and_ends(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    now = time.time()
    write(writer, event(1, scalar("loss", 1), at=now))
    with Watching(tmp_path, "no data for 0.3s") as watching:
        assert watching.tells("+ run None 1")
        write(writer, event(2, scalar("loss", 1), at=now + 1))
        eventually(lambda: len(watching.told) > 1)
        assert words(watching.told[1]) == "- run None 2"
    writer.close()


def test_records_that_are_gone_end_their_alerts_but_a_source_that_is_away_does_not(
    tmp_path: Path,
) -> None:
    source = tmp_path / "records"
    write_segment(source / "a", *losses(math.nan))
    write_segment(source / "b", *losses(math.nan))
    with Watching(source, "nan-loss") as watching:
        shutil.rmtree(source / "a")
        assert watching.tells("+ a loss/auto 1", "+ b loss/auto 1", "- a loss/auto 1")
        source.rename(tmp_path / "away")
        time.sleep(0.1)
        (tmp_path / "away").rename(source)
        write_segment(source / "c", *losses(math.nan))
        eventually(lambda: len(watching.told) > 3)
    assert [words(each) for each in watching.told[3:]] == ["+ c loss/auto 1"]


def test_damage_is_told_and_passed_over(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", *losses(1, 2, math.nan))
    data = bytearray(path.read_bytes())
    data[-80] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))
    problems: list[Any] = []
    assert once(tmp_path, "nan-loss", problem=problems.append) == ["+ run loss/auto 3"]
    [problem] = problems
    assert problem.path == str(path)


def test_a_torn_record_is_judged_when_it_is_whole(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", *losses(1, math.nan))
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[:-5])
    with Watching(tmp_path, "nan-loss") as watching:
        assert watching.told == []
        path.write_bytes(data)
        assert watching.tells("+ run loss/auto 2")
    assert watching.seen.problem_count == 0


def test_a_file_that_was_replaced_by_a_shorter_one_is_read_anew(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", *losses(1, 1, 1))
    other, _ = write_segment(tmp_path / "other", *losses(math.nan))
    with Watching(tmp_path, "nan-loss", runs="run") as watching:
        other.rename(path)
        assert watching.tells("+ run loss/auto 1")
    assert watching.seen.problem_count == 0


def test_a_stop_in_the_middle_of_much_ends_it(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *losses(*range(2000)))
    stop = threading.Event()
    told: list[Transition] = []

    def tell(each: Transition) -> None:
        told.append(each)
        stop.set()

    watch(tmp_path, [read_rule("loss > 1")], tell, stop=stop, history=True)
    assert [words(each) for each in told] == ["+ run loss/auto 3"]
