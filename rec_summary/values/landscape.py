"""Recorded loss landscapes as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rec_summary._pb.summary_pb2 import LossLandscape
from rec_summary.arrays import Floats
from rec_summary.checks import check_that
from rec_summary.errors import three_part
from rec_summary.values.tensor import from_tensor

_MOST_POINTS: Final = 1 << 20  # MindSpore computes 65,536
_MOST_OF_PATH: Final = 100_000


@dataclass(frozen=True)
class Landscape:
    """The loss on a plane through the space of parameters.

    Attributes:
        x: Coordinates along the first direction, shape (columns,).
        y: Coordinates along the second direction, shape (rows,).
        z: The loss, shape (rows, columns); NaN if it is unknown.
        path: The path of the training, projected onto the plane: x and y of each checkpoint, and
            the loss at this point of the plane, not at the checkpoint; shape (checkpoints, 3);
            empty for a random plane.
        intervals: The numbers of these checkpoints, in `unit`.
        convergence: x, y and loss of the point that the plane goes through; None if unknown.
        decomposition: The method that chose the plane: `PCA` or `Random`; in 0.1 also `Hessian`.
        unit: `epoch` or `step`.
        step_per_epoch: The number of steps of an epoch; 0 if unknown.
        explained: The share of the variance of the path along each direction; empty if unknown.
        seed: The seed of a random plane; None if unknown.
        samples: The number of samples of each loss; 0 if unknown.
        selection: The selection of the parameters that move; empty if unknown.
        moved: The number of values that move; 0 if unknown.
        eigenvalues: The eigenvalues of the Hessian along each direction, as 0.1 recorded them;
            empty for other planes.
    """

    x: Floats
    y: Floats
    z: Floats
    path: Floats
    intervals: tuple[int, ...] = ()
    convergence: tuple[float, float, float] | None = None
    decomposition: str = ""
    unit: str = ""
    step_per_epoch: int = 0
    explained: tuple[float, ...] = ()
    seed: int | None = None
    samples: int = 0
    selection: str = ""
    moved: int = 0
    eigenvalues: tuple[float, ...] = ()


def from_landscape(message: LossLandscape) -> Landscape:
    """Returns a recorded landscape as arrays.

    Raises:
        ValueError: The sizes contradict each other, or there is no surface.
    """
    x, y = _vector(message.landscape.x), _vector(message.landscape.y)
    z = _array(message.landscape.z)
    expected = f"at most {_MOST_POINTS:,}"
    check_that(z.size <= _MOST_POINTS, "the number of points of a landscape", z.size, expected)
    if not z.size or z.size != x.size * y.size:
        received = f"{z.size} losses for {x.size} × {y.size} coordinates"
        raise ValueError(three_part("a loss landscape", received, "a loss for each of them"))
    points = message.loss_path.points
    path = [_vector(points.x), _vector(points.y), _vector(points.z)]
    if len({part.size for part in path}) != 1:
        received = " and ".join(str(part.size) for part in path)
        raise ValueError(three_part("the path on a loss landscape", received, "as many of each"))
    what = "the number of points of the path on a landscape"
    check_that(path[0].size <= _MOST_OF_PATH, what, path[0].size, f"at most {_MOST_OF_PATH:,}")
    ends = [_vector(getattr(message.convergence_point, name)) for name in "xyz"]
    convergence = None
    if all(end.size for end in ends):
        convergence = (float(ends[0][0]), float(ends[1][0]), float(ends[2][0]))
    metadata = message.metadata
    return Landscape(
        x=x,
        y=y,
        z=z.reshape(y.size, x.size),
        path=np.stack(path, axis=1),
        intervals=tuple(message.loss_path.intervals or message.loss_path.intervals64),
        convergence=convergence,
        decomposition=_text(metadata.decomposition),
        unit=_text(metadata.unit),
        step_per_epoch=metadata.step_per_epoch,
        explained=tuple(metadata.explained_variance),
        seed=metadata.seed if metadata.HasField("seed") else None,
        samples=metadata.samples,
        selection=_text(metadata.selection),
        moved=metadata.moved,
        eigenvalues=tuple(metadata.eigenvalues),
    )


def _array(tensor: Any) -> Floats:
    # Tensors in MindSpore's landscapes may lack a type; they are float32.
    if not tensor.data_type:
        return np.array(tensor.float_data, dtype=np.float64)
    return from_tensor(tensor).astype(np.float64)


def _vector(tensor: Any) -> Floats:
    return _array(tensor).reshape(-1)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
