"""Watching records: what is there, what is added, what is taken away."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import math
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rec_summary._pb import anf_ir_pb2, lineage_pb2
from rec_summary.alerts.last_values import LastValues, WatchReport
from rec_summary.alerts.rules import read_rule
from rec_summary.alerts.states import Transition
from rec_summary.alerts.watching import EVERYTHING, WatchedRun, watch
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.options import ExportOptions, Selection, Since
from rec_summary.series.report import Problem, Report
from tests.support.corpus import tensor
from tests.support.damage import cut_off, flip
from tests.support.following import write
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
from tests.support.waiting import PATIENCE_SECS, eventually

RunState = lineage_pb2.RunState


def found(source: Path, *rules: str, **options: Any) -> list[Any]:
    """Returns all that is found in the records that are there."""
    watched = [read_rule(rule) for rule in rules]
    return list(watch(source, watched, stop=threading.Event(), once=True, **options))


def once(source: Path, *rules: str, **options: Any) -> list[str]:
    """Returns the alerts of the records that are there."""
    news = found(source, *rules, **options)
    return [words(each) for each in news if isinstance(each, Transition)]


def words(each: Transition) -> str:
    return f"{'+' if each.firing else '-'} {each.run} {each.tag} {each.step}"


class Watching:
    """Watches in a thread until it is left, as a context."""

    def __init__(self, source: Path, *rules: str, **options: Any) -> None:
        self.alerts: list[Transition] = []
        self.problems: list[Problem] = []
        self._stop = threading.Event()
        self._caught_up = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        watched = [read_rule(rule) for rule in rules]
        self._news = watch(source, watched, stop=self._stop, interval=0.02, **options)

    def __enter__(self) -> Watching:
        self._task = self._pool.submit(self._run)
        assert self._caught_up.wait(PATIENCE_SECS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._task.result(PATIENCE_SECS)
        self._pool.shutdown()

    def _run(self) -> None:
        for each in self._news:
            if isinstance(each, WatchReport):
                self._caught_up.set()
            elif isinstance(each, Problem):
                self.problems.append(each)
            else:
                self.alerts.append(each)

    def found(self, count: int) -> list[str]:
        """Waits for so many alerts; returns all."""
        return eventually(
            lambda: [words(each) for each in self.alerts], lambda seen: len(seen) >= count
        )

    def finds(self, *expected: str) -> bool:
        """Waits for alerts; tells whether they are these and no others."""
        return self.found(len(expected)) == list(expected)


def append(path: Path, data: bytes) -> None:
    """Completes a file, which is never shorter meanwhile."""
    with path.open("ab") as file:
        file.write(data)


def old_segment(directory: Path, *events: Any) -> None:
    """Writes files of which every record is old: without the version, which tells the time."""
    name = summary_name()
    for kind, path in (("Event", name), ("LineageEvent", name.replace("_MS", "_lineage"))):
        mine = [each for each in events if type(each).__name__ == kind]
        write_payloads(directory / path, *(each.SerializeToString() for each in mine))


def aged_segment(directory: Path, age: float, *events: Any) -> None:
    """Writes files that have not changed for so many seconds, with a loss of that time."""
    at = time.time() - age
    old_segment(directory, event(1, scalar("loss", 1), at=at), *events)
    for path in directory.iterdir():
        os.utime(path, (at, at))


def evaluation(auc: Any, **more: Any) -> lineage_pb2.EvaluationLineage:
    return lineage_pb2.EvaluationLineage(metric=json.dumps({"auc": auc}), **more)


def losses(*values: float, first: int = 1) -> list[Any]:
    return [event(at, scalar("loss/auto", value)) for at, value in enumerate(values, first)]


def test_of_the_past_only_what_is_not_over_is_reported(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", *losses(1, math.nan, 1))
    write_segment(tmp_path / "b", *losses(1, math.nan, math.nan))
    assert once(tmp_path, "nan-loss") == ["+ b loss/auto 2"]
    every = ["+ a loss/auto 2", "- a loss/auto 3", "+ b loss/auto 2"]
    assert once(tmp_path, "nan-loss", history=True) == every
    assert once(tmp_path, "nan-loss", runs="a") == []


def test_what_fires_at_the_start_is_in_the_order_of_time(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", event(3, scalar("loss/x", 9)), event(4, scalar("loss/y", 9)))
    write_segment(tmp_path / "b", event(2, scalar("loss/z", 9)))
    alerts = ["+ b loss/z 2", "+ a loss/x 3", "+ a loss/y 4"]
    assert once(tmp_path, "loss/y > 1", "loss/z > 1", "loss/x > 1") == alerts


def test_rotation_ranks_and_a_restart_from_a_checkpoint(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", 1, Rotation(max_file_size=1))
    for step in range(1, 11):
        write(writer, event(step, scalar("loss/auto", 0.5), at=START + step))
    writer.close()
    assert len(list((tmp_path / "run").glob("*_MS"))) > 5
    later = (event(step, scalar("loss/auto", 0.4), at=START + 20 + step) for step in (5, 6))
    write_segment(tmp_path / "run", *later, rank=1)
    found = once(tmp_path, "loss > 0.4 for 9s", history=True)
    assert found == ["+ run loss/auto 10", "- run loss/auto 5"]


def test_a_run_that_has_ended_is_not_stalled_and_one_that_was_killed_is(tmp_path: Path) -> None:
    running = lineage(train_lineage=train(status=RunState.RUNNING))
    old_segment(tmp_path / "killed", running, *losses(1, 2))
    for status in (RunState.FINISHED, RunState.STOPPED, RunState.FAILED):
        over = lineage(at=START + 10, train_lineage=train(status=status))
        old_segment(tmp_path / f"over{status}", running, *losses(1), over)
    # MindSpore's collector writes a lineage without a state, at the end.
    ended = [*losses(1), lineage(START + 9, train_lineage=train())]
    old_segment(tmp_path / "mindspore", *ended)
    old_segment(tmp_path / "again", *ended, event(2, scalar("loss/auto", 1), at=START + 900))
    evaluated = lineage(START + 900, evaluation_lineage=evaluation(0.8))
    old_segment(tmp_path / "evaluated", *ended, evaluated)
    assert sorted(once(tmp_path, "stall")) == ["+ again None 2", "+ killed None 2"]


def test_a_run_that_ended_long_ago_is_not_stalled_when_something_is_added(tmp_path: Path) -> None:
    """Its last values and its end are older than what is judged."""
    now = time.time()
    for name, status in (("over", RunState.FINISHED), ("killed", RunState.RUNNING)):
        ended = lineage(now - 200_000, train_lineage=train(status=status, step=1))
        aged_segment(tmp_path / name, 200_000, ended)
        note = lineage_pb2.LineageEvent(wall_time=now - 1200)
        note.note.text = "an outage of the log"
        later = summary_name(1_700_000_001).replace("_MS", "_lineage")
        write_payloads(tmp_path / name / later, note.SerializeToString())
    assert once(tmp_path, "stall", since=Since(wall_time=now - 7200)) == ["+ killed None None"]
    with Watching(tmp_path, "stall", since=None) as watching:
        assert watching.finds("+ killed None None")


def test_troubles_that_only_the_lineage_states(tmp_path: Path) -> None:
    """As with a loop of one's own; that there is no graph is none."""
    labels, graph = "recommender metrics: labels", "no graph in PyNative mode"
    stated = [{graph: 1}, {graph: 1, labels: 59, "histogram w": 1}, {labels: 90}, {}]
    events = [
        lineage(START + 10 * n, train_lineage=train(status=RunState.RUNNING, step=n, troubles=each))
        for n, each in enumerate(stated)
    ]
    old_segment(tmp_path / "run", event(1, scalar("loss", 1), at=START), *events)
    assert once(tmp_path, "troubles") == []
    news = found(tmp_path, "troubles", history=True)
    first, last = (each for each in news if isinstance(each, Transition))
    assert words(first) == "+ run rec_summary/errors 1"
    assert words(last) == "- run rec_summary/errors 3"
    assert first.reason == f"rec_summary/errors = 60 at step 1: {labels} (59), histogram w (1)"
    assert once(tmp_path, "loss > 2") == []  # other rules do not see it


