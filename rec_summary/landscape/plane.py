"""Planes through the space of parameters: along the training, or at random.

Source: Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018: PCA of the
differences from the last checkpoint, and filter normalisation of random directions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.landscape.trajectory import FEWEST, Trajectory, is_table

Floats = npt.NDArray[np.float64]
Vector = dict[str, npt.NDArray[Any]]
"""A point or a direction: an array for each parameter."""

_MARGIN: Final = 0.2  # of the path's extent, on each side
_REACH: Final = 1.0  # of a plane at random, on each side, in units of each filter's norm
_AT_ONCE: Final = 1 << 22  # numbers of all checkpoints together
_RANK: Final = 1e-10  # a smaller share of the variance is rounding


@dataclass(frozen=True)
class Plane:
    """A plane, and what of it is looked at.

    Attributes:
        origin: The point that coordinates (0, 0) stand for: the last checkpoint.
        first: The direction of x, for the parameters that move.
        second: The direction of y.
        x: The grid's coordinates along the first direction, ascending.
        y: Those along the second.
        path: Coordinates of each checkpoint, shape (checkpoints, 2); empty at random.
        explained: The share of the path's variance along each direction; empty at random.
        method: `PCA`, `Random` or `Hessian`.
        eigenvalues: Of the Hessian, along each direction; empty for other methods.
        moved: How many numbers move.
    """

    origin: Vector
    first: Vector
    second: Vector
    x: Floats
    y: Floats
    path: Floats
    explained: tuple[float, ...]
    method: str
    eigenvalues: tuple[float, ...] = ()

    moved: int = field(default=-1)

    def __post_init__(self) -> None:
        if self.moved < 0:
            object.__setattr__(self, "moved", sum(each.size for each in self.first.values()))

    def without_vectors(self) -> Plane:
        """Returns the plane without what takes memory."""
        return replace(self, origin={}, first={}, second={})


def pca_plane(trajectory: Trajectory, names: Sequence[str], size: int) -> Plane:
    """Returns the plane that the checkpoints lie in best, and that the last one lies in.

    The checkpoints are read stretch by stretch: the principal directions are found from the
    products of their differences. Only the plane itself is in memory: three times the
    parameters, for the origin and two directions.

    Args:
        trajectory: The checkpoints, at least three.
        names: The parameters that move.
        size: Points along each side of the grid.

    Raises:
        SourceError: There are too few checkpoints, or they lie on a line.
    """
    count = len(trajectory.numbers)
    if count < FEWEST:
        raise SourceError(
            three_part(
                "the number of checkpoints of a loss landscape",
                verbatim(f"{count} ({', '.join(map(str, trajectory.numbers))})"),
                f"at least {FEWEST}",
            )
        )
    products = _products(trajectory, names)
    values, vectors = np.linalg.eigh(products)
    values, vectors = values[::-1], vectors[:, ::-1]
    total = float(values.clip(0).sum())
    if total <= 0 or values[1] <= _RANK * total:
        what = "the same point" if total <= 0 else "on one line"
        raise SourceError(
            three_part(
                "the checkpoints of a loss landscape",
                verbatim(f"{count} that lie {'at ' if total <= 0 else ''}{what}"),
                "three that span a plane: take others, or a plane at random",
            )
        )
    weights = vectors[:, :2] / np.sqrt(values[:2])
    coordinates = products @ weights
    # Which way a direction points is free: the training begins at the right.
    signs = np.where(coordinates[np.abs(coordinates).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    weights, coordinates = weights * signs, coordinates * signs
    path = np.vstack([coordinates, np.zeros(2)])
    origin = last_point(trajectory)
    first, second = _directions(trajectory, names, origin, weights)
    return Plane(
        origin=origin,
        first=first,
        second=second,
        x=_axis(path[:, 0], size),
        y=_axis(path[:, 1], size),
        path=path,
        explained=tuple(float(value / total) for value in values[:2]),
        method="PCA",
    )


def last_point(trajectory: Trajectory) -> Vector:
    """Returns all parameters of the last checkpoint, those that do not move included."""
    return {name: trajectory.array(-1, name) for name in trajectory.all_names}


def random_plane(
    trajectory: Trajectory,
    names: Sequence[str],
    size: int,
    seed: int,
    *,
    touched_only: bool = False,
) -> Plane:
    """Returns a plane at random through the last checkpoint, with normalised filters.

    Each row of a direction has the norm of the same row of the parameter, so that one unit
    means the same for large and small weights; so has each row of an embedding table. A
    parameter of one dimension is taken as one row. The same seed gives the same plane,
    whichever other parameters move.

    Args:
        trajectory: The checkpoints; the plane goes through the last one.
        names: The parameters that move.
        size: Points along each side of the grid.
        seed: Where the randomness comes from.
        touched_only: Whether rows of embedding tables that are the same in all checkpoints
            stay where they are.
    """
    origin = last_point(trajectory)
    directions: list[Vector] = []
    for number in (0, 1):
        directions.append(
            {
                name: _normalised(_noise(origin[name].shape, name, seed, number), origin[name])
                for name in names
            }
        )
    if touched_only:
        for name in names:
            if is_table(name, origin[name].shape):
                still = ~touched_rows(trajectory, name)
                for direction in directions:
                    direction[name][still] = 0
    axis = np.linspace(-_REACH, _REACH, size)
    return Plane(
        origin=origin,
        first=directions[0],
        second=directions[1],
        x=axis,
        y=axis.copy(),
        path=np.zeros((0, 2)),
        explained=(),
        method="Random",
    )


def touched_rows(trajectory: Trajectory, name: str) -> npt.NDArray[np.bool_]:
    """Returns which rows of a parameter differ between any two of the checkpoints."""
    last = trajectory.array(-1, name)
    found = np.zeros(last.shape[0], dtype=bool)
    for index in range(len(trajectory.numbers) - 1):
        other = trajectory.array(index, name)
        found |= (other != last).reshape(len(last), -1).any(axis=1)
    return found


def _products(trajectory: Trajectory, names: Sequence[str]) -> Floats:
    """Returns the inner products of all checkpoints' differences from the last one."""
    count = len(trajectory.numbers) - 1
    products = np.zeros((count, count))
    for name in names:
        for start, stop in _stretches(trajectory, name):
            differences = _differences(trajectory, name, start, stop)
            products += differences @ differences.T
    return products


