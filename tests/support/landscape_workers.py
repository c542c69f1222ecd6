"""A landscape whose workers are killed, or sleep until somebody kills them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from rec_summary.engines import Engine
from rec_summary.landscape.evaluate import EvaluationTask, evaluate
from tests.support.quadratic import plane_store


class Model:
    """A model whose loss takes for ever, or whose evaluation kills its process."""

    fingerprint = "model"

    def __init__(self, does: str) -> None:
        self.does = does

    def __call__(self, device: int | None) -> Model:
        return self

    def set(self, name: str, value: Any) -> None:
        pass

    def loss(self) -> float:
        if self.does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        print("evaluating", flush=True)
        signal.pause()
        return 0.0


def landscape(folder: Path, does: str) -> None:
    """Evaluates a landscape with two workers, whose model does this: die or sleep."""
    store = plane_store(folder)
    task = EvaluationTask(Model(does), store.folder)
    list(evaluate(task, store.points, range(9), Engine(jobs=2)))
