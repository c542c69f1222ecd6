"""Some input rows of a stream, frozen: a stream cannot be read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part, verbatim

FILE_NAME: Final = "replay.npz"
KINDS: Final = ("first", "reservoir")

Columns = list[npt.NDArray[Any]]


class ReplayBuffer:
    """Keeps the first rows, or a random sample of all rows, each as likely as any other.

    Source of the sample: Vitter's algorithm R, "Random Sampling with a Reservoir", 1985.

    Attributes:
        seen: How many rows have gone by.
        batch_size: The rows of the first batch.
    """

    def __init__(self, kind: str, rows: int, seed: int = 0) -> None:
        """Begins empty.

        Args:
            kind: `first` or `reservoir`.
            rows: How many rows are kept.
            seed: Where the sample's randomness comes from.
        """
        self.seen = 0
        self.batch_size = 0
        self._reservoir = kind == "reservoir"
        self._rows = rows
        self._columns: Columns = []
        self._random = np.random.default_rng(seed)
        self._changed = False

    @property
    def wants_more(self) -> bool:
        """Whether further rows can change what is kept."""
        return self._reservoir or self.seen < self._rows

    def add(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Takes the rows of a batch; only those that are kept are copied.

        Raises:
            ValueError: The columns do not have as many rows, or others than before.
        """
        arrays = [np.asarray(column) for column in columns]
        count = arrays[0].shape[0] if arrays and arrays[0].ndim else 0
        if not count or any(not each.ndim or each.shape[0] != count for each in arrays):
            shapes = verbatim(", ".join(str(each.shape) for each in arrays) or "no columns")
            raise ValueError(three_part("a batch to be kept", shapes, "columns of as many rows"))
        if not self._columns:
            self.batch_size = count
            self._columns = [np.empty((self._rows, *a.shape[1:]), a.dtype) for a in arrays]
        self._check_like(arrays)
        places = self._places(count)
        taken = np.flatnonzero(places >= 0)
        for kept, array in zip(self._columns, arrays, strict=True):
            kept[places[taken]] = array[taken]
        self.seen += count
        self._changed = self._changed or bool(taken.size)

    def take_changes(self) -> Columns | None:
        """Returns copies of the kept rows; None if they are the same as the last time."""
        if not self._changed:
            return None
        self._changed = False
        count = min(self.seen, self._rows)
        return [column[:count].copy() for column in self._columns]

    def _places(self, count: int) -> npt.NDArray[np.int64]:
        """Returns where each row of a batch goes; -1 for nowhere."""
        ordinals = self.seen + np.arange(count)
        if not self._reservoir:
            return np.where(ordinals < self._rows, ordinals, -1)
        drawn = self._random.integers(0, ordinals + 1)
        return np.where(ordinals < self._rows, ordinals, np.where(drawn < self._rows, drawn, -1))

    def _check_like(self, arrays: Columns) -> None:
        alike = len(arrays) == len(self._columns) and all(
            array.shape[1:] == kept.shape[1:]
            for array, kept in zip(arrays, self._columns, strict=True)
        )
        if not alike:
            received = verbatim(", ".join(str(array.shape) for array in arrays))
            expected = "columns and rows of the same shape as in the first batch"
            raise ValueError(three_part("a batch to be kept", received, expected))
