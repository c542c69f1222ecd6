"""The plane of the greatest curvature: along the first eigenvectors of the Hessian of the loss.

The Hessian is never formed. Its product with a vector is the difference of two gradients, and
the method of Lanczos needs only these products. Source: Yao et al., "PyHessian: Neural Networks
Through the Lens of the Hessian", 2020; `scipy.sparse.linalg.eigsh`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Floats
from rec_summary.checks import check_that
from rec_summary.errors import SourceError
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


def hessian_plane(
    trajectory: Trajectory,
    names: Sequence[str],
    size: int,
    seed: int,
    model: Model,
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
    expected = f"at least {_FEWEST}: choose other parameters"
    check_that(free.size >= _FEWEST, "the size of a Hessian", free.size, expected, SourceError)

    hessian = _Hessian(model, origin, names, free)
    operator = LinearOperator((free.size, free.size), matvec=hessian.product, dtype=np.float64)
    begin = np.random.default_rng(seed).standard_normal(moves.size)[free]
    values, vectors = eigsh(operator, k=2, which="LA", v0=begin, tol=_TOLERANCE)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    # The sign of an eigenvector is free.
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), [0, 1]])
    return Plane(
        origin=origin,
        first=hessian.direction(vectors[:, 0]),
        second=hessian.direction(vectors[:, 1]),
        x=_axis(float(values[0]), loss, size),
        y=_axis(float(values[1]), loss, size),
        method=HESSIAN,
        eigenvalues=tuple(values.tolist()),
    )


@dataclass
class _Hessian:
    """The Hessian of the loss at a point, for the values that move: its products with vectors.

    Attributes:
        model: The model with the loss.
        origin: The point.
        names: The parameters with values that move.
        free: The places of the values that move, in all values of these parameters.
    """

    model: Model
    origin: Vector
    names: Sequence[str]
    free: npt.NDArray[np.intp]

    def __post_init__(self) -> None:
        self._point = _flattened(self.origin, self.names)
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
        return difference[self.free] * (length / (2 * self._step))

    def direction(self, vector: Floats) -> Vector:
        """Returns a vector of the values that move as a direction of all parameters."""
        parts = _split(self._spread(vector), self.origin, self.names)
        return {name: part.astype(np.float32) for name, part in parts.items()}

    def _spread(self, vector: Floats) -> Floats:
        full = np.zeros(self._point.size)
        full[self.free] = vector
        return full

    def _gradient(self, point: Floats) -> Floats:
        for name, value in _split(point, self.origin, self.names).items():
            self.model.set(name, value.astype(self.origin[name].dtype))
        return _flattened(self.model.gradient(self.names), self.names)


def _axis(eigenvalue: float, loss: float, size: int) -> Floats:
    rise = max(abs(loss), _LEAST_RISE)
    reach = math.sqrt(2 * rise / eigenvalue) if eigenvalue > 1e-6 else 1.0
    return np.linspace(-reach, reach, size)


def _flattened(vector: Mapping[str, Array], names: Sequence[str]) -> Floats:
    return np.concatenate([vector[name].reshape(-1).astype(np.float64) for name in names])


def _split(flat: Floats, like: Vector, names: Sequence[str]) -> dict[str, Floats]:
    vector, start = {}, 0
    for name in names:
        vector[name] = flat[start : start + like[name].size].reshape(like[name].shape)
        start += like[name].size
    return vector
