"""Norms, dead rows and movement of the rows of an embedding table.

All numbers come from a fixed sample of rows, which `sample_rows` chooses and the caller gathers. A
table of any size therefore costs the same. With 1,024 rows a share has a standard error of at most
1.6 percentage points, however large the table.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Flags, Floats, Integers
from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.hashing import mix
from rec_summary.metrics.state import State, Stored, to_array
from rec_summary.metrics.tags import quantile_tags

SAMPLED_ROWS: Final = 1024
"""The most rows that are sampled of a table."""

QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)


def sample_rows(size: int, count: int = SAMPLED_ROWS) -> Integers:
    """Returns the sampled rows of a table, ascending, (min(size, count),).

    One at random from each of `count` parts of equal size, because tables are often sorted by
    frequency. The sample is the same in each run, process and version.

    Args:
        size: The number of rows of the table.
        count: The number of rows of the sample.

    Raises:
        TypeError, ValueError: An argument is not an int of at least 1.
    """
    size, count = check_int("size", size, 1), check_int("count", count, 1)
    count = min(size, count)
    edges = [part * size // count for part in range(count + 1)]  # Python ints do not overflow
    starts, ends = np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64)
    draws = mix(np.arange(count)) % (ends - starts).astype(np.uint64)
    rows: Integers = starts + draws.astype(np.int64)
    return rows


class RowNorms(State):
    """The sampled rows at the last two snapshots, and their norms at the first one.

    It is stored as other states are, and never merged.

    Attributes:
        rows: The sampled rows, ascending, (s,).
        snapshots: The number of snapshots.
    """

    def __init__(self, rows: npt.NDArray[np.integer[Any]], width: int) -> None:
        """Starts without a snapshot.

        Args:
            rows: The sampled rows, ascending, (s,).
            width: The number of values in a row.

        Raises:
            TypeError, ValueError: The rows are not ascending row numbers, or the width is not an
                int of at least 1.
        """
        check_int("width", width)
        ascending = rows.ndim == 1 and rows.dtype.kind in "iu"
        if not ascending or (rows.size and (int(rows[0]) < 0 or (rows[1:] <= rows[:-1]).any())):
            raise ValueError(three_part("rows", rows, "ascending row numbers, (s,)"))
        self.rows = rows.astype(np.int64)
        self.snapshots = 0
        self._first = np.zeros(rows.size)
        self._before = np.zeros((rows.size, width), np.float32)
        self._now = np.zeros((rows.size, width), np.float32)

    def snapshot(self, values: npt.ArrayLike) -> None:
        """Adds a snapshot of the rows.

        Args:
            values: The values of `rows`, in that order, (s, width); kept as float32.

        Raises:
            ValueError: The values have another shape.
        """
        rows = np.array(values, np.float32)
        if rows.shape != self._now.shape:
            raise ValueError(three_part("the shape of the rows", rows.shape, f"{self._now.shape}"))
        if not self.snapshots:
            self._first = _norms(rows)
        self._before, self._now = self._now, rows
        self.snapshots += 1

    def report(self, touched: Flags | None = None) -> dict[str, float]:
        """Returns the numbers of the state by tag, after that of the table; none without rows.

        Norms are L2 norms of the rows that are finite. Dead rows are zero, or have the norm of the
        first snapshot, or are untouched. The change is that since the previous snapshot.

        Args:
            touched: Which of the rows were ever looked up, (s,), from `TouchedRows.touched`; None
                if that is not known.
        """
        if not self.snapshots or not self.rows.size:
            return {}
        norms = _norms(self._now)
        finite = np.isfinite(norms)
        dead = norms == 0
        if self.snapshots > 1:
            dead |= norms == self._first
        if touched is not None:
            dead |= ~touched
        quantiles = [math.nan] * len(QUANTILES)
        if finite.any():
            quantiles = np.quantile(norms[finite], QUANTILES).tolist()
        return {
            **quantile_tags("row_norm", QUANTILES, quantiles),
            "dead_share": float(dead.mean()),
            "not_finite_share": (1 - float(finite.mean())) or math.nan,
            "relative_change": self._relative_change(),
        }

    def check_mergeable(self, other: State) -> None:
        """Refuses every state: sampled rows stay in the rank that has them.

        Raises:
            ValueError: Always.
        """
        expected = "another kind of state: sampled rows are not merged"
        raise ValueError(three_part("the state to be merged", type(other).__name__, expected))

    def arrays(self) -> dict[str, Array]:
        """Returns the rows, the number of snapshots, the first norms, and both snapshots."""
        return {
            "rows": self.rows.copy(),
            "snapshots": to_array(self.snapshots),
            "first": self._first.copy(),
            "before": self._before.copy(),
            "now": self._now.copy(),
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> RowNorms:
        rows = arrays.take("rows", np.int64, (None,))
        now = arrays.take("now", np.float32, (rows.size, None), finite=False)
        new = cls(rows, now.shape[1])
        new.snapshots = arrays.integer("snapshots")
        new._first = arrays.take("first", np.float64, rows.shape, finite=False)
        new._before = arrays.take("before", np.float32, now.shape, finite=False)
        new._now = now
        return new

    def _relative_change(self) -> float:
        """Returns the relative change since the previous snapshot; NaN from zeros, or none."""
        old, new = self._before.astype(np.float64), self._now.astype(np.float64)
        finite = np.isfinite(old).all(axis=1) & np.isfinite(new).all(axis=1)
        old, new = old[finite], new[finite]
        length = float(np.linalg.norm(old))
        return float(np.linalg.norm(new - old)) / length if length else math.nan


def _norms(values: npt.NDArray[np.float32]) -> Floats:
    """Returns the L2 norms of rows, (s,), in float64, because float32 hides small changes."""
    norms: Floats = np.linalg.norm(values.astype(np.float64), axis=1)
    return norms
