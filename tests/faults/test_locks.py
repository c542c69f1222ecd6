"""Locks: never two inside, and a dead holder never blocks."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

import filelock
import psutil
import pytest

from rec_summary.records.locks import ENVIRONMENT, check_kind, file_lock
from tests.faults.children import start
from tests.support import forkserver
from tests.support.waiting import PATIENCE_SECS, eventually

HOLD = """
import sys, time
from rec_summary.records.locks import file_lock
with file_lock(sys.argv[1], timeout=60, kind=sys.argv[2]):
    print("held", flush=True)
    time.sleep(600)
"""

# A checkpoint of MindSpore's collector or of ours, whose save says when it is under way, and
# goes on, or fails, as it is told.
SAVE = """
import os, sys
folder, whose = sys.argv[1], sys.argv[2]
os.makedirs(folder, exist_ok=True)

def save(parameters, path, *args):
    print("in", flush=True)
    if sys.stdin.readline().strip() == "fail":
        raise OSError("the save fails")
    open(path, "wb").close()

if whose == "theirs":
    from mindspore import nn
    from mindspore.train.callback import _summary_collector as module
    module.save_checkpoint = save
    collector = object.__new__(module.SummaryCollector)
    collector._ckpt_dir, collector._model_params_file_map = folder, {}
    take = lambda: collector._save_model_params(1, "step", nn.Dense(1, 1))
else:
    import mindspore
    import numpy as np
    from rec_summary.training.landscape.checkpoints import Snapshot, _Files
    from rec_summary.training.landscape.options import LandscapeOptions
    mindspore.save_checkpoint = save
    files = _Files(folder, LandscapeOptions(), "flock")
    take = lambda: files.write(Snapshot(1, "Net", {"w": np.zeros(3, np.float32)}, 1))
print("ready", flush=True)
sys.stdin.readline()
try:
    take()
except OSError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("kind", ["flock", "soft"])
def test_a_lock_is_exclusive_and_a_dead_holder_loses_it(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "lock")
    holder = start(sys.executable, "-c", HOLD, path, kind)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(filelock.Timeout):
        file_lock(path, timeout=0.3, kind=kind).acquire()
    holder.kill()
    holder.communicate()
    with file_lock(path, timeout=PATIENCE_SECS, kind=kind):
        pass


def test_a_planted_link_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(OSError, match="link"):
        file_lock(str(tmp_path / "lock"), timeout=0)
    (tmp_path / "other.soft").symlink_to(victim)
    with pytest.raises(OSError, match="it is a link"):
        file_lock(str(tmp_path / "other"), timeout=0.2, kind="soft").acquire()
    assert victim.read_text() == "precious"


def test_the_kind_is_chosen_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert check_kind("lock", None) == "flock"
    monkeypatch.setenv(ENVIRONMENT, "soft")
    assert check_kind("lock", None) == "soft"
    assert check_kind("lock", "flock") == "flock"
    monkeypatch.setenv(ENVIRONMENT, "fcntl")
    with pytest.raises(ValueError, match=f"{ENVIRONMENT}.*'fcntl'.*'flock', 'soft'"):
        check_kind("lock", None)
    with pytest.raises(TypeError, match="one of 'flock', 'soft'"):
        check_kind("lock", 3)  # type: ignore[arg-type]


def test_the_race_of_mindspores_lock_is_absent_in_ours(tmp_path: Path) -> None:
    """MindSpore unlinks the lock file after a save, whoever else waits for it.

    The same schedule with its code and with ours: A saves and B waits. A's save fails, and B
    goes in. Then C comes: with MindSpore's it locks a new file, and stands beside B.
    """
    pytest.importorskip("mindspore")
    assert two_inside(tmp_path / "theirs", "theirs", PATIENCE_SECS)
    assert not two_inside(tmp_path / "ours", "ours", 2)


def two_inside(folder: Path, whose: str, patience: float) -> bool:
    """Runs the schedule; tells whether C comes inside together with B in so many seconds."""
    program = (sys.executable, "-c", SAVE, folder, whose)
    first, second, third = everybody = [
        start(*program, popen=forkserver.Popen, stdin=subprocess.PIPE) for _ in range(3)
    ]
    try:
        for process in everybody:
            assert said(process) == "ready"
        tell(first, "go")
        assert said(first) == "in"
        tell(second, "go")
        if whose == "theirs":  # the file that the first one unlinks
            eventually(lambda: opened(second), lambda paths: any(".lock" in each for each in paths))
        assert said(second, 0.5) is None  # it waits
        tell(first, "fail")
        assert said(second) == "in"
        first.communicate(timeout=PATIENCE_SECS)
        tell(third, "go")
        return said(third, patience) == "in"
    finally:
        for process in everybody:
            process.kill()
            process.communicate()


def opened(process: subprocess.Popen[str]) -> list[str]:
    """Returns the files that a process has open."""
    return [each.path for each in psutil.Process(process.pid).open_files()]


def tell(process: subprocess.Popen[str], word: str) -> None:
    """Sends a line."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def said(process: subprocess.Popen[str], patience: float = PATIENCE_SECS) -> str | None:
    """Returns the next line, or None if none comes."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], patience)[0]:
        return None
    return process.stdout.readline().strip()