def test_troubles_of_a_run_that_ended_before_do_not_count(tmp_path: Path) -> None:
    ended = train(status=RunState.FINISHED, step=2, troubles={"write": 3})
    write_segment(tmp_path, event(2, at=START), lineage(START + 1, train_lineage=ended))
    assert once(tmp_path, "troubles", since=Since(wall_time=START)) != []
    assert once(tmp_path, "troubles", since=Since(wall_time=START + 60)) == []


def test_evaluations_are_judged_as_scalars(tmp_path: Path) -> None:
    def evaluated(at: float, auc: float, step: int) -> Any:
        return lineage(START + at, evaluation_lineage=evaluation(auc, train_step=step))

    write_segment(tmp_path / "lineage", evaluated(1, 0.8, 5), evaluated(2, 0.7, 6))
    scalars = [
        event(n, scalar("eval/auc", auc), at=START + n - 4) for n, auc in ((5, 0.8), (6, 0.7))
    ]
    both = [scalars[0], evaluated(1.1, 0.1, 5), scalars[1], evaluated(2.1, 0.8, 6)]
    write_segment(tmp_path / "both", *both)
    assert once(tmp_path, "auc-drop", history=True) == ["+ both eval/auc 6"]


def test_from_where_on_records_are_judged(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *losses(5, 5, 1, 5))
    rule = "loss > 2"
    assert once(tmp_path, rule, history=True, since=Since(step=2))[0] == "+ run loss/auto 2"
    after = Since(wall_time=START + 3 / 4)  # the time of step 3
    assert once(tmp_path, rule, history=True, since=after) == ["+ run loss/auto 4"]


