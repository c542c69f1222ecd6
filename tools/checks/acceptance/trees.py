"""Records to check with: all of our own cases, and trainings recorded by two collectors."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

from tests.support import cases, forkserver
from tests.support.every_kind import every_kind

ROOT: Final = Path(__file__).parents[3]
FIXED: Final = "fixed"
COLLECTORS: Final = ("rec_summary", "mindspore")
_TRAIN_SECS: Final = 300


def written(folder: Path, *, trainings: bool) -> dict[str, Path]:
    """Writes record directories; returns the trees by name.

    Args:
        folder: Where to.
        trainings: Whether to write trainings too, if there is a MindSpore to train with.

    Raises:
        RuntimeError: A training failed.
    """
    trees = {FIXED: folder / FIXED}
    cases.write_all(trees[FIXED])
    every_kind(trees[FIXED] / "everything")
    if trainings and importlib.util.find_spec("mindspore") is None:
        print("MindSpore is not installed: only our own cases are checked")
    elif trainings:
        trees["trainings"] = folder / "trainings"
        _train(trees["trainings"])
    return trees


def _train(folder: Path) -> None:
    folder.mkdir()
    program = ROOT / "tests" / "support" / "mindspore_everything.py"
    for collector in COLLECTORS:
        done = forkserver.run(
            [sys.executable, str(program), collector, str(folder / collector)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
            cwd=folder,  # MindSpore leaves files where it runs
            timeout=_TRAIN_SECS,
        )
        if done.returncode:
            raise RuntimeError(f"the training recorded by {collector} failed:\n{done.stderr}")
