"""A loss with a known surface, and checkpoints of a training on it."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rec_summary.landscape.checkpoints import Trajectory
from rec_summary.landscape.metadata import Metadata, read_metadata
from rec_summary.landscape.plane import pca_plane
from rec_summary.landscape.store import Store
from rec_summary.landscape.summary_landscape import Options, SummaryLandscape
from rec_summary.tables.frames import load
from rec_summary.values.landscape import Landscape
from tests.support.checkpoint_bytes import value

SHAPES = {"user_embedding_table": (5, 3), "head.weight": (2, 3), "head.bias": (2,)}
SIZE = sum(int(np.prod(shape)) for shape in SHAPES.values())


def flat(parameters: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Returns all parameters as one vector."""
    parts = [np.asarray(parameters[name], np.float64).reshape(-1) for name in SHAPES]
    return np.concatenate(parts)


def parameters(vector: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float32]]:
    """Returns a vector as parameters."""
    found, start = {}, 0
    for name, shape in SHAPES.items():
        size = int(np.prod(shape))
        found[name] = vector[start : start + size].reshape(shape).astype(np.float32)
        start += size
    return found


def curvature() -> npt.NDArray[np.float64]:
    """Returns the diagonal of the loss's second derivative."""
    return np.linspace(0.5, 3.0, SIZE)


def minimum() -> npt.NDArray[np.float64]:
    """Returns where the loss is least."""
    return np.random.default_rng(5).normal(size=SIZE).astype(np.float32).astype(np.float64)


def loss(vector: npt.NDArray[Any]) -> float:
    """Returns 0.25 and half the weighted square of the distance from the minimum."""
    return float(0.25 + 0.5 * np.sum(curvature() * (vector - minimum()) ** 2))


@dataclass(frozen=True)
class Maker:
    """Makes the model; processes get this.

    Attributes:
        seconds: How long an evaluation takes.
        journal: A file that gets a line for each evaluation.
        fails_at: The number of the evaluation, in each process, that fails.
        hangs_at: The number of the one that never ends.
    """

    seconds: float = 0.0
    journal: str = ""
    fails_at: int = -1
    hangs_at: int = -1

    @property
    def fingerprint(self) -> str:
        return ""

    def __call__(self, device: int | None) -> Quadratic:
        return Quadratic(self)


class Quadratic:
    """The model of a landscape; its data has fewer samples than `write_run` asks for."""

    samples = 48

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._parameters: dict[str, Any] = {}
        self._count = 0

    def set(self, name: str, value: npt.NDArray[Any]) -> None:
        if name in SHAPES:
            assert value.shape == SHAPES[name]
            self._parameters[name] = np.array(value)

    def loss(self) -> float:
        self._count += 1
        if self._count == self._maker.fails_at:
            raise RuntimeError("out of luck")
        if self._count == self._maker.hangs_at:
            signal.pause()
        time.sleep(self._maker.seconds)
        if self._maker.journal:
            with open(self._maker.journal, "a", encoding="utf-8") as file:
                file.write("x\n")
        return loss(flat(self._parameters))


def descend(steps: int) -> list[npt.NDArray[np.float64]]:
    """Returns the points of a gradient descent with momentum, as float32 holds them."""
    point = np.random.default_rng(7).normal(size=SIZE) * 2
    velocity, points = np.zeros(SIZE), []
    for _ in range(steps):
        points.append(point.astype(np.float32).astype(np.float64))
        velocity = 0.8 * velocity - 0.08 * curvature() * (point - minimum())
        point = point + velocity
    return points


def write_checkpoint(path: Path, vector: npt.NDArray[Any], **more: Any) -> None:
    """Writes a vector as a checkpoint, with statistics and a counter that do not move."""
    parts = [
        value(name, array.shape, "Float32", array.tobytes())
        for name, array in parameters(vector).items()
    ]
    parts.append(value("norm.moving_mean", (2,), "Float32", np.ones(2, np.float32).tobytes()))
    parts.append(value("global_step", (), "Int32", (7).to_bytes(4, "little")))
    path.write_bytes(b"".join(parts))


def write_run(folder: Path, steps: int = 6, size: int = 7) -> Metadata:
    """Writes a run with checkpoints, and returns what it has kept."""
    checkpoints = folder / "ckpt_dir"
    checkpoints.mkdir(parents=True)
    files = {}
    for number, vector in enumerate(descend(steps), start=1):
        name = f"Net_{number}_step.ckpt"
        write_checkpoint(checkpoints / name, vector)
        files[str(number)] = f"/somewhere/else/ckpt_dir/{name}"  # where it was written
    metadata = {
        "epoch_group": {"0": list(range(1, steps + 1))},
        "model_params_file_map": files,
        "step_per_epoch": 10,
        "unit": "step",
        "num_samples": 64,
        "landscape_size": size,
        "create_landscape": {"train": True, "result": True},
    }
    (checkpoints / "train_metadata.json").write_text(json.dumps(metadata))
    return read_metadata(folder)


SEQUENTIAL = Options(engine="sequential")


def compute(
    folder: Path, options: Options = SEQUENTIAL, make: Maker | None = None, **changes: Any
) -> dict[str, Landscape]:
    """Computes a run's landscapes and returns what was recorded, by tag."""
    metadata = write_run(folder) if not folder.exists() else read_metadata(folder)
    SummaryLandscape(folder).compute(make or Maker(), replace(metadata, **changes), options)
    return {each.tag: each.landscape for each in load(folder).landscapes()}


def plane_store(folder: Path) -> Store:
    """Writes a run, and returns a store with a plane of 5 × 5 points of it."""
    write_run(folder / "run", size=5)
    (folder / "store").mkdir()
    return opened_store(folder)


def opened_store(folder: Path, plan: dict[str, Any] | None = None) -> Store:
    """Opens what `plane_store` has written, again as the store of that plan or of another one."""
    metadata = read_metadata(folder / "run")
    with Trajectory(metadata, metadata.intervals[0]) as trajectory:
        plane = pca_plane(trajectory, trajectory.names, 5)
    return Store(str(folder / "store"), plane, plan or {"n": 1})
