"""Planes through the space of parameters: along the training, or random.

Source: Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018: PCA of the
differences from the last checkpoint, and filter normalisation of random directions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Flags, Floats
from rec_summary.checks import check_that
from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.landscape.checkpoints import FEWEST, Trajectory, is_table

PCA: Final = "PCA"
RANDOM: Final = "Random"

Vector = dict[str, Array]
"""A point or a direction: an array for each parameter."""

_MARGIN: Final = 0.2  # of the extent of the path, on each side
_REACH: Final = 1.0  # of a random plane, on each side, in units of the norm of each filter
_AT_ONCE: Final = 1 << 22  # numbers of all checkpoints in memory
_RANK: Final = 1e-10  # a smaller share of the variance is rounding


@dataclass(frozen=True)
class Plane:
    """A plane and the grid on it.

    Attributes:
        origin: The point with the coordinates (0, 0): the last checkpoint.
        first: The direction of x, for the parameters that move.
        second: The direction of y.
        x: The coordinates of the grid along the first direction, ascending.
        y: The coordinates of the grid along the second direction.
        path: The coordinates of each checkpoint, shape (checkpoints, 2); empty for a random plane.
        explained: The share of the variance of the path along each direction; empty without a path.
    """

    origin: Vector
    first: Vector
    second: Vector
    x: Floats
    y: Floats
    path: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    explained: tuple[float, ...] = ()


def pca_plane(trajectory: Trajectory, names: Sequence[str], size: int) -> Plane:
    """Returns the plane through the last checkpoint that fits the other checkpoints best.

    The checkpoints are read in chunks; the principal directions come from the products of their
    differences. Only the plane itself is in memory: three times the parameters, for the origin and
    two directions.

    Args:
        trajectory: The checkpoints, at least three.
        names: The parameters that move.
        size: The number of points along each side of the grid.

    Raises:
        SourceError: There are too few checkpoints, they are on one line, or their values are not
            finite.
    """
    count = len(trajectory.numbers)
    what = "the number of checkpoints of a loss landscape"
    received = verbatim(f"{count} ({', '.join(map(str, trajectory.numbers))})")
    check_that(count >= FEWEST, what, received, f"at least {FEWEST}", SourceError)
    products = _products(trajectory, names)
    what = "the checkpoints of a loss landscape"
    if not np.isfinite(products).all():
        diverged = [
            number
            for number, checkpoint in zip(trajectory.numbers, trajectory.checkpoints, strict=True)
            if not all(np.isfinite(checkpoint.array(name)).all() for name in names)
        ]
        received = verbatim(f"NaN or infinite parameters in {', '.join(map(str, diverged))}")
        expected = "finite parameters: choose other checkpoints, or a random plane"
        raise SourceError(three_part(what, received, expected))
    values, vectors = np.linalg.eigh(products)
    values, vectors = values[::-1], vectors[:, ::-1]
    total = float(values.clip(0).sum())
    where = "at the same point" if total <= 0 else "on one line"
    expected = "three that span a plane: choose others, or a random plane"
    spans = total > 0 and values[1] > _RANK * total
    check_that(spans, what, verbatim(f"{count} that lie {where}"), expected, SourceError)
    weights = vectors[:, :2] / np.sqrt(values[:2])
    coordinates = products @ weights
    # The sign of a direction is free: the training begins at the right.
    signs = np.where(coordinates[np.abs(coordinates).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    weights, coordinates = weights * signs, coordinates * signs
    path = np.vstack([coordinates, np.zeros(2)])
    origin = _last_point(trajectory)
    first, second = _directions(trajectory, names, origin, weights)
    return Plane(
        origin=origin,
        first=first,
        second=second,
        x=_axis(path[:, 0], size),
        y=_axis(path[:, 1], size),
        path=path,
        explained=tuple(float(value / total) for value in values[:2]),
    )


def _last_point(trajectory: Trajectory) -> Vector:
    """Returns all parameters of the last checkpoint, including those that do not move."""
    return {name: trajectory.last.array(name) for name in trajectory.last.names}


def random_plane(
    trajectory: Trajectory,
    names: Sequence[str],
    size: int,
    seed: int,
    *,
    touched_only: bool = False,
) -> Plane:
    """Returns a random plane through the last checkpoint, with normalised filters.

    Each row of a direction has the norm of the same row of the parameter, so that one unit means
    the same for large and small weights; this includes the rows of embedding tables. A parameter of
    one dimension is one row. The direction of a parameter depends only on the seed, not on the
    other parameters that move.

    Args:
        trajectory: The checkpoints; the plane goes through the last one.
        names: The parameters that move.
        size: The number of points along each side of the grid.
        seed: The seed of the random directions.
        touched_only: Whether rows of embedding tables that are equal in all checkpoints do not
            move.
    """
    origin = _last_point(trajectory)
    first: Vector = {}
    second: Vector = {}
    for name in names:
        shape = origin[name].shape
        still = touched_only and is_table(name, shape)
        moves = touched_rows(trajectory, name)[:, None] if still else True
        for number, direction in enumerate((first, second)):
            noise = _noise(shape, name, seed, number)
            direction[name] = _normalised(noise, origin[name]) * moves
    axis = np.linspace(-_REACH, _REACH, size)
    return Plane(origin, first, second, axis, axis.copy())


def learned(trajectory: Trajectory, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the parameters that differ between checkpoints, or all if none does.

    A checkpoint does not say which parameters are frozen.
    """
    found = (
        name
        for name in names
        if any(_differences(trajectory, name, *ends).any() for ends in _chunks(trajectory, name))
    )
    return tuple(found) or tuple(names)


