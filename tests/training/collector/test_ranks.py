"""Two ranks, started for real by msrun, write one run."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.ports import unused_port
from tests.support.programs import PROGRAMS

pytest.importorskip("mindspore")

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import find_runs
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support import event_files
from tests.support.training_records import lineage, messages, statuses

PROGRAM = PROGRAMS / "ranks_training.py"
ROOT = PROGRAM.parents[3]
STEPS = 5


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    base = tmp_path_factory.mktemp("ranks")
    # msrun starts "python": this environment's must come first
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [
            *("msrun", "--worker_num=2", "--local_worker_num=2", "--join=True"),
            *(f"--master_port={unused_port()}", f"--log_dir={base / 'log'}"),
            *(str(PROGRAM), str(base / "records" / "run"), str(STEPS)),
        ],
        cwd=base,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    logs = "".join(log.read_text()[-3000:] for log in base.glob("log/worker_*.log"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:] + logs
    return base / "records"


def test_each_rank_has_files_of_its_own(records):
    [run] = find_runs(records)
    assert run.ranks == (0, 1)
    assert [len(run.files_of(Kind.SUMMARY, rank)) for rank in (0, 1)] == [1, 1]


def test_lineage_is_written_once_by_rank_0(records):
    assert statuses(records)[-1] == "STOPPED"
    assert {item.run_state.rank for item in lineage(records, "train_lineage")} == {0}
    assert lineage(records, "train_lineage")[-1].run_state.rank_size == 2
    assert len(lineage(records, "user_defined_info")) == 1
    assert len(list(messages(records, Kind.LINEAGE, lineage_pb2.LineageEvent))) > 3


def test_landscape_checkpoints_are_written_once(records):
    names = sorted(path.name for path in (records / "run" / "ckpt_dir").glob("*.ckpt"))
    assert names == [f"ClickNet_{step}_step.ckpt" for step in (1, 2, 3)]


def test_the_export_shows_a_sub_run_for_each_rank(records, tmp_path):
    report = export_tensorboard(records, tmp_path / "logs")
    assert set(report.runs) == {"run", "run/rank_0", "run/rank_1"}
    losses = [
        event_files.scalars(tmp_path / "logs" / "run" / f"rank_{rank}", "loss/auto")
        for rank in (0, 1)
    ]
    assert [step for step, _ in losses[0]] == [1, 2, 3, 4, 5]
    assert [step for step, _ in losses[1]] == [1, 2, 3, 4, 5]
    assert losses[0] != losses[1]  # each rank saw a stream of its own
    of_all = tmp_path / "logs" / "run"
    values = np.array([[value for _, value in each] for each in losses])
    for name, expected in (("min", values.min(0)), ("max", values.max(0)), ("count", [2] * 5)):
        shown = [value for _, value in event_files.scalars(of_all, f"ranks/loss/{name}")]
        assert shown == list(expected)
    highest = event_files.scalars(of_all, "ranks/loss/max_rank")
    assert [rank for _, rank in highest] == values.argmax(0).tolist()
    assert len(event_files.scalars(of_all, "ranks/step_time/median")) == 4
