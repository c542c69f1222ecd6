"""`rec-summary tail`, as users meet it."""

from __future__ import annotations

import itertools
import json
import math
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rec_summary import RecommenderMetrics, SummaryRecord
from rec_summary._pb import lineage_pb2
from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.format.framing import frame
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.overview.tail import Tail
from tests.support.command import PROGRAM, end, flat, python, run, start
from tests.support.record_dirs import START, event, lineage, scalar, train, write_segment
from tests.support.waiting import PATIENCE_SECS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        write_segment(
            tmp_path / "records" / name,
            *(event(step, scalar("loss", 1 / step), scalar("auc", math.nan)) for step in (1, 2, 4)),
            lineage(train_lineage=train(status=lineage_pb2.RunState.FINISHED)),
        )
    return tmp_path / "records"


def test_the_last_values_in_lines(source: Path) -> None:
    done = run("tail", source, "--once", "--runs", "a")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["a  auc  step 4  nan", "a  loss  step 4  0.25"]


def test_the_last_values_in_json(source: Path) -> None:
    done = run("tail", source, "--once", "--json", "--tags", "^(loss|auc)$", "--runs", "b")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["run"], each["tag"], each["step"], each["value"]) for each in found] == [
        ("b", "auc", 4, "NaN"),
        ("b", "loss", 4, 0.25),
    ]


SHOWN = (
    *("eval/auc", "loss/auto", "my/loss"),
    *("recommender/ctr/auc/last_9", "recommender/ctr/calibration/last_9"),
    *("recommender/stars/rmse/last_9", "val_accuracy"),
)
HIDDEN = (
    *("gradients/norm", "loss_scale", "rec_summary/bytes"),
    *("recommender/ctr/auc/last_5", "recommender/ctr/log_loss/last_9"),
    *("recommender/ctr/slice/country=DE/auc/last_9", "recommender/host/cpu_share"),
)


def test_without_tags_it_shows_the_loss_and_the_quality_of_each_task(tmp_path: Path) -> None:
    values = [scalar(tag, 0.5) for tag in (*SHOWN, *HIDDEN)]
    write_segment(tmp_path / "r" / "a", event(1, *values))
    write_segment(tmp_path / "r" / "b", event(1, scalar("x", 1), scalar("y", 1)))

    def tags(*options: str) -> list[str]:
        lines = run("tail", tmp_path / "r", "--once", *options).stdout.splitlines()
        return [line.split()[1] for line in lines if line.startswith("a ")]

    assert tags() == [*SHOWN]
    assert set(tags("--tags", ".")) == {*SHOWN, *HIDDEN}
    assert tags("--limit", "1") == ["eval/auc"]
    done = run("tail", tmp_path / "r", "--once")
    assert "b  x  step 1  1" in done.stdout  # it has neither
    assert done.stderr == "7 more series: --tags . shows all\n"
    assert run("tail", tmp_path / "r", "--once", "-q").stderr == ""
    done = run("tail", tmp_path / "r", "--once", "--json")
    assert (len(done.stdout.splitlines()), done.stderr) == (16, "")


def test_alerts_that_fire_come_after_the_values(tmp_path: Path) -> None:
    for name, last in (("a", math.nan), ("b", 0.5)):
        losses = (event(step, scalar("loss", value)) for step, value in enumerate((1.0, last), 1))
        write_segment(tmp_path / name, *losses)
    *values, alert = run("tail", tmp_path, "--once").stdout.splitlines()
    assert values == ["a  loss  step 2  nan", "b  loss  step 2  0.5"]
    assert [alert] == run("watch", tmp_path, "--once").stdout.splitlines()
    assert "FIRING a: nan-loss" in alert
    assert "FIRING" not in run("tail", tmp_path, "--once", "--runs", "b").stdout
    for options in (("--tags", "loss"), ("--json",), ("--quiet",)):
        assert "nan-loss" not in run("tail", tmp_path, "--once", *options).stdout
    shown, _ = on_a_terminal("tail", tmp_path, "--once", until=lambda text: False)
    assert "nan-loss" in shown
    shown, _ = on_a_terminal("tail", tmp_path, until=lambda text: "Waiting" in text)
    assert "nan-loss" not in shown  # it began before


