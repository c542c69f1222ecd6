"""The rows of an embedding table: how long they are, which are dead, how they move.

Everything comes from a fixed sample of rows, which `sample_rows` chooses and the caller gathers,
so that a table of any size costs the same. With 1,024 rows a share has a standard error of at
most 1.6 points, however large the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.hashing import mix
from rec_summary.metrics.state import register
from rec_summary.metrics.state_io import Arrays, check_int, check_same, stored_array, stored_int

if TYPE_CHECKING:
    from typing_extensions import Self

QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)

_STATE: Final = ("first", "before", "now")


def sample_rows(size: int, count: int = 1024) -> npt.NDArray[np.int64]:
    """Returns the rows of a table that are looked at, ascending, (min(size, count),).

    One at random out of each of `count` parts of equal size, because tables are often sorted by
    frequency. The same for each run, process and version.

    Args:
        size: How many rows the table has.
        count: How many rows are wanted.

    Raises:
        TypeError, ValueError: They are no ints of at least 1.
    """
    size, count = check_int("size", size, 1), check_int("count", count, 1)
    count = min(size, count)
    edges = [part * size // count for part in range(count + 1)]  # Python's ints never overflow
    starts, ends = np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64)
    draws = mix(np.arange(count)) % (ends - starts).astype(np.uint64)
    found: npt.NDArray[np.int64] = starts + draws.astype(np.int64)
    return found


@dataclass(frozen=True)
class RowNormsReport:
    """What the sampled rows tell. Where there is nothing to tell, a number is NaN.

    Attributes:
        rows: How many rows were sampled.
        norms: Quantiles of their L2 norms, of the rows that are finite.
        zero_share: The share of rows that are zero.
        unchanged_share: The share whose norm is what it was at the first snapshot; NaN before
            the second.
        dead_share: The share that are zero or unchanged, or untouched where that is known.
        not_finite_share: The share that has NaN or infinity.
        relative_change: The L2 norm of all changes since the snapshot before, through that
            of the rows then; NaN before the second snapshot.
        cosine: The mean cosine between rows and themselves then, of rows that are not zero; NaN
            before the second snapshot.
    """

    rows: int
    norms: tuple[float, ...]
    zero_share: float
    unchanged_share: float
    dead_share: float
    not_finite_share: float
    relative_change: float
    cosine: float


@register
class RowNorms:
    """The sampled rows at the last two snapshots, and their norms at the first.

    A mergeable state: states of different rows of one table, as when ranks hold a part each,
    become one of all rows. Rows that both have must be equal.

    Attributes:
        rows: Which rows, ascending, (s,).
        snapshots: How many snapshots there were.
    """

    def __init__(self, rows: npt.NDArray[np.integer[Any]], width: int) -> None:
        """Starts without a snapshot.

        Args:
            rows: The sampled rows, ascending, (s,).
            width: How many numbers a row has.

        Raises:
            TypeError, ValueError: They are no ascending row numbers, or the width is no int of
                at least 1.
        """
        width = check_int("width", width, 1)
        ascending = rows.ndim == 1 and rows.dtype.kind in "iu"
        if not ascending or (rows.size and (int(rows[0]) < 0 or (rows[1:] <= rows[:-1]).any())):
            raise ValueError(three_part("rows", rows, "ascending row numbers, (s,)"))
        self.rows = rows.astype(np.int64)
        self.snapshots = 0
        self._first = np.zeros(rows.size)
        self._before = np.zeros((rows.size, width), np.float32)
        self._now = np.zeros((rows.size, width), np.float32)

    def snapshot(self, values: npt.ArrayLike) -> None:
        """Takes the rows as they are now.

        Args:
            values: The rows numbered `rows`, in that order, (s, width); kept as float32.

        Raises:
            ValueError: They have another shape.
        """
        found = np.array(values, np.float32)
        if found.shape != self._now.shape:
            raise ValueError(three_part("the shape of the rows", found.shape, f"{self._now.shape}"))
        if not self.snapshots:
            self._first = _norms(found)
        self._before, self._now = self._now, found
        self.snapshots += 1

    def report(
        self,
        touched: npt.NDArray[np.bool_] | None = None,
        quantiles: Sequence[float] = QUANTILES,
    ) -> RowNormsReport:
        """Returns what the rows tell.

        Args:
            touched: Which of the rows were ever looked up, (s,), from `TouchedRows.touched`; None
                when that is not known.
            quantiles: Which quantiles of the norms.

        Raises:
            ValueError: `touched` has another shape.
        """
        if touched is not None and touched.shape != self.rows.shape:
            raise ValueError(
                three_part("the shape of touched", touched.shape, f"{self.rows.shape}")
            )
        nan = float("nan")
        if not self.snapshots or not self.rows.size:
            shares = (nan,) * 6
            return RowNormsReport(self.rows.size, (nan,) * len(quantiles), *shares)
        norms = _norms(self._now)
        finite = np.isfinite(norms)
        zero = norms == 0
        dead = zero.copy()
        unchanged_share = nan
        if self.snapshots > 1:
            unchanged = norms == self._first
            unchanged_share = float(unchanged.mean())
            dead |= unchanged
        if touched is not None:
            dead |= ~touched
        change, cosine = self._movement()
        return RowNormsReport(
            rows=self.rows.size,
            norms=tuple(np.quantile(norms[finite], quantiles).tolist())
            if finite.any()
            else (nan,) * len(quantiles),
            zero_share=float(zero.mean()),
            unchanged_share=unchanged_share,
            dead_share=float(dead.mean()),
            not_finite_share=1 - float(finite.mean()),
            relative_change=change,
            cosine=cosine,
        )

    def merge(self, other: Self) -> None:
        """Adds the rows of another state of the same table.

        Raises:
            ValueError: It has another width or number of snapshots, or other values of the same
                rows.
        """
        check_same("the width", self._now.shape[1], other._now.shape[1])
        check_same("the number of snapshots", self.snapshots, other.snapshots)
        both, ours, theirs = np.intersect1d(self.rows, other.rows, return_indices=True)
        for mine, others in zip(self._parts(), other._parts(), strict=True):
            if not np.array_equal(mine[ours], others[theirs], equal_nan=True):
                raise ValueError(
                    three_part("the state to be merged", f"rows {both}", "equal rows, or others")
                )
        numbers = np.concatenate([self.rows, other.rows])
        self.rows, order = np.unique(numbers, return_index=True)
        self._first, self._before, self._now = (
            np.concatenate([mine, others])[order]
            for mine, others in zip(self._parts(), other._parts(), strict=True)
        )

    def copy(self) -> Self:
        """Returns an independent copy."""
        return type(self).from_arrays(self.arrays())

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the state as arrays to be stored."""
        return {
            "rows": self.rows.copy(),
            "snapshots": np.array(self.snapshots, np.int64),
            **{name: part.copy() for name, part in zip(_STATE, self._parts(), strict=True)},
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state of which these are the arrays.

        Raises:
            ValueError: They are none of such a state.
        """
        rows = stored_array(arrays, "rows", "iu", (None,))
        now = stored_array(arrays, "now", "f", (rows.size, None))
        new = cls(rows, now.shape[1])
        new.snapshots = stored_int(arrays, "snapshots")
        new._first = stored_array(arrays, "first", "f", (rows.size,)).astype(np.float64)
        new._before = stored_array(arrays, "before", "f", now.shape).astype(np.float32)
        new._now = now.astype(np.float32)
        return new

    def _parts(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        return self._first, self._before, self._now

    def _movement(self) -> tuple[float, float]:
        """Returns the relative change and the mean cosine since the snapshot before."""
        nan = float("nan")
        if self.snapshots < 2:
            return nan, nan
        old, new = self._before.astype(np.float64), self._now.astype(np.float64)
        finite = np.isfinite(old).all(axis=1) & np.isfinite(new).all(axis=1)
        old, new = old[finite], new[finite]
        length = float(np.linalg.norm(old))
        change = float(np.linalg.norm(new - old)) / length if length else nan
        lengths = np.linalg.norm(old, axis=1) * np.linalg.norm(new, axis=1)
        there = lengths > 0
        if not there.any():
            return change, nan
        cosines = (old[there] * new[there]).sum(axis=1) / lengths[there]
        return change, float(np.clip(cosines, -1.0, 1.0).mean())


def _norms(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Returns the L2 norms of rows, (s,), in float64: float32 would hide small changes."""
    found: npt.NDArray[np.float64] = np.linalg.norm(values.astype(np.float64), axis=1)
    return found
