"""The plane of the greatest curvature: along the first eigenvectors of the Hessian of the loss.

The Hessian is never formed. Its product with a vector is the difference of two gradients, and
the method of Lanczos needs only these products. Source: Yao et al., "PyHessian: Neural Networks
Through the Lens of the Hessian", 2020; `scipy.sparse.linalg.eigsh`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Floats
from rec_summary.errors import SourceError, three_part
from rec_summary.landscape.checkpoints import Trajectory
from rec_summary.landscape.evaluate import Model
from rec_summary.landscape.options import HESSIAN
from rec_summary.landscape.plane import Plane, Vector, last_point, moving

# Of a difference. It does not grow with the parameters: the norm of large tables says nothing of
# how far the gradient is linear along an eigenvector, which is mostly one of other parameters.
_STEP: Final = 5e-3
_ROUNDING: Final = 1e-6  # of the norm of the parameters: float32 rounds a smaller step
_TOLERANCE: Final = 1e-7
_LEAST_RISE: Final = 0.1  # of the loss at the edge of the grid
_FEWEST: Final = 3  # numbers: two eigenvectors are fewer than all


class DifferentiableModel(Model, Protocol):
    """A model with a gradient."""

    def gradient(self, names: Sequence[str]) -> Vector:
        """Returns the gradient of the loss with respect to parameters."""


def hessian_plane(
    trajectory: Trajectory,
    names: Sequence[str],
    size: int,
    seed: int,
    model: DifferentiableModel,
    *,
    touched_only: bool = False,
) -> Plane:
    """Returns the plane of the two greatest eigenvalues at the last checkpoint.

    The grid ends where a parabola of the same curvature has twice the loss.

    Args:
        trajectory: The checkpoints; the plane goes through the last one.
        names: The parameters that move; at least three numbers.
        size: The number of points along each side of the grid.
        seed: The seed of the first vector of the search.
        model: The model.
        touched_only: Whether rows of embedding tables that are equal in all checkpoints do not
            move.

    Raises:
        SourceError: Fewer numbers move.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    origin = last_point(trajectory)
    for name, value in origin.items():
        model.set(name, value)
    loss = float(model.loss())
    moves = _flattened(moving(trajectory, origin, names, touched_only=touched_only), names)
    free = np.flatnonzero(moves)
    if free.size < _FEWEST:
        expected = f"at least {_FEWEST}: choose other parameters"
        raise SourceError(three_part("the size of a Hessian", free.size, expected))

    hessian = _Hessian(model, origin, names, free)
    operator = LinearOperator((free.size, free.size), matvec=hessian.product, dtype=np.float64)
    begin = np.random.default_rng(seed).standard_normal(moves.size)[free]
    values, vectors = eigsh(operator, k=2, which="LA", v0=begin, tol=_TOLERANCE)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    # The sign of an eigenvector is free.
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), [0, 1]])
    axes = [_axis(float(value), loss, size) for value in values]
    return Plane(
        origin=origin,
        first=hessian.direction(vectors[:, 0]),
        second=hessian.direction(vectors[:, 1]),
        x=axes[0],
        y=axes[1],
        method=HESSIAN,
        eigenvalues=tuple(float(value) for value in values),
    )


class _Hessian:
    """The Hessian of the loss at a point, for the values that move: its products with vectors."""

    def __init__(
        self,
        model: DifferentiableModel,
        origin: Vector,
        names: Sequence[str],
        free: npt.NDArray[np.intp],
    ) -> None:
        """Takes the point `origin`; `free` are the places of the values that move in it."""
        self._model, self._origin, self._names, self._free = model, origin, names, free
        self._point = _flattened(origin, names)
        self._step = max(_STEP, _ROUNDING * float(np.linalg.norm(self._point)))

    def product(self, vector: Floats) -> Floats:
        """Returns the product with a vector of the values that move."""
        vector = vector.reshape(-1)
        length = float(np.linalg.norm(vector))
        if not length:
            return np.zeros_like(vector)
        away = self._spread(vector * (self._step / length))
        difference = self._gradient(self._point + away) - self._gradient(self._point - away)
        if not np.isfinite(difference).all():  # older SciPy finds eigenvalues that are NaN
            raise FloatingPointError("a gradient is not finite")
        return difference[self._free] * (length / (2 * self._step))

    def direction(self, vector: Floats) -> Vector:
        """Returns a vector of the values that move as a direction of all parameters."""
        parts = _split(self._spread(vector), self._origin, self._names)
        return {name: part.astype(np.float32) for name, part in parts.items()}

    def _spread(self, vector: Floats) -> Floats:
        full = np.zeros(self._point.size)
        full[self._free] = vector
        return full

    def _gradient(self, point: Floats) -> Floats:
        for name, value in _split(point, self._origin, self._names).items():
            self._model.set(name, value.astype(self._origin[name].dtype))
        return _flattened(self._model.gradient(self._names), self._names)


def _axis(eigenvalue: float, loss: float, size: int) -> Floats:
    rise = max(abs(loss), _LEAST_RISE)
    reach = math.sqrt(2 * rise / eigenvalue) if eigenvalue > 1e-6 else 1.0
    return np.linspace(-reach, reach, size)


def _flattened(vector: Vector, names: Sequence[str]) -> Floats:
    return np.concatenate([vector[name].reshape(-1).astype(np.float64) for name in names])


def _split(flat: Floats, like: Vector, names: Sequence[str]) -> dict[str, Floats]:
    vector, start = {}, 0
    for name in names:
        vector[name] = flat[start : start + like[name].size].reshape(like[name].shape)
        start += like[name].size
    return vector