def touched_rows(trajectory: Trajectory, name: str) -> Flags:
    """Returns which rows of a parameter differ between any two checkpoints."""
    last = trajectory.last.array(name)
    touched = np.zeros(last.shape[0], dtype=bool)
    for checkpoint in trajectory.checkpoints[:-1]:
        touched |= (checkpoint.array(name) != last).reshape(len(last), -1).any(axis=1)
    return touched


def _products(trajectory: Trajectory, names: Sequence[str]) -> Floats:
    """Returns the inner products of the differences of all checkpoints from the last one."""
    count = len(trajectory.numbers) - 1
    products = np.zeros((count, count))
    for name in names:
        for start, stop in _chunks(trajectory, name):
            differences = _differences(trajectory, name, start, stop)
            products += differences @ differences.T
    return products


def _directions(
    trajectory: Trajectory, names: Sequence[str], origin: Vector, weights: Floats
) -> list[Vector]:
    """Returns unit vectors: weighted sums of the differences from the last checkpoint."""
    directions: list[Vector] = [{}, {}]
    for name in names:
        for direction in directions:
            direction[name] = np.empty(origin[name].shape, np.float32)
        for start, stop in _chunks(trajectory, name):
            differences = _differences(trajectory, name, start, stop)
            for direction, weight in zip(directions, weights.T, strict=True):
                direction[name].reshape(-1)[start:stop] = weight @ differences
    return directions


def _chunks(trajectory: Trajectory, name: str) -> Iterator[tuple[int, int]]:
    """Yields begin and end of chunks of a parameter that fit in memory for all checkpoints."""
    size = math.prod(trajectory.last.shape(name))
    length = max(_AT_ONCE // len(trajectory.numbers), 1)
    for start in range(0, size, length):
        yield start, min(start + length, size)


def _differences(trajectory: Trajectory, name: str, start: int, stop: int) -> Floats:
    others = trajectory.checkpoints[:-1]
    differences = np.empty((len(others), stop - start))
    for row, checkpoint in zip(differences, others, strict=True):
        row[:] = checkpoint.elements(name, start, stop)
    differences -= trajectory.last.elements(name, start, stop)
    return differences


def _noise(shape: tuple[int, ...], name: str, seed: int, number: int) -> Floats:
    digest = hashlib.sha256(f"{seed}/{number}/{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big")).standard_normal(shape)


def _normalised(direction: Floats, parameter: Array) -> npt.NDArray[np.float32]:
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
