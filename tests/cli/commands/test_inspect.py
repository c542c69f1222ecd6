"""`rec-summary inspect`, as users meet it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.series.report import Report
from tests.support import record_dirs
from tests.support.command import PROGRAM, flat, on_terminal, run
from tests.support.corpus import losses, put
from tests.support.record_dirs import (
    START,
    event,
    histo,
    lineage,
    scalar,
    train,
    write_segment,
)
from tests.support.waiting import PATIENCE_SECS


def test_inspect_shows_what_is_there(three_runs: Path) -> None:
    done = run("inspect", three_runs, "--runs", "run_1")
    assert done.returncode == 0
    text = flat(done.stdout)
    for words in (
        "run_1 status FINISHED",
        "host worker, process 7",
        "steps 1 to 3",
        "samples 192",
        "2 files",
        "loss/auto scalar 0.5 0.5 0.7 1–3 3",
        "w histogram 1–1 1",
        "time 2023-11-14 22:13:20 UTC",
    ):
        assert words in text
    assert "run_0" not in text


@pytest.mark.parametrize("width", [0, 5])
def test_a_terminal_without_room_is_no_error(three_runs: Path, width: int) -> None:
    assert "run_0" in on_terminal(width, "inspect", three_runs)


def test_inspect_tells_apart_two_writers_and_puts_scalars_first(tmp_path: Path) -> None:
    others = scalar("rec_summary/bytes", 1), scalar("z", 1), histo("a", [1.0])
    put(tmp_path / "run", *losses(range(1, 200)), event(199, *others), host="a")
    put(tmp_path / "run", *losses(range(1, 99), salt=1, after=0.5), stamp=1, host="b")
    [run] = find_runs(tmp_path)
    found = list(inspect_run(run))
    assert [(each.run, each.last_step) for each in found] == [("run", 199), ("run/writer_2", 98)]
    assert [each.tag for each in found[0].tags] == ["loss", "z", "a", "rec_summary/bytes"]


def test_the_steps_of_a_run_are_those_that_no_restart_supersedes(tmp_path: Path) -> None:
    for first, last, begin in ((1, 9, 0.0), (3, 5, 60.0)):
        steps = range(first, last + 1)
        events = [event(n, scalar("loss", n), at=record_dirs.START + begin + n) for n in steps]
        write_segment(tmp_path / "run", *events)
    [run] = find_runs(tmp_path)
    [found] = inspect_run(run)
    assert (found.first_step, found.last_step) == (1, 5)
    assert [(each.first_step, each.last_step) for each in found.tags] == [(1, 5)]


def test_each_writer_has_its_problems_however_many_another_has(tmp_path: Path) -> None:
    broken = bytearray(frame(b"x"))
    broken[-1] ^= 1
    for stamp, count in ((0, 1200), (1, 3)):
        host = "ab"[stamp]
        put(tmp_path / "run", *losses((1, 99), after=stamp / 2), stamp=stamp, host=host)
        [path] = (tmp_path / "run").glob(f"*.{host}_MS")
        with path.open("ab") as file:
            file.write(bytes(broken) * count)
    report = Report()
    found = list(inspect_run(*find_runs(tmp_path), report))
    assert [each.problem_count for each in found] == [1200, 3]
    assert ["b_MS" in problem.path for problem in found[1].problems] == [True] * 3


def test_inspect_says_when_a_run_gives_no_sign_of_life(tmp_path: Path) -> None:
    described = train(status=lineage_pb2.RunState.RUNNING, host="elsewhere", pid=7)
    write_segment(tmp_path, lineage(START, train_lineage=described))
    done = run("inspect", tmp_path)
    assert "status     RUNNING, no sign of life since 2023-11-14 22:13:20 UTC" in done.stdout
    [found] = json.loads(run("inspect", tmp_path, "--json").stdout)["runs"]
    assert found["silent_since"] == START


def test_times_beyond_the_calendar_are_seconds(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_segment(
            tmp_path / name, event(1, scalar("loss", 1)), event(2, scalar("loss", 1), at=1e12)
        )
    told = run("inspect", tmp_path, "--runs", "a").stdout
    assert "time       2023-11-14 22:13:20 UTC to 1e+12 seconds since 1970" in told
    assert "1e+12 seconds since 1970" in run("lineage", tmp_path, "--wide").stdout


def test_inspect_as_json(three_runs: Path) -> None:
    found = json.loads(run("inspect", three_runs, "--json").stdout)["runs"]
    assert [each["run"] for each in found] == ["run_0", "run_1", "run_2"]
    [loss] = [tag for tag in found[0]["tags"] if tag["kind"] == "scalar"]
    assert (loss["values"], loss["last"], loss["not_finite"]) == (3, 0.5, 1)
    assert (loss["least"], loss["greatest"]) == (0.5, pytest.approx(0.7))
    assert found[0]["records"]["summary"] == 3


def test_inspect_shows_the_first_tags_or_all(tmp_path: Path) -> None:
    values = [scalar(f"tag_{n:03}", n) for n in range(60)]
    write_segment(tmp_path / "run", event(1, *values))
    assert "and 10 more tags (--all shows them)" in run("inspect", tmp_path).stdout
    assert "tag_059" in run("inspect", tmp_path, "--all").stdout


def test_inspect_lists_the_chosen_tags_of_any_kind(three_runs: Path) -> None:
    def tags(pattern: str) -> list[list[str]]:
        found = json.loads(run("inspect", three_runs, "--tags", pattern, "--json").stdout)
        # What is said of the run is of the whole run.
        assert {(each["first_step"], each["samples"]) for each in found["runs"]} == {(1, 192)}
        return [[tag["tag"] for tag in each["tags"]] for each in found["runs"]]

    assert tags("^w$") == [["w"]] * 3
    assert tags("loss") == [["loss/auto"]] * 3
    assert "loss/auto" not in run("inspect", three_runs, "--tags", "^w$").stdout
    none = run("inspect", three_runs, "--tags", "nothing")
    assert none.returncode == 2
    assert "a pattern that is found in a tag; there are: " in flat(none.stderr)


def test_slices_are_folded_unless_they_are_chosen(tmp_path: Path) -> None:
    sliced = {f"recommender/ctr/slice/country={name}/auc/last_9": name for name in ("DE", "FR%2F")}
    others = (
        "recommender/ctr/slice/country/auc_worst/last_9",
        "recommender/slice/age=1/rmse/last_9",
    )
    for step in (1, 2):
        values = [scalar(tag, len(name) + step) for tag, name in sliced.items()]
        write_segment(tmp_path, event(step, *values, *(scalar(tag, 7) for tag in others)))

    def rows(*options: str) -> dict[str, list[str]]:
        lines = run("inspect", tmp_path, *options).stdout.splitlines()
        cells = (re.split(r"\s{2,}", line.strip()) for line in lines if "last_9" in line)
        return {tag: values[:-1] for tag, *values in cells}

    folded = "recommender/ctr/slice/country=(2 values)/auc/last_9"
    assert rows().keys() == {folded, *others}
    assert rows()[folded] == ["scalar", "3", "7", "1–2", "4"]  # no last value
    assert "  slices: --all or --tags lists each value\n" in run("inspect", tmp_path).stdout
    for options in (("--all",), ("--tags", "slice|auc")):
        assert rows(*options).keys() == {*sliced, *others}
    listed = json.loads(run("inspect", tmp_path, "--json").stdout)["runs"][0]["tags"]
    assert {tag["tag"] for tag in listed} == {*sliced, *others}


def test_inspect_reports_damage(three_runs: Path, damaged: Path) -> None:
    done = run("inspect", three_runs)
    assert done.returncode == 0
    assert f"{damaged}, offset " in done.stderr


def test_a_reader_that_leaves_ends_it_quietly(three_runs: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does once it has enough
    done = subprocess.run(
        [*PROGRAM, "inspect", str(three_runs)],
        stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECS, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""
