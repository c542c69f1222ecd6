"""`rec-summary why`, as users meet it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import flat, run
from tests.support.record_dirs import event, lineage, scalar, train, write_segment
from tests.support.recorded_streams import write_histories
from tests.support.slice_streams import Batch, Stream

NOTHING = "ctr and cvr: nothing moved beyond chance.\n"


def lost(step: int, batch: Batch, random: np.random.Generator) -> None:
    """Most clicks of DE are lost."""
    if step > 210:
        batch["ctr"][(batch["country"] == 1) & (random.random(len(batch["ctr"])) < 0.9)] = 0


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("records")
    for number, mend in enumerate((lost, lambda *_: None)):
        histories = Stream(1, mend, reports=24, steps=20, size=512).histories()
        write_histories(directory / f"run-{number}", histories)
        for path in (directory / f"run-{number}").iterdir():
            os.utime(path, (1e9 + number, 1e9 + number))
    return directory


def test_the_first_line_is_a_sentence(records: Path) -> None:
    done = run("why", records / "run-0")
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("ctr and cvr: ctr lost quality from step 2")
    assert "country=DE explains" in first
    assert len(rest) <= 9


def test_of_several_runs_the_last_one_counts(records: Path) -> None:
    done = run("why", records)
    assert done.stdout == NOTHING
    assert flat(done.stderr) == "run-1: the last of 2 runs (--runs chooses another) "
    done = run("why", records, "--runs", "run-0")
    assert "country=DE" in done.stdout
    assert done.stderr == ""


def test_json(records: Path) -> None:
    done = run("why", records / "run-0", "--json", "--metric", "ne", "--task", "ctr")
    found = json.loads(done.stdout)
    assert (found["run"], found["metric"], found["task"]) == ("run-0", "ne", "ctr")
    assert found["findings"][0]["name"] == "country=DE"
    assert abs(found["begin"]["step"] - 210) <= 40  # two reports


def test_steps_can_be_chosen(records: Path) -> None:
    assert run("why", records / "run-0", "--at", "120").stdout == NOTHING
    assert run("why", records / "run-0", "--since", "360").stdout == NOTHING
    assert "country=DE" in run("why", records / "run-0", "--at", "210").stdout


def test_a_damage_is_listed_once_though_files_are_read_several_times(tmp_path: Path) -> None:
    scalars = [event(step, scalar("gradients/norm", 1)) for step in range(1, 30)]
    paths = write_segment(tmp_path, *scalars, lineage(train_lineage=train(step=1)))
    for path in paths:
        path.chmod(0o600)
        path.write_bytes(path.read_bytes() + b"half")
    first, *listed = run("why", tmp_path).stderr.splitlines()
    assert first == "2 problems:"
    assert sorted(line.split(",")[0].strip() for line in listed) == sorted(map(str, paths))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--task", "sales"), "one of ctr, cvr"),
        (("--since", "soon"), "an age"),
        (("--metric", "loss"), "'auc', 'ne', 'calibration'"),
        (("--runs", "none"), "run"),
    ],
)
def test_mistakes(records: Path, arguments: tuple[str, ...], expected: str) -> None:
    done = run("why", records, *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""
