from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rec_summary.records.locks import KINDS, file_lock

_KILLED = """
import os, signal, sys
from rec_summary.records.locks import file_lock
lock = file_lock(sys.argv[1], timeout=0, kind=sys.argv[2])
lock.acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_lock_of_a_killed_process_is_free_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = str(tmp_path / "lock")
    done = subprocess.run([sys.executable, "-c", _KILLED, path, kind], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir())
    monkeypatch.setenv("REC_SUMMARY_LOCK", kind)
    with file_lock(path, timeout=0) as lock:
        assert lock.is_locked
        [file] = tmp_path.iterdir()
        # The file of a flock stays, and must not be taken for the holder of a soft lock.
        assert file.name == {"flock": "lock", "soft": "lock.soft"}[kind]
        assert file.stat().st_mode & 0o777 == 0o600
    assert file_lock(path, timeout=7, kind=kind).timeout == 7
