"""Records to check with: all of our own cases, and two trainings with everything."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support import cases

ROOT: Final = Path(__file__).parents[3]
PROGRAM: Final = ROOT / "tests" / "support" / "mindspore_everything.py"
COLLECTORS: Final = ("rec_summary", "mindspore")
_TRAIN_SECS: Final = 300


def write(folder: Path) -> None:
    """Writes record directories below a folder; the trainings only if there is a MindSpore.

    Raises:
        RuntimeError: A training failed.
    """
    cases.write_all(folder / "cases")
    if importlib.util.find_spec("mindspore") is None:
        print("no MindSpore: no trainings, our own cases only")
        return
    for collector in COLLECTORS:
        train(collector, folder / collector)


def train(collector: str, folder: Path) -> None:
    """Records the trainings of one collector, in a process of their own.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run(
        [sys.executable, str(PROGRAM), collector, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        cwd=folder.parent,  # MindSpore leaves files where it runs
        capture_output=True,
        text=True,
        timeout=_TRAIN_SECS,
    )
    if done.returncode:
        raise RuntimeError(f"the training recorded by {collector} failed:\n{done.stderr}")