def test_it_does_not_read_whole_runs_to_judge_their_quality(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    options = RecommenderMetrics(
        predictions="p", labels="y", slices={"country": "country"}, report_steps=1
    )
    with SummaryRecord(tmp_path, recommender=options) as record:
        for step in range(1, 41):
            country, scores = random.integers(0, 5, 4000), random.beta(2, 8, 4000)
            kept = (country > 0) | (random.random(4000) > 0.7 * (step > 25))
            record.observe(p=scores, y=kept & (random.random(4000) < scores), country=country)
            record.record(step)
            record.flush()
    assert "quality-change" in run("watch", tmp_path, "--once").stdout
    assert "quality-change" not in run("tail", tmp_path, "--once").stdout


def test_a_table_says_what_it_does_not_list(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", event(1, *(scalar(tag, 0.5) for tag in (*SHOWN, *HIDDEN))))
    shown, _ = on_a_terminal("tail", tmp_path, "--once", "--limit", "5", until=lambda text: False)
    assert "and 2 more series" in shown
    assert "7 more series: --tags . shows all" in shown


def test_an_alert_that_begins_and_ends_is_a_line(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", event(1, scalar("loss", 1)))
    process = start("tail", tmp_path, "--interval", "0.1")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stderr.readline().startswith("Waiting for new values of 1 run")
    writer = RunWriter(tmp_path / "a", 0)
    steps = itertools.count(2)
    for value, state in ((math.nan, "FIRING"), (0.5, "RESOLVED")):
        line = ""
        while f"{state} a: nan-loss" not in line:
            writer.write(MessageRecord(event(next(steps), scalar("loss", value), at=time.time())))
            writer.flush()
            line = process.stdout.readline()
    writer.close()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0


def test_values_of_too_many_series_are_counted(source: Path) -> None:
    code = (
        "import sys, rec_summary.cli, rec_summary.series.overview.tail as tail; "
        "tail.MOST_SERIES = 1; sys.exit(rec_summary.cli.main(sys.argv[1:]))"
    )
    done = python(code, "tail", source, "--once", "--runs", "a")
    assert done.stdout == "a  loss  step 4  0.25\n"
    assert done.stderr == (
        "There are too many series: 3 values left out; --runs and --tags choose fewer.\n"
    )


def test_of_a_large_run_the_newest_part_is_shown(tmp_path: Path) -> None:
    """Of any run, if what is chosen ended before."""
    image = Summary.Image(height=1, width=1, colorspace=1, encoded_image=bytes(1 << 20))
    large = Summary.Value(tag="large", image=image)
    for name, ended in (("a", 5), ("b", 40)):
        values = [(scalar("old" if step <= ended else "new", step), large) for step in range(1, 41)]
        write_segment(tmp_path / "r" / name, *(event(n, *each) for n, each in enumerate(values, 1)))
    done = run("tail", tmp_path / "r", "--once")
    assert done.stdout.splitlines() == ["a  new  step 40  40", "b  old  step 40  40"]
    assert (
        done.stderr == "Only the newest 67.1 MB are read; --since 0 also reads the older 16.8 MB.\n"
    )
    for options in (("--tags", "old"), ("--since", "0", "--tags", "old"), ("--tags", "old", "-q")):
        done = run("tail", tmp_path / "r", "--once", *options)
        assert done.stdout.splitlines() == ["a  old  step 5  5", "b  old  step 40  40"]
        assert ("--since 0" in done.stderr) == (options == ("--tags", "old"))
    done = run("tail", tmp_path / "r", "--once", "--tags", "other")
    assert done.returncode == 2
    assert "there are: old, new" in flat(done.stderr)


def test_new_values_steps_and_runs_come_in_lines(source: Path) -> None:
    process = start("tail", source, "--tags", "loss", "--interval", "0.1")
    assert process.stdout is not None
    assert process.stderr is not None
    waiting = "Waiting for new values of 2 runs (tags in which 'loss' is found)"
    waiting += "; --since STEP shows recorded ones.\n"
    assert process.stderr.readline() == waiting
    writer = RunWriter(source / "c", 0)
    for step in (7, 8):
        writer.write(MessageRecord(event(step, scalar("loss", step))))
        writer.flush()
        assert process.stdout.readline() == f"c  loss  step {step}  {step}\n"
    writer.close()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE_SECS) == ("", "")
    assert process.returncode == 0


def test_a_tag_that_is_not_there_yet_is_waited_for_in_words(source: Path) -> None:
    process = start("tail", source, "--tags", "auuc", "--since", "0")
    assert process.stderr is not None
    assert process.stderr.readline() == (
        "There are no values to show yet (tags in which 'auuc' is found): waiting for new ones.\n"
    )
    end(process)


def on_a_terminal(
    *arguments: str | Path, until: Callable[[str], bool], **environment: str
) -> tuple[str, int]:
    """Runs a command on a terminal, with Ctrl-C when something was shown.

    Returns:
        What was shown, and the exit code.
    """
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", **environment},
    )
    os.close(child)
    shown, asked = "", False
    deadline = time.monotonic() + PATIENCE_SECS
    while True:
        assert time.monotonic() < deadline, shown
        try:
            shown += os.read(parent, 65_536).decode(errors="replace")
        except OSError:  # the other side is closed
            break
        if not asked and until(shown):
            process.send_signal(signal.SIGINT)
            asked = True
    os.close(parent)
    return shown, process.wait(PATIENCE_SECS)


def test_a_table_with_sparklines_on_a_terminal(source: Path) -> None:
    shown, code = on_a_terminal(
        "tail", source, "--since", "0", until=lambda text: "b (finished)" in text
    )
    assert code == 0
    for words in ("a (finished)", "loss", "0.25", "█▃▁"):
        assert words in shown
    assert "\x1b[1m" in shown


def test_a_run_that_was_killed_says_so_and_its_counters_come_last(tmp_path: Path) -> None:
    killed = train(status=lineage_pb2.RunState.RUNNING, host="elsewhere", pid=7)
    values = scalar("rec_summary/bytes", 1), scalar("z", 2)
    write_segment(tmp_path / "run", event(1, *values), lineage(START, train_lineage=killed))
    shown, code = on_a_terminal("tail", tmp_path, "--once", until=lambda text: False)
    assert code == 0
    assert "run (running)" in shown
    assert "run: no sign of life since 2023-11-14 22:13:20 UTC" in shown
    assert shown.index("  z ") < shown.index("rec_summary/bytes")


def test_facts_fit_the_terminal(tmp_path: Path) -> None:
    names = "records", "dropped", "errors", "queue_length", "snapshot_ms"
    counters = (scalar(f"rec_summary/{name}", 123_456) for name in names)
    write_segment(tmp_path / "run", event(1, *counters))
    shown, _ = on_a_terminal("inspect", tmp_path, "-q", until=lambda text: False, COLUMNS="80")
    facts = [line for line in shown.splitlines() if line.startswith("  ")]
    assert max(map(len, facts)) <= 80
    text = "123,456 recorded, 123,456 dropped, 123,456 errors, queue at most 123,456"
    assert text in flat(shown)


def test_no_colours_where_none_are_wanted(source: Path) -> None:
    shown, code = on_a_terminal("tail", source, "--once", until=lambda text: False, NO_COLOR="1")
    assert code == 0
    assert "\x1b[36m" not in shown
    shown, _ = on_a_terminal("inspect", source, until=lambda text: False, NO_COLOR="1")
    assert "\x1b[3" not in shown


def test_hostile_tags_cannot_play_tricks(tmp_path: Path) -> None:
    write_segment(tmp_path / "r" / "x", event(1, scalar("[bold]\x1b[31mred\n", 1.0)))
    assert "\x1b[31m" not in run("tail", tmp_path / "r", "--once").stdout
    shown, _ = on_a_terminal("tail", tmp_path / "r", "--once", until=lambda text: False)
    assert "\x1b[31m" not in shown
    assert r"[bold]\x1b[31mred\n" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--once", "--runs", "nothing"), "a pattern that matches a run"),
        (("--tags", "("), "a regular expression that compiles"),
        (("--interval", "0"), "is not in the range"),
    ],
)
def test_mistakes_exit_with_2(source: Path, options: tuple[str, ...], words: str) -> None:
    done = run("tail", source, *options)
    assert done.returncode == 2
    assert words in flat(done.stderr)