def test_a_file_that_was_passed_over_as_old_is_read_when_it_grows(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    write(writer, *losses(5))
    [path] = (tmp_path / "run").glob("*_MS")
    old = time.time() - 7200
    path = path.rename(path.with_name(summary_name(int(old) - 60)))
    os.utime(path, (old, old))
    hour = Since(wall_time=time.time() - 3600)
    with Watching(tmp_path, "loss > 2", since=hour) as watching:
        write(writer, event(2, scalar("loss/auto", 6), at=time.time()))
        assert watching.finds("+ run loss/auto 2")
    assert watching.problems == []
    writer.close()


def test_runs_files_and_values_may_come_later(tmp_path: Path) -> None:
    source = tmp_path / "records"
    with Watching(source, "nan-loss") as watching:
        writer = RunWriter(source / "a")
        write(writer, *losses(math.nan))
        assert watching.finds("+ a loss/auto 1")
        write(writer, *losses(1, first=2))
        assert watching.finds("+ a loss/auto 1", "- a loss/auto 2")
        writer.close()
        write_segment(source / "a", *losses(math.nan, first=3))
        write_segment(source / "b" / "c", *losses(math.inf))
        assert set(watching.found(4)[2:]) == {"+ a loss/auto 3", "+ b/c loss/auto 1"}


def test_silence_is_reported_and_ends(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    now = time.time()
    write(writer, event(1, scalar("loss", 1), at=now))
    with Watching(tmp_path, "no data for 0.3s") as watching:
        assert watching.finds("+ run None 1")
        write(writer, event(2, scalar("loss", 1), at=now + 1))
        assert watching.found(2)[1] == "- run None 2"
    writer.close()


def test_records_that_are_gone_end_their_alerts_but_a_source_that_is_away_does_not(
    tmp_path: Path,
) -> None:
    source = tmp_path / "records"
    write_segment(source / "a", *losses(math.nan))
    write_segment(source / "b", *losses(math.nan))
    with Watching(source, "nan-loss") as watching:
        shutil.rmtree(source / "a")
        assert watching.finds("+ a loss/auto 1", "+ b loss/auto 1", "- a loss/auto 1")
        source.rename(tmp_path / "away")
        time.sleep(0.1)
        (tmp_path / "away").rename(source)
        write_segment(source / "c", *losses(math.nan))
        assert watching.found(4)[3:] == ["+ c loss/auto 1"]


def test_damage_is_reported_and_passed_over(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", *losses(1, 2, math.nan))
    flip(path, -80)
    problem, alert, report = found(tmp_path, "nan-loss")
    assert words(alert) == "+ run loss/auto 3"
    assert problem.path == str(path)
    assert (report.problem_count, report.firing, report.runs) == (1, (alert,), 1)


class Steps:
    """A watch that goes on when it is asked to, without a thread."""

    def __init__(self, source: Path, *rules: str, **options: Any) -> None:
        self.stop = threading.Event()
        watched = [read_rule(rule) for rule in rules]
        self._news = watch(source, watched, stop=self.stop, interval=0.0, **options)

    def poll(self) -> tuple[list[str], list[Problem], WatchReport]:
        """Polls once; returns alerts, problems, and the report."""
        alerts, problems = list[str](), list[Problem]()
        for each in self._news:
            if isinstance(each, WatchReport):
                return alerts, problems, each
            if isinstance(each, Problem):
                problems.append(each)
            else:
                alerts.append(words(each))
        raise AssertionError("it has ended")

    def rest(self) -> list[Any]:
        """Stops it; returns what comes until it ends."""
        self.stop.set()
        return list(self._news)


def test_each_poll_ends_with_what_is_new_and_a_report(tmp_path: Path) -> None:
    values = LastValues(Selection(ExportOptions()))
    watching = Steps(tmp_path, "nan-loss", values=values, patience=0.0)
    assert watching.poll() == ([], [], WatchReport((), (read_rule("nan-loss"),), 0, 0))
    path, _ = write_segment(tmp_path / "run", *losses(1, 2, math.nan), event(4, scalar("x", 1)))
    flip(path, path.read_bytes().index(b"loss/auto"))
    alerts, problems, report = watching.poll()
    assert (alerts, [each.path for each in problems]) == (["+ run loss/auto 3"], [str(path)])
    assert (report.runs, report.problem_count, report.unmatched) == (1, 1, ())
    assert [words(each) for each in report.firing] == alerts
    assert (values.firing, values.problems) == (report.firing, 1)
    assert {tag for _, tag in values.runs["run"].values} == {"loss/auto", "x"}
    assert watching.poll() == ([], [], report)  # nothing is reported twice
    shutil.rmtree(tmp_path / "run")
    ends = [watching.poll() for _ in range(3)]
    assert [alert for alerts, _, _ in ends for alert in alerts] == ["- run loss/auto 3"]
    assert (ends[-1][2].runs, ends[-1][2].firing, values.runs) == (0, (), {})
    assert watching.rest() == [ends[-1][2]]


def test_a_record_is_as_old_as_its_arrival_whatever_its_clock_says(tmp_path: Path) -> None:
    passed = 0.0
    clock = SimpleNamespace(time=lambda: START + 100 + passed, monotonic=lambda: passed)
    values = LastValues(Selection(ExportOptions()))
    before = event(1, scalar("loss", 1), at=START).SerializeToString()
    write_payloads(tmp_path / "before" / summary_name(), before)
    watching = Steps(tmp_path, "nan-loss", values=values, clock=clock)
    watching.poll()
    passed = 10.0
    write_segment(tmp_path / "ahead", event(1, scalar("loss", 1), at=START + 3600))
    write_segment(tmp_path / "behind", event(1, scalar("loss", 1), at=START - 3600))
    watching.poll()
    arrived = {name: run.arrived[0] for name, run in values.runs.items()}
    assert arrived == {"before": -100, "ahead": 10, "behind": 10}
    watching.rest()


def test_bytes_that_a_file_system_shows_late_are_read_though_nothing_else_changes(
    tmp_path: Path,
) -> None:
    path, _ = write_segment(tmp_path / "run", *losses(1, math.nan))
    whole, status = path.read_bytes(), path.stat()
    path.chmod(0o600)

    def show(data: bytes) -> None:
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    show(whole[:-20] + bytes(20))
    watching = Steps(tmp_path, "nan-loss")
    for _ in range(3):
        assert watching.poll()[:2] == ([], [])
    show(whole)
    assert watching.poll()[:2] == (["+ run loss/auto 2"], [])


def test_a_run_that_goes_just_before_the_source_is_away_is_noticed_later(tmp_path: Path) -> None:
    source = tmp_path / "records"
    for name in "ab":
        write_segment(source / name, *losses(math.nan))
    watching = Steps(source, "nan-loss")
    assert watching.poll()[0] == ["+ a loss/auto 1", "+ b loss/auto 1"]
    shutil.rmtree(source / "a")
    assert watching.poll()[0] == []  # it might have been moved at this moment
    source.rename(tmp_path / "away")
    assert [watching.poll()[0] for _ in range(3)] == [[]] * 3
    (tmp_path / "away").rename(source)
    found = [alert for _ in range(3) for alert in watching.poll()[0]]
    assert found == ["- a loss/auto 1"]
    assert [words(each) for each in watching.rest()[0].firing] == ["+ b loss/auto 1"]


def test_series_beyond_the_limit_are_not_judged(tmp_path: Path) -> None:
    others = event(1, *(scalar(f"other/{name}", 1) for name in "abcd"))  # no rule is about them
    named = event(1, *(scalar(f"loss/{name}", math.nan) for name in "abcd"))
    path, _ = write_segment(tmp_path / "run", others, named, *losses(math.nan))
    report = Report()
    reader = WatchedRun(Selection(ExportOptions(tags="loss")), report, most_series=3)
    [run] = find_runs(tmp_path)
    found = [news.scalars for news in reader.read(run)]
    judged = {columns.tags[code] for columns in found for code in columns.codes}
    assert judged == {"loss/a", "loss/b", "loss/c"}
    [problem] = report.problems
    assert problem.path == str(path)
    assert "tags beyond the first 3 of the run are not judged" in problem.text


def test_a_file_that_was_replaced_by_a_shorter_one_is_read_again(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", *losses(1, 1, 1))
    other, _ = write_segment(tmp_path / "other", *losses(math.nan))
    with Watching(tmp_path, "nan-loss", runs="run") as watching:
        other.rename(path)
        assert watching.finds("+ run loss/auto 1")
    assert watching.problems == []


def test_a_stop_in_the_middle_of_much_ends_it(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *losses(*range(2000)))
    stop = threading.Event()
    alerts = []
    for each in watch(tmp_path, [read_rule("loss > 1")], stop=stop, history=True):
        if isinstance(each, Transition):
            alerts.append(words(each))
            stop.set()
    assert alerts == ["+ run loss/auto 3"]


def test_values_that_are_there_at_the_start_are_skipped_on_request(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    write(writer, *losses(5, 5, 5), event(3, scalar("eval/auc", 0.9), at=START + 3))
    rules = ("loss > 4 for 0.25s", "eval/auc > 0.5")
    assert len(once(tmp_path, *rules, since=EVERYTHING)) == 2
    with Watching(tmp_path, *rules, since=None) as watching:
        assert watching.alerts == []
        now = time.time()
        write(writer, event(4, scalar("loss/auto", 5), at=now))
        write(writer, event(5, scalar("loss/auto", 5), at=now + 1))
        assert watching.finds("+ run loss/auto 5")
        write_segment(tmp_path / "new", *(event(n, scalar("loss", 5), at=now + n) for n in (1, 2)))
        assert watching.finds("+ run loss/auto 5", "+ new loss 2")
    assert watching.problems == []
    writer.close()


@pytest.mark.parametrize("cut", [1, 5, 12, 20])
@pytest.mark.parametrize("options", [{}, {"since": None}], ids=["all", "what is new"])
def test_a_torn_record_is_judged_when_it_is_whole(
    tmp_path: Path, cut: int, options: dict[str, Any]
) -> None:
    values = [scalar("loss", value) for value in (math.nan, 1, math.nan)]
    events = [event(step, value, at=time.time()) for step, value in enumerate(values, 1)]
    path, _ = write_segment(tmp_path / "run", *events)
    rest = cut_off(path, cut)
    with Watching(tmp_path, "nan-loss", **options) as watching:
        assert watching.alerts == []
        append(path, rest)
        assert watching.finds("+ run loss 3")
    assert watching.problems == []


def test_runs_whose_values_are_skipped_may_be_silent(tmp_path: Path) -> None:
    over = lineage(time.time() - 1200, train_lineage=train(status=RunState.FINISHED))
    for name, age in (("just now", 0), ("stuck", 1200), ("over", 1200), ("long ago", 200_000)):
        aged_segment(tmp_path / name, age, *[over] * (name == "over"))
    with Watching(tmp_path, "stall", since=None) as watching:
        assert watching.finds("+ stuck None None")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.integers(0, 12), max_size=12).map(sorted),
    st.lists(st.integers(0, 12), max_size=5).map(sorted),
)
def test_values_and_states_of_a_run_come_in_the_order_of_their_times(
    tmp_path: Path, values: list[int], states: list[int]
) -> None:
    directory = tmp_path / "run"
    shutil.rmtree(directory, ignore_errors=True)
    recorded = [event(n, scalar("loss", n), at=START + t) for n, t in enumerate(values)]
    running = [train(status=RunState.RUNNING, step=n) for n in range(len(states))]
    stated = [lineage(START + t, train_lineage=s) for t, s in zip(states, running, strict=True)]
    old_segment(directory, *recorded, *stated)
    found = []
    for run in find_runs(tmp_path):
        for news in WatchedRun(Selection(ExportOptions()), Report()).read(run):
            assert len(news.wall_times)
            if news.steps is None:
                assert news.state is not None
                found.append(("state", news.state.step))
            else:
                assert news.scalars.values.tolist() == news.steps.tolist()
                found += [("value", step) for step in news.steps.tolist()]
    expected = [(t, 0, "value", n) for n, t in enumerate(values)]
    expected += [(t, 1, "state", n) for n, t in enumerate(states)]
    assert found == [(kind, n) for *_, kind, n in sorted(expected)]


def test_records_of_many_kinds_are_judged_together_in_their_order(tmp_path: Path) -> None:
    """Records that are read one by one, in blocks, and between records of the lineage.

    There are more of them than are judged together.
    """
    events = []
    for step in range(1, 6000):
        values = [scalar("loss", step % 7), scalar("x/loss", step % 5)]
        if step % 50 < 3:
            values.append(tensor("note", (1,), (1.0,), anf_ir_pb2.DT_FLOAT32))
        events.append(event(step, *values))
        if step % 60 == 0 and step < 400:
            metric = evaluation(step / 400, train_step=step)
            events.append(lineage(START + step / 4, evaluation_lineage=metric))
    old_segment(tmp_path / "run", *events)
    expected, firing = [], set()
    for step in range(1, 6000):
        for tag, value in (("loss", step % 7), ("x/loss", step % 5)):
            if (value > 3) != (tag in firing):
                expected.append(f"{'+' if value > 3 else '-'} run {tag} {step}")
                firing ^= {tag}
    assert once(tmp_path, "loss > 3", history=True) == expected


@pytest.mark.parametrize("reading_secs", [[9, 3, 3], [9, 3, 1.5], [1.5]])
def test_where_each_reading_takes_long_silence_is_noticed(
    tmp_path: Path, reading_secs: list[float]
) -> None:
    """As where thousands of runs are written all the time."""
    write_segment(tmp_path / "run", event(1, scalar("loss", 1), at=time.time()))
    passed, stop, readings = 0.0, threading.Event(), itertools.count()

    class Slow(RunPoller):
        def poll(self) -> list[Run]:
            nonlocal passed
            number = next(readings)
            passed += reading_secs[min(number, len(reading_secs) - 1)]
            if number > 99:
                stop.set()
            return super().poll()

    began = time.time()
    clock = SimpleNamespace(time=lambda: began, monotonic=lambda: passed)
    rule, poller = read_rule("no data for 1m"), Slow(str(tmp_path))
    news = watch(tmp_path, [rule], stop=stop, interval=0.0, poller=poller, clock=clock)
    [silent] = (each for each in news if isinstance(each, Transition) and (stop.set() or True))
    assert silent.firing
    assert next(readings) < 99
