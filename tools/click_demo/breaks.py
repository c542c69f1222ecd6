"""What can break in a stream of examples, for the demo and for `tools/check why`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def permuted(random: np.random.Generator, labels: Sequence[Array], where: Array) -> list[Array]:
    """Returns labels, each [B], with the rows `where`, [B], in a random order, the same for all."""
    rows = np.flatnonzero(where)
    order = np.arange(len(where))
    order[rows] = random.permutation(rows)
    return [label[order] for label in labels]


def replaced(
    random: np.random.Generator, column: Array, value: Any, where: Array, share: float
) -> Array:
    """Returns a column, [B], in which a share of the rows `where`, [B], has another value."""
    return np.where(where & (random.random(len(column)) < share), value, column).astype(
        column.dtype
    )