def test_reading_goes_on_where_it_was(source: Path) -> None:
    tail = Tail(str(source))
    assert sum(len(new.columns.codes) for new in tail.poll()) == 12
    whole = tail.report.bytes_read
    assert list(tail.poll()) == []
    assert tail.report.bytes_read == whole
    [path] = (source / "a").glob("*_MS")
    assert tail.series[("a", 0, "loss")].means.means().tolist() == [1.0, 0.5, 0.25]
    path.chmod(0o600)
    with open(path, "ab") as file:
        file.write(b"half a record")
    assert list(tail.poll()) == []
    assert list(tail.poll()) == []
    assert tail.report.bytes_read == whole


def test_it_begins_at_the_end_unless_the_past_is_asked_for(source: Path) -> None:
    tail = Tail(str(source), tags="loss")
    tail.skip()
    assert list(tail.poll()) == []
    writer = RunWriter(source / "a", 0)
    writer.write(MessageRecord(event(7, scalar("loss", 0.5))))
    writer.close()
    [path] = (source / "b").glob("*_MS")
    path.chmod(0o600)
    with open(path, "ab") as file:
        file.write(frame(event(8, scalar("loss", 0.25)).SerializeToString()))
    found = [(new.run, new.columns.steps.tolist()) for new in tail.poll()]
    assert sorted(found) == [("a", [7]), ("b", [8])]
    assert tail.status == {"a": "FINISHED", "b": "FINISHED"}
    new_bytes, tail = tail.report.bytes_read, Tail(str(source), tags="loss", since=4)
    found = [(new.run, new.columns.steps.tolist()) for new in tail.poll()]
    assert sorted(found) == [("a", [4]), ("a", [7]), ("b", [4, 8])]
    assert new_bytes < tail.report.bytes_read


