"""A landscape whose workers are killed, or wait until somebody has killed one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from rec_summary.engines.engine import Engine
from rec_summary.landscape.evaluate import EvaluationTask, evaluate
from tests.support.quadratic import plane_store


class Model:
    """A model whose loss takes until a file exists, or whose evaluation kills its process."""

    fingerprint = "model"
    samples = 1

    def __init__(self, does: str, awaited: Path) -> None:
        self.does, self.awaited = does, awaited

    def __call__(self, device: int | None) -> Model:
        return self

    def set(self, name: str, value: Any) -> None:
        pass

    def loss(self) -> float:
        if self.does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(1, b"evaluating\n")  # in one piece: several workers have this pipe
        while not self.awaited.exists():
            time.sleep(0.05)
        return 0.0


def landscape(folder: Path, does: str) -> int:
    """Evaluates a landscape with two workers; returns the number of points with a loss.

    Args:
        folder: The directory of its store.
        does: What the model does: die, or wait until the file `go on` is in the folder.
    """
    store = plane_store(folder)
    task = EvaluationTask(Model(does, folder / "go on"), store.folder)
    found = evaluate(task, store.points, range(9), Engine(jobs=2))
    return sum(len(losses) for _, losses, _ in found)
