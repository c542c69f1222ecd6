"""What survives the life of a training: a kill, a restart, evaluations, and a compaction."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rec_summary
from rec_summary.compaction.directory import compact
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.overview.rows import rows_of
from rec_summary.series.report import Report
from tests.support import forkserver
from tests.support.boards import record_pages
from tests.support.event_files import values
from tests.support.programs import PROGRAMS
from tests.support.record_dirs import event, lineage, scalar, write_segment
from tests.support.waiting import PATIENCE_SECS

pytestmark = pytest.mark.mindspore
pytest.importorskip("mindspore")

ROOT = PROGRAMS.parents[2]
PROGRAM = PROGRAMS / "life_cycle.py"
KINDS = ("model", "online")
KILLED, CHECKPOINT, LAST = 25, 20, 30  # steps

Series = dict[str, dict[int, float]]


class Lives(NamedTuple):
    """What happened in all lives of a training.

    Attributes:
        records: The tree with the run `run`.
        series: The values that must survive, by tag and step.
        lines: The standard error of each life.
    """

    records: Path
    series: Series
    lines: dict[str, str]


def float32(values: dict[Any, Any]) -> dict[int, float]:
    return {int(step): float(np.float32(value)) for step, value in values.items()}


@pytest.fixture(scope="module")
def all_lives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lives]:
    """Trains in processes of their own; those of both kinds run at the same time."""
    lives = {
        kind: Lives(tmp_path_factory.mktemp(kind), {"loss/auto": {}, "eval/mae": {}}, {})
        for kind in KINDS
    }
    for life in ("killed", "resumed", "evaluated"):
        processes = {
            kind: forkserver.Popen(
                [sys.executable, PROGRAM, kind, life, lives[kind].records / "run"],
                env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for kind in KINDS
        }
        for kind, process in processes.items():
            out, err = process.communicate(timeout=PATIENCE_SECS)
            assert process.returncode == (-9 if life == "killed" else 0), err
            losses, evaluations = json.loads(out)
            lives[kind].lines[life] = err
            lives[kind].series["loss/auto"] |= float32(losses)  # the later value counts
            metrics = {step: each["mae"] for step, each in evaluations.items()}
            lives[kind].series["eval/mae"] |= float32(metrics)
    return lives


@pytest.fixture(params=KINDS)
def lives(request: pytest.FixtureRequest, all_lives: dict[str, Lives]) -> Lives:
    return all_lives[request.param]


def loaded(records: Path) -> Series:
    frame = rec_summary.load(str(records)).scalars()
    assert set(frame.run) == {"run"}
    chosen = frame[frame.tag.isin(["loss/auto", "eval/mae"])]
    assert not chosen.duplicated(["tag", "step"]).any()
    found: Series = {}
    for tag, step, value in zip(chosen.tag, chosen.step, chosen.value, strict=True):
        found.setdefault(tag, {})[step] = value
    return found


def provided(records: Path) -> Series:
    index, pages = record_pages(records)
    points = {
        tag: pages.get("plugin/scalars/scalars", run="run", tag=tag)
        for tag in ("loss/auto", "eval/mae")
    }
    index.close()
    return {tag: {step: value for _, step, value in each} for tag, each in points.items()}


def exported(records: Path, logdir: Path) -> Series:
    rec_summary.export_tensorboard(records, logdir)
    found: Series = {"loss/auto": {}, "eval/mae": {}}
    for step, _, value in values(logdir / "run"):
        if value.tag in found:
            for each in [each for each in found[value.tag] if each >= step]:
                del found[value.tag][each]  # as TensorBoard's default loader
            found[value.tag][step] = value.simple_value
    return found


def best(records: Path) -> tuple[float, int]:
    [run] = find_runs(records)
    [row] = rows_of(run, Report())
    return row["best/mae"], row["best_step/mae"]


@pytest.fixture(params=[False, True], ids=["complete", "compacted"])
def records(request: pytest.FixtureRequest, lives: Lives, tmp_path: Path) -> Path:
    """The records, and a compacted copy of them."""
    copy = tmp_path / "records"
    shutil.copytree(lives.records, copy)
    if request.param:
        [run] = find_runs(copy)
        [done] = compact(copy, run.nbytes * 3 // 4)
        assert done.replaced
    return copy


def test_what_must_survive_is_in_every_reader(lives: Lives, records: Path, tmp_path: Path) -> None:
    expected, compacted = lives.series, len(find_runs(records)[0].files) < 6
    assert list(expected["loss/auto"]) == [*range(1, LAST + 1)]
    found = loaded(records)
    for tag, points in expected.items():
        assert found[tag].items() <= points.items()
        assert {min(points), max(points)} <= found[tag].keys()
    assert found["eval/mae"] == expected["eval/mae"]
    assert compacted or found == expected
    assert provided(records) == found
    assert exported(records, tmp_path / "logs") == found
    step = min(points := expected["eval/mae"], key=lambda step: (points[step], step))
    assert best(records) == (pytest.approx(points[step]), step)


def test_each_start_says_what_it_supersedes(lives: Lives) -> None:
    lines = {life: text.count("superseded") for life, text in lives.lines.items()}
    assert lines == {"killed": 0, "resumed": 1, "evaluated": 0}
    assert f"begins at step {CHECKPOINT + 1}, and" in lives.lines["resumed"]
    assert f"has records up to step {KILLED}: " in lives.lines["resumed"]


def evaluations_at_step_0(records: Path) -> Iterator[Any]:
    """Yields what an evaluation in a process of its own once recorded."""
    for mae in (0.75, 0.5):
        yield event(0, scalar("eval/mae", mae), at=4e9)
        evaluation = {"metric": json.dumps({"mae": mae}), "train_step": 0}
        yield lineage(4e9, evaluation_lineage=evaluation)


def test_evaluations_that_were_recorded_at_step_0_supersede_nothing(
    lives: Lives, records: Path, tmp_path: Path
) -> None:
    before = loaded(records), best(records)
    write_segment(records / "run", *evaluations_at_step_0(records))
    assert (loaded(records), best(records)) == before
    assert provided(records) == before[0]
    assert exported(records, tmp_path / "logs") == before[0]
    compact(records, find_runs(records)[0].nbytes * 3 // 4)
    found = loaded(records)
    assert found["eval/mae"] == before[0]["eval/mae"]
    assert {1, LAST} <= found["loss/auto"].keys()
    assert best(records) == before[1]