def test_the_past_from_a_step_on_comes_first(source: Path) -> None:
    process = start("tail", source, "--tags", "loss", "--since", "2", "--interval", "0.1")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in "ab"] == [
        "a  loss  step 4  0.25\n",
        "b  loss  step 4  0.25\n",
    ]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE_SECS) == ("", "")


def test_many_runs_do_not_exceed_the_window(tmp_path: Path) -> None:
    for index in range(60):
        write_segment(tmp_path / "r" / f"run_{index:02}", event(1, scalar("loss", 1.0)))
    shown, code = on_a_terminal(
        "tail", tmp_path / "r", "--since", "0", until=lambda text: "more series" in text, LINES="20"
    )
    assert code == 0
    assert "and 52 more series" in shown
    assert "run_59" in shown  # all of them stay on the screen in the end


def test_it_ends_quietly_when_nobody_reads(source: Path) -> None:
    for command in (("tail", source, "--once"), ("inspect", source), ("lineage", source)):
        line = f"{' '.join(map(str, [*PROGRAM, *command]))} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE_SECS
        )
        assert done.stderr == ""
        assert done.stdout.strip() in ("0", "1")


def test_a_limit_of_series(source: Path) -> None:
    done = run("tail", source, "--once", "--limit", "3")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["a", "auc"],
        ["a", "loss"],
        ["b", "auc"],
    ]
