"""The plane of the greatest curvature: along the first eigenvectors of the Hessian of the loss.

The Hessian is never formed. Its product with a vector is the difference of two gradients, and
the method of Lanczos needs only these products. Source: Yao et al., "PyHessian: Neural Networks
Through the Lens of the Hessian", 2020; `scipy.sparse.linalg.eigsh`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rec_summary.errors import SourceError, three_part
from rec_summary.landscape.checkpoints import Trajectory
from rec_summary.landscape.evaluate import Model, ModelError
from rec_summary.landscape.options import HESSIAN
from rec_summary.landscape.plane import Plane, Vector, last_point, moving

Floats = npt.NDArray[np.float64]

# Of a difference. It does not grow with the parameters: the norm of large tables says nothing of
# how far the gradient is linear along an eigenvector, which is mostly one of other parameters.
_STEP: Final = 5e-3
_ROUNDING: Final = 1e-6  # of the norm of the parameters: float32 rounds a smaller step
_TOLERANCE: Final = 1e-7
_LEAST_RISE: Final = 0.1  # of the loss at the edge of the grid
_FEWEST: Final = 3  # numbers: two eigenvectors are fewer than all


@runtime_checkable
class DifferentiableModel(Model, Protocol):
    """A model with a gradient."""

    def gradient(self, names: Sequence[str]) -> Vector:
        """Returns the gradient of the loss with respect to parameters."""


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
        model: A `DifferentiableModel`.
        touched_only: Whether rows of embedding tables that are equal in all checkpoints do not
            move.

    Raises:
        ModelError: The model has no gradient.
        SourceError: Fewer numbers move.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    if not isinstance(model, DifferentiableModel):
        expected = "a model with a method `gradient`"
        raise ModelError(three_part("the model of a Hessian", type(model).__name__, expected))
    origin = last_point(trajectory)
    for name, value in origin.items():
        model.set(name, value)
    loss = float(model.loss())
    start = _flattened(origin, names)
    step = max(_STEP, _ROUNDING * float(np.linalg.norm(start)))
    moves = moving(trajectory, origin, names, touched_only=touched_only)
    free = np.flatnonzero(_flattened(moves, names))
    if free.size < _FEWEST:
        expected = f"at least {_FEWEST}: choose other parameters"
        raise SourceError(three_part("how many numbers move along a Hessian", free.size, expected))

    def spread(vector: Floats) -> Floats:
        full = np.zeros(start.size)
        full[free] = vector
        return full

    def gradient(point: Floats) -> Floats:
        for name, value in _split(point, origin, names).items():
            model.set(name, value.astype(origin[name].dtype))
        return _flattened(model.gradient(names), names)

    def product(vector: Floats) -> Floats:
        vector = vector.reshape(-1)
        length = float(np.linalg.norm(vector))
        if not length:
            return np.zeros_like(vector)
        away = spread(vector * (step / length))
        difference: Floats = gradient(start + away) - gradient(start - away)
        return difference[free] * (length / (2 * step))

    operator = LinearOperator((free.size, free.size), matvec=product, dtype=np.float64)
    begin = np.random.default_rng(seed).standard_normal(start.size)[free]
    values, vectors = eigsh(operator, k=2, which="LA", v0=begin, tol=_TOLERANCE)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    # The sign of an eigenvector is free.
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), [0, 1]])
    axes = [_axis(float(value), loss, size) for value in values]
    first, second = (
        {n: v.astype(np.float32) for n, v in _split(spread(vectors[:, i]), origin, names).items()}
        for i in (0, 1)
    )
    return Plane(
        origin=origin,
        first=first,
        second=second,
        x=axes[0],
        y=axes[1],
        method=HESSIAN,
        eigenvalues=tuple(float(value) for value in values),
    )


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
