"""`rec-summary verify`, `repair` and `compact`, as users meet them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
from rich.filesize import decimal

from rec_summary.records.incidents import (
    IncidentBatch,
    RecordedIncident,
    incident_path,
    write_incident,
)
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars
from tests.support.command import flat, run
from tests.support.record_dirs import (
    START,
    custom,
    event,
    lineage,
    scalar,
    summary_name,
    train,
    tree,
    write_segment,
)


def test_verify_finds_no_damage_in_sound_records(three_runs: Path) -> None:
    done = run("verify", three_runs)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^6 files, \d+ sound records, .* kB: no damage$", done.stdout, re.MULTILINE)


def test_verify_reports_damage_by_its_exit_code(three_runs: Path, damaged: Path) -> None:
    done = run("verify", three_runs)
    assert done.returncode == 1
    assert f"damage: {damaged}, offset " in done.stdout
    assert "1 damaged file" in done.stdout
    assert run("verify", "-q", three_runs / "run_1").stdout == ""
    files = json.loads(run("verify", "--json", three_runs).stdout)["files"]
    [report] = [file for file in files if file["damaged"]]
    assert report["path"] == str(damaged)
    assert report["findings"][-1]["severity"] == "damage"


def test_an_empty_file_and_a_torn_end_are_only_warnings(three_runs: Path) -> None:
    began = three_runs / "run_0" / summary_name()
    began.write_bytes(b"")  # as a training leaves it that has just begun
    [path] = (three_runs / "run_1").glob("*_MS")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    done = run("verify", three_runs)
    assert done.returncode == 0
    assert done.stdout.count("warning: ") == 2
    assert done.stdout.endswith(": no damage, 2 warnings\n")


def test_verify_of_a_file_names_its_directory(damaged: Path) -> None:
    done = run("verify", damaged)
    assert done.returncode == 2
    assert f"a directory; that of this file is '{damaged.parent}'" in flat(done.stderr)


def test_what_was_repaired_is_sound(three_runs: Path, damaged: Path, tmp_path: Path) -> None:
    done = run("repair", three_runs, tmp_path / "copy")
    assert done.returncode == 0
    assert f"{damaged}, offset " in done.stdout
    assert "Copied " in done.stdout
    assert run("verify", tmp_path / "copy").returncode == 0
    again = run("repair", three_runs, tmp_path / "copy")
    assert again.returncode == 2
    assert "an empty directory, or one that does not exist" in flat(again.stderr)


def test_no_command_copies_incidents(three_runs: Path, tmp_path: Path) -> None:
    for run_folder in three_runs.iterdir():
        for path in run_folder.iterdir():
            os.utime(path, (START, START))
        path = incident_path(str(run_folder), 0, 3)
        batch = IncidentBatch(3, {"user": np.array([123456789])}, (), 0.5)
        write_incident(RecordedIncident(path, 3, "asked for", (batch,)))
    copies = {
        "repaired": ("repair", three_runs, tmp_path / "repaired"),
        "small": ("compact", three_runs, "--total-bytes", 100_000, "--output", tmp_path / "small"),
        "exported": ("export", three_runs, tmp_path / "exported"),
        "tables": ("export", three_runs, tmp_path / "tables", "--format", "csv"),
    }
    for name, words in copies.items():
        done = run(*words)
        assert done.returncode == 0, done.stderr
        assert any(path.is_file() for path in (tmp_path / name).rglob("*"))
        assert not [*(tmp_path / name).rglob("*incident*"), *(tmp_path / name).rglob("*.npz")]
    assert len([*three_runs.glob("*/incidents/*.npz")]) == 3
    for command in ("verify", "inspect", "lineage"):
        done = run(command, three_runs)
        assert done.returncode == 0
        assert "npz" not in done.stdout + done.stderr


def test_compact_keeps_the_history_in_fewer_bytes(tmp_path: Path) -> None:
    steps = [event(step, scalar("loss/auto", step % 10)) for step in range(1, 2001)]
    paths = write_segment(tmp_path / "records" / "run", *steps, lineage(train_lineage=train()))
    for path in paths:
        os.utime(path, (START, START))  # nobody writes it
    before = tree(tmp_path / "records")  # a lock file may be added
    words = ["compact", tmp_path / "records", "--total-bytes", 20_000]

    dry = run(*words, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "run: would shrink " in dry.stdout
    assert tree(tmp_path / "records").items() >= before.items()

    copied = run(*words, "--output", tmp_path / "small", "--json")
    [found] = json.loads(copied.stdout)
    assert found["bytes_after"] <= 20_000 < found["bytes_before"]
    assert tree(tmp_path / "records").items() >= before.items()

    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "steps in a bucket" in done.stdout
    for place in ("records", "small"):
        [made] = find_runs(tmp_path / place)
        assert made.nbytes <= 20_000
        report = Report()
        columns = [each for _, each in finished_scalars(made, EVERYTHING, report)]
        steps_left = np.concatenate([each.steps for each in columns]).tolist()
        assert report.problems == []
        assert (steps_left[0], steps_left[-1]) == (1, 2000)
    again = run(*words, "--dry-run")
    assert "run: nothing to do (" in again.stdout


def test_compact_of_several_runs_prints_the_total(tmp_path: Path) -> None:
    for name in ("a", "b", "small"):
        steps = range(1, 5 if name == "small" else 2001)
        paths = write_segment(tmp_path / name, *(event(n, scalar("loss", n % 10)) for n in steps))
        for path in paths:
            os.utime(path, (START, START))
    words = ["compact", tmp_path, "--total-bytes", 20_000, "--dry-run"]
    found = json.loads(run(*words, "--json").stdout)
    before, after = (
        decimal(sum(each[name] for each in found)) for name in ("bytes_before", "bytes_after")
    )
    assert run(*words).stdout.endswith(f"\n3 runs: would shrink {before} -> {after}\n")


def test_compact_refuses_a_budget_that_cannot_be_met(tmp_path: Path) -> None:
    many = [lineage(START + n, user_defined_info=custom({f"n{n}": n})) for n in range(500)]
    steps = [event(step, scalar("loss", step)) for step in range(1, 500)]
    for path in write_segment(tmp_path / "run", *many, *steps):
        os.utime(path, (START, START))
    before = tree(tmp_path)
    done = run("compact", tmp_path / "run", "--total-bytes", 5000)
    assert done.returncode == 1
    assert "the budget for a rank of a run is invalid" in flat(done.stderr)
    assert "at least " in flat(done.stderr)
    assert tree(tmp_path).items() >= before.items()


def test_compacted_copies_have_the_permissions_and_times_of_the_records(tmp_path: Path) -> None:
    for number in range(2):
        steps = range(number * 300, number * 300 + 300)
        write_segment(tmp_path / "run", *(event(step, scalar("loss", step)) for step in steps))
    for path in (tmp_path / "run").iterdir():
        path.chmod(0o640)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    output = tmp_path / "small"
    done = run("compact", tmp_path / "run", "--total-bytes", 12_000, "--output", output)
    assert done.returncode == 0, done.stderr
    found = {path.name: path.stat() for path in output.rglob("*") if path.is_file()}
    assert any("compacted" in name for name in found)
    assert {(each.st_mode & 0o777, each.st_mtime) for each in found.values()} == {
        (0o640, 1_700_000_000.0)
    }


def test_compact_leaves_what_may_be_written(tmp_path: Path) -> None:
    steps = [event(step, scalar("loss", step)) for step in range(1, 500)]
    write_segment(tmp_path / "run", *steps)
    before = tree(tmp_path)
    done = run("compact", tmp_path / "run", "--total-bytes", 5000)
    assert done.returncode == 0
    assert "left as it is: it has changed in the last 10 minutes" in flat(done.stderr)
    assert tree(tmp_path).items() >= before.items()
    wrong = run("compact", tmp_path / "run", "--total-bytes", 5000, "--output", tmp_path)
    assert wrong.returncode == 2
