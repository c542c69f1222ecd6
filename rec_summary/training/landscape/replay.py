"""Some input rows of a stream, stored because a stream cannot be read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rec_summary.arrays import Array, Integers
from rec_summary.errors import three_part, verbatim

KINDS: Final = ("first", "reservoir")


class ReplayBuffer:
    """Keeps the first rows, or a uniform random sample of all rows.

    Source of the sample: Vitter's algorithm R, "Random Sampling with a Reservoir", 1985.

    Attributes:
        seen: The number of rows so far.
    """

    def __init__(self, kind: str, rows: int, seed: int = 0) -> None:
        """Begins empty.

        Args:
            kind: `first` or `reservoir`.
            rows: The number of rows to keep.
            seed: The seed of the sample.
        """
        self.seen = 0
        self._batch_size = 0
        self._reservoir = kind == "reservoir"
        self._rows = rows
        self._columns: list[Array] = []
        self._random = np.random.default_rng(seed)
        self._changed = False

    @property
    def wants_more(self) -> bool:
        """Whether further rows can change the kept rows."""
        return self._reservoir or self.seen < self._rows

    def add(self, columns: Sequence[Array]) -> None:
        """Adds the rows of a batch; copies only those that it keeps.

        Raises:
            ValueError: The columns have different numbers of rows, or another shape than before.
        """
        arrays = [np.asarray(column) for column in columns]
        count = arrays[0].shape[0] if arrays and arrays[0].ndim else 0
        if not count or any(not array.ndim or array.shape[0] != count for array in arrays):
            shapes = verbatim(", ".join(str(array.shape) for array in arrays) or "no columns")
            raise ValueError(three_part("a batch for replay", shapes, "columns of equal length"))
        if not self._columns:
            self._batch_size = count
            self._columns = [np.empty((self._rows, *a.shape[1:]), a.dtype) for a in arrays]
        self._check_like(arrays)
        slots = self._slots(count)
        taken = np.flatnonzero(slots >= 0)
        for place, array in enumerate(arrays):
            column = self._columns[place]
            # Longer strings or larger numbers than in the first batch must not be cut.
            column = column.astype(np.promote_types(column.dtype, array.dtype), copy=False)
            column[slots[taken]] = array[taken]
            self._columns[place] = column
        self.seen += count
        self._changed = self._changed or bool(taken.size)

    def take_changes(self) -> dict[str, Array]:
        """Returns copies of the kept rows, and the number of rows in a batch, for `REPLAY_NAME`.

        Nothing if the rows have not changed since the last call.
        """
        if not self._changed:
            return {}
        self._changed = False
        count = min(self.seen, self._rows)
        columns = {f"column_{n}": column[:count].copy() for n, column in enumerate(self._columns)}
        return {"batch_size": np.array(self._batch_size), **columns}

    def _slots(self, count: int) -> Integers:
        """Returns the slot of each row of a batch; -1 if it is not kept."""
        ordinals = self.seen + np.arange(count)
        if not self._reservoir:
            return np.where(ordinals < self._rows, ordinals, -1)
        draws = self._random.integers(0, ordinals + 1)
        return np.where(ordinals < self._rows, ordinals, np.where(draws < self._rows, draws, -1))

    def _check_like(self, arrays: list[Array]) -> None:
        alike = len(arrays) == len(self._columns) and all(
            array.shape[1:] == column.shape[1:]
            for array, column in zip(arrays, self._columns, strict=True)
        )
        if not alike:
            received = verbatim(", ".join(str(array.shape) for array in arrays))
            expected = "columns and rows of the same shape as in the first batch"
            raise ValueError(three_part("a batch for replay", received, expected))
