"""Sparse checkpoints: the rows of a large table that have changed, in place of the table.

In a sparse checkpoint a table `name` is two parameters, `name@rows` (which rows differ
from the base checkpoint's) and `name@values` (these rows), and the parameter `@base` states
the number of the base. MindSpore's own tools read the base only.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array, Arrays

BASE: Final = "@base"
ROWS: Final = "@rows"
VALUES: Final = "@values"
LARGE_ROWS: Final = 1000
_WORTH: Final = 0.5  # of a table's rows; if more differ, the table is written as a whole


def is_large(array: Array) -> bool:
    """Whether a parameter is a table of which single rows may be written."""
    return array.ndim == 2 and array.shape[0] >= LARGE_ROWS


def sparse_parameters(parameters: Arrays, tables: Arrays, base: int) -> dict[str, Any]:
    """Returns the parameters of a sparse checkpoint.

    Args:
        parameters: All parameters.
        tables: The large tables of the base checkpoint.
        base: The number of that checkpoint.
    """
    sparse: dict[str, Any] = {BASE: np.int64(base)}
    for name, array in parameters.items():
        before = tables.get(name)
        if before is None or before.shape != array.shape:
            sparse[name] = array
            continue
        rows = np.flatnonzero((array != before).any(axis=1))
        if len(rows) > _WORTH * len(array):
            sparse[name] = array
        else:
            sparse[name + ROWS] = rows.astype(np.int64)
            sparse[name + VALUES] = array[rows]
    return sparse


def dense_name(name: str) -> str:
    """Returns the name of the parameter that an entry of a checkpoint belongs to."""
    for ending in (ROWS, VALUES):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def restored(base: Array, rows: Array, values: Array) -> Array:
    """Returns the table of the base with some rows replaced.

    Raises:
        ValueError: The rows are not rows of the base, or their values do not fit.
    """
    fits = rows.dtype.kind in "iu" and values.shape == (rows.size, *base.shape[1:])
    if not fits or (rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < len(base)):
        raise ValueError(f"{rows.shape} rows of shape {values.shape} for a table of {base.shape}")
    table = np.array(base)
    table[rows] = values
    return table
