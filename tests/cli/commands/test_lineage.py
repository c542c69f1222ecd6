"""`rec-summary lineage`, as users meet it."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from rec_summary._pb.lineage_pb2 import RunState
from tests.support.command import PROGRAM, flat, on_terminal, run
from tests.support.corpus import evaluation
from tests.support.record_dirs import START, custom, event, lineage, scalar, train, write_segment
from tests.support.waiting import PATIENCE_SECS


def table(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


def test_lineage_answers_which_run_was_best(three_runs: Path) -> None:
    done = run("lineage", three_runs, "--sort", "-auc", "--columns", "run,learning_rate,auc")
    assert table(done.stdout) == [
        ["run", "learning_rate", "auc"],
        ["run_2", "0.001", "0.8"],
        ["run_1", "0.01", "0.7"],
        ["run_0", "0.1", "0.6"],
    ]


def _with_scores(root: Path, **directions: str) -> None:
    for name, direction in directions.items():
        values = [event(step, scalar("auc", step), scalar("my_score", 3 - step)) for step in (1, 2)]
        stated = {"my_score": direction, "auc": direction} if direction else {}
        described = train(status=RunState.FINISHED, directions=stated)
        write_segment(root / name, lineage(train_lineage=described), *values)


def test_what_was_guessed_of_the_column_to_sort_by_is_said_in_a_line(tmp_path: Path) -> None:
    _with_scores(tmp_path, a="")
    for column in ("auc", "-best/auc", "best_step/auc"):
        done = run("lineage", tmp_path, "--sort", column, "--json")
        assert json.loads(done.stdout)[0]["best/auc"] == 2
        assert flat(done.stderr).strip() == (
            'auc: greater is better, as its name says; to state it: metrics={"auc": "greater"}, or '
            '"less", where it is recorded'
        )
    for quiet in (("--sort", "loss"), ("--sort", "run"), ("--sort", "auc", "--quiet")):
        assert run("lineage", tmp_path, *quiet).stderr == ""


def test_nothing_is_said_where_the_runs_state_the_same(tmp_path: Path) -> None:
    _with_scores(tmp_path, a="less", b="less")
    done = run("lineage", tmp_path, "--sort", "-best/my_score", "--columns", "run,my_score")
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("second", ["greater", ""])
def test_runs_that_state_different_directions_are_told_apart(tmp_path: Path, second: str) -> None:
    _with_scores(tmp_path, a="less", b=second)
    done = run("lineage", tmp_path, "--sort", "best/auc", "--json")
    assert [row["best/auc"] for row in json.loads(done.stdout)] == [1, 2]
    said = "auc: the runs state different directions, and each one's own counts"
    assert flat(done.stderr).strip() == said


def test_an_evaluation_without_a_direction_has_no_best_value_and_the_remedy_is_said(
    tmp_path: Path,
) -> None:
    write_segment(tmp_path, evaluation(START, '{"my_score": 0.5}', 1))
    remedy = 'metrics={"my_score": "greater"}, or "less", where it is recorded'
    done = run("lineage", tmp_path, "--sort", "my_score")
    assert flat(done.stderr).strip() == f"my_score: no direction is known; to state it: {remedy}"
    done = run("lineage", tmp_path, "--sort", "best/my_score")
    assert done.returncode == 2
    assert f"a metric of which a run states which values are better: {remedy}" in flat(done.stderr)


NAMES = ("20261128-091500-wide-and-deep", "20261128-101500-wide-and-deep", "b")
METRICS = (
    *("auc", "average_precision", "calibration", "click_rate", "gauc", "log_loss"),
    "normalised_entropy",
)


def _with_tasks(root: Path, *, tasks: Sequence[str] = ("ctr/", "cvr/"), short: str = "") -> None:
    """Runs of several tasks; all have the window of 500 examples, and `short` no other one."""
    for run_name, place in zip(NAMES, (1, 3, 2), strict=True):
        windows = ("last_500",) if run_name == short else ("last_50", "last_500", "decayed_9000")
        tags = {
            f"recommender/{task}{metric}/{window}": (place if task == "ctr/" else -place) / 64 + 0.5
            for task in tasks
            for metric in METRICS
            for window in windows
        }
        described = train(status=RunState.FINISHED, step=300)
        described.hyper_parameters.learning_rate = place / 100
        values = event(300, scalar("loss", place), *map(scalar, tags, tags.values()))
        write_segment(root / run_name, lineage(train_lineage=described), values)


def test_the_auc_of_each_task_comes_first_and_the_best_run_is_marked(tmp_path: Path) -> None:
    _with_tasks(tmp_path, short="b")
    _, *lines, mark, _ = run("lineage", tmp_path).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    heads, *rows = table("\n".join(lines))
    assert heads[:4] == ["run", "ctr/auc/last_500", "cvr/auc/last_500", "loss"]
    assert [row[:3] for row in rows] == [
        [NAMES[0], "0.515625", "*0.484375"],
        [NAMES[1], "*0.546875", "0.453125"],
        ["b", "0.53125", "0.46875"],
    ]
    assert mark == "* the best of these runs"
    one = run("lineage", tmp_path, "--runs", "b").stdout
    assert "*" not in one
    chosen = run("lineage", tmp_path, "--columns", "run,ctr/auc/last_500").stdout
    assert "*" not in chosen


def test_of_windows_that_all_runs_have_the_longest_is_shown(tmp_path: Path) -> None:
    for name in ("a", "b"):
        windows = ("last_50", "last_500", "decayed_9000", "lifetime", f"last_900{name == 'b':d}")
        values = (scalar(f"recommender/auc/{window}", 0.5) for window in windows)
        write_segment(tmp_path / name, event(1, *values))
    _, heads, *rows = table(run("lineage", tmp_path).stdout)
    assert heads[:2] == ["run", "auc/last_500"]
    assert [row[1] for row in rows[:2]] == ["0.5", "0.5"]  # none is the best


def test_tasks_of_other_kinds_have_the_metric_that_judges_them(tmp_path: Path) -> None:
    tags = ("a/mae", "a/rmse", "b/log_loss", "b/accuracy", "c/in_batch_recall_at_10", "d/auc")
    for name, value in (("x", 0.25), ("y", 0.5)):
        values = event(1, *(scalar(f"recommender/{tag}/last_9", value) for tag in tags))
        write_segment(tmp_path / name, values)
    _, heads, *rows = table(run("lineage", tmp_path, "--wide").stdout)
    assert heads[1:5] == ["rmse", "accuracy", "in_batch_recall_at_10", "auc"]
    assert [each[1:5] for each in rows[:2]] == [
        ["*0.25", "0.25", "0.25", "0.25"],
        ["0.5", "*0.5", "*0.5", "*0.5"],
    ]


@pytest.mark.parametrize(
    ("column", "order", "sorted_by"),
    [
        ("-auc", (1, 2, 0), "recommender/ctr/auc/last_500"),
        ("auc", (0, 2, 1), "recommender/ctr/auc/last_500"),
        ("-best/auc", (1, 2, 0), "best/recommender/ctr/auc/last_500"),
        ("-cvr/auc", (0, 2, 1), "recommender/cvr/auc/last_500"),
    ],
)
def test_of_several_tasks_and_windows_the_first_column_sorts_and_it_is_said(
    tmp_path: Path, column: str, order: tuple[int, ...], sorted_by: str
) -> None:
    _with_tasks(tmp_path, short="b")
    done = run("lineage", tmp_path, "--sort", column, "--json")
    assert [row["run"] for row in json.loads(done.stdout)] == [NAMES[place] for place in order]
    [line] = done.stderr.splitlines()
    assert line.startswith(f"Sorted by {sorted_by}, ")
    assert run("lineage", tmp_path, "--sort", column, "--quiet").stderr == ""
    assert run("lineage", tmp_path, "--sort", "-auc/last_50").returncode == 2  # no task is meant


def test_lineage_shows_once_what_all_runs_share(three_runs: Path) -> None:
    first, *rest = run("lineage", three_runs).stdout.splitlines()
    assert first.startswith("The same in all of these runs: status FINISHED, network DeepFM")
    # The best values are the last ones: they say no more, and come behind the parameters.
    found = ["run", "loss", "step", "auc", "learning_rate", "best/auc", "last_record"]
    assert table(rest[0]) == [found]


def test_what_no_shown_run_has_is_not_said_to_be_the_same(three_runs: Path) -> None:
    assert run("note", three_runs / "run_0", "an outage").returncode == 0
    first = run("lineage", three_runs, "--filter", "auc>0.65").stdout.splitlines()[0]
    assert "network DeepFM" in first
    assert "notes" not in first


def test_lineage_filters(three_runs: Path) -> None:
    command = ("lineage", three_runs, "--filter", "learning_rate<0.05", "--filter", "auc!=0.8")
    rows = list(csv.DictReader(io.StringIO(run(*command, "--format", "csv").stdout)))
    assert [(row["run"], row["team"]) for row in rows] == [("run_1", "ads")]
    found = json.loads(run(*command, "--format", "json").stdout)
    assert [row["auc"] for row in found] == [0.7]
    assert (
        len(json.loads(run("lineage", three_runs, "--limit", "2", "--format", "json").stdout)) == 2
    )


def test_a_run_without_the_only_column_has_a_row_of_csv(three_runs: Path) -> None:
    """Readers pass over an empty line."""
    write_segment(three_runs / "run_3", lineage(user_defined_info=custom({"team": "search"})))
    done = run("lineage", three_runs, "--columns", "auc", "--format", "csv")
    assert list(csv.reader(io.StringIO(done.stdout))) == [["auc"], ["0.6"], ["0.7"], ["0.8"], [""]]


def test_a_column_that_no_run_needs_is_empty(three_runs: Path) -> None:
    """A command of cron asks for silent runs also while there are none."""
    query = ("--columns", "run,silent_since,notes", "--sort", "notes", "--limit", "1")
    done = run("lineage", three_runs, *query, "--format", "csv")
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["run", "silent_since", "notes"],
        ["run_0", "", ""],
    ]
    assert table(run("lineage", three_runs, *query).stdout)[1] == ["run_0"]
    none = run("lineage", three_runs, "--filter", "silent_since>0")
    assert "conditions that a run meets; there are: silent_since none" in flat(none.stderr)


def test_csv_on_standard_output_has_the_ends_of_lines_of_a_shell(three_runs: Path) -> None:
    command = [*PROGRAM, "lineage", str(three_runs), "--columns", "run,auc", "--format", "csv"]
    written = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECS).stdout
    assert written == b"run,auc\nrun_0,0.6\nrun_1,0.7\nrun_2,0.8\n"


def test_problems_are_printed_before_the_table(three_runs: Path) -> None:
    [path] = (three_runs / "run_1").glob("*_MS")
    with open(path, "ab") as file:
        file.write(b"half")
    command = [*PROGRAM, "lineage", str(three_runs), "--limit", "2", "--columns", "run"]
    both = subprocess.run(command, stdout=PIPE, stderr=STDOUT, text=True, timeout=PATIENCE_SECS)
    lines = both.stdout.splitlines()
    assert lines[0] == "1 problem:"
    assert [line.strip() for line in lines[2:]] == ["run", "run_0", "run_1"]


@pytest.mark.parametrize("width", [0, 30])
def test_sentences_on_a_terminal_have_whole_names(tmp_path: Path, width: int) -> None:
    facts = custom({"data-set": "click-logs-of-november", "network-name": "deep-and-cross"})
    for name in "ab":
        write_segment(tmp_path / name, lineage(user_defined_info=facts))
    shown = on_terminal(width, "lineage", tmp_path)
    assert {"click-logs-of-november,", "deep-and-cross"} <= set(shown.split())


def test_a_mistake_in_a_filter_is_found_before_records_are_read(tmp_path: Path) -> None:
    done = run("lineage", tmp_path / "nothing", "--filter", "auc<high")
    assert "a number after the operator" in flat(done.stderr)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sort", "auk"), "Received: 'auk'. Expected: one of the columns, such as auc"),
        (("--filter", "auc"), "a name, one of = != < <= > >= ~, and a value"),
        (("--filter", "auc<high"), "a number after the operator"),
        (("--filter", "auc>3"), "Received: 'auc>3'. Expected: conditions that a run meets; there"),
        (("--columns", "run,nothing"), "Received: 'nothing'"),
        (("--runs", "nothing"), "a pattern that matches a run"),
    ],
)
def test_mistakes_in_a_query_exit_with_2(
    three_runs: Path, options: tuple[str, str], words: str
) -> None:
    done = run("lineage", three_runs, *options)
    assert done.returncode == 2
    assert words in flat(done.stderr)
