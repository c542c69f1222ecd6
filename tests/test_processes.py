"""Workers that are killed, and workers whose parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from rec_summary import export_tensorboard
from rec_summary.processes import WorkerError, end_with_parent
from rec_summary.tensorboard.event_files import export
from tests.support.landscape_workers import landscape
from tests.support.record_dirs import event, scalar, write_segment
from tests.support.waiting import PATIENCE_SECS

_EVALUATING = """
import sys
from tests.support.landscape_workers import landscape
from pathlib import Path
if __name__ == "__main__":
    landscape(Path(sys.argv[1]), "sleep")
"""


def _die(run: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_of_an_export_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write_segment(tmp_path / "records" / name, event(1, scalar("loss", 1)))
    with monkeypatch.context() as patch:
        patch.setattr(export, "_export_one", _die)
        with pytest.raises(WorkerError, match=r"killed.*fewer --jobs and run it again"):
            export_tensorboard(tmp_path / "records", tmp_path / "logs", jobs=2)
    assert len(export_tensorboard(tmp_path / "records", tmp_path / "logs").runs) == 2


def test_a_killed_worker_of_a_landscape_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    with pytest.raises(WorkerError, match=r"killed.*points that are finished are kept"):
        landscape(tmp_path, "die")


def test_the_workers_of_a_killed_landscape_end_with_it(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    command = [sys.executable, "-c", _EVALUATING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "evaluating\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert len(workers) >= 2
        assert not psutil.wait_procs(workers, timeout=PATIENCE_SECS)[1]  # those still alive


def test_a_process_without_a_parent_goes_on() -> None:
    end_with_parent()
    assert "rec_summary-parent" not in {thread.name for thread in threading.enumerate()}