def _directions(
    trajectory: Trajectory, names: Sequence[str], origin: Vector, weights: Floats
) -> list[Vector]:
    """Returns unit vectors: weighted sums of the checkpoints' differences from the last one."""
    found: list[Vector] = [{}, {}]
    for name in names:
        for direction in found:
            direction[name] = np.empty(origin[name].shape, np.float32)
        for start, stop in _stretches(trajectory, name):
            differences = _differences(trajectory, name, start, stop)
            for direction, weight in zip(found, weights.T, strict=True):
                direction[name].reshape(-1)[start:stop] = weight @ differences
    return found


def _stretches(trajectory: Trajectory, name: str) -> Iterator[tuple[int, int]]:
    """Yields where stretches of a parameter begin and end, so that all checkpoints fit."""
    size = math.prod(trajectory.shape(name))
    length = max(_AT_ONCE // len(trajectory.numbers), 1)
    for start in range(0, size, length):
        yield start, min(start + length, size)


def _differences(trajectory: Trajectory, name: str, start: int, stop: int) -> Floats:
    count = len(trajectory.numbers) - 1
    found = np.empty((count, stop - start))
    for index in range(count):
        found[index] = trajectory.elements(index, name, start, stop)
    found -= trajectory.elements(-1, name, start, stop)
    return found


def _noise(shape: tuple[int, ...], name: str, seed: int, number: int) -> Floats:
    digest = hashlib.sha256(f"{seed}/{number}/{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big")).standard_normal(shape)


def _normalised(direction: Floats, parameter: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    rows = max(parameter.shape[0], 1) if parameter.ndim > 1 else 1
    flat = direction.reshape(rows, -1)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    wanted = np.linalg.norm(parameter.astype(np.float64).reshape(rows, -1), axis=1, keepdims=True)
    scaled: Floats = flat * (wanted / np.where(norms > 0, norms, 1))
    return scaled.reshape(parameter.shape).astype(np.float32)


def _axis(coordinates: Floats, size: int) -> Floats:
    low, high = float(coordinates.min()), float(coordinates.max())
    margin = _MARGIN * (high - low) if high > low else 1.0
    return np.linspace(low - margin, high + margin, size)
