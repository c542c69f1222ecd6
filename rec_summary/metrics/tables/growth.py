"""How a table grows: new rows, different ids in a batch, the age of rows, collisions of hashes."""

from __future__ import annotations

import math

import numpy as np

from rec_summary.arrays import Array, Flags, Integers
from rec_summary.metrics.state import State, Stored, to_array
from rec_summary.metrics.tables.cardinality import TouchedRows

NEVER = -1


class IdTurnover(State):
    """The ids of a table in an interval; a mergeable state.

    Attributes:
        hashed: Whether ids are hashes.
        before: The rows that were looked up before the interval.
        batch_ids: The number of ids in the batches that were sampled.
        different: The number of different ids in each of these batches, added up.
    """

    _settings = ("hashed",)
    _sums = ("batch_ids", "different")
    _parts = ("before",)

    def __init__(self, before: TouchedRows, hashed: bool = False) -> None:
        """Starts an interval."""
        self.before = before.copy()
        self.hashed = hashed
        self.batch_ids = self.different = 0

    def add_batch(self, ids: Array) -> None:
        """Counts the ids of one batch, integers or strings of any shape."""
        self.batch_ids += ids.size
        self.different += len(np.unique(ids))

    @classmethod
    def _restored(cls, arrays: Stored) -> IdTurnover:
        before = TouchedRows.from_arrays(arrays.part("before"))
        new = cls(before, bool(arrays.integer("hashed", 0, 1)))
        new.batch_ids = arrays.integer("batch_ids")
        new.different = arrays.integer("different", 0, new.batch_ids)
        return new


class RowAges(State):
    """When some rows of a table were looked up last; a mergeable state.

    Times are numbers of examples of a rank. Of several ranks, the latest time counts.

    Attributes:
        rows: The rows, (s,).
        latest: When each was looked up last, (s,); -1 for never.
        now: The time.
    """

    _settings = ("rows",)

    def __init__(self, rows: Integers) -> None:
        """Starts at time 0, with no row looked up."""
        self.rows = rows.astype(np.int64)
        self.latest: Integers = np.full(len(self.rows), NEVER, np.int64)
        self.now = 0

    def touch(self, touched: Flags, now: int) -> None:
        """Sets the time, and that these of the rows, (s,), were looked up just before."""
        self.now = now
        self.latest = np.where(touched, now, self.latest)

    def quantiles(self, shares: tuple[float, ...]) -> list[float]:
        """Returns quantiles of the age of the rows that were ever looked up; NaN without any."""
        latest = self.latest[self.latest > NEVER]
        if not latest.size:
            return [math.nan] * len(shares)
        return [float(age) for age in np.quantile(self.now - latest, shares)]

    def arrays(self) -> dict[str, Array]:
        """Returns the rows and the times."""
        return {"rows": self.rows, "latest": self.latest, "now": to_array(self.now)}

    @classmethod
    def _restored(cls, arrays: Stored) -> RowAges:
        new = cls(arrays.take("rows", np.int64, (None,)))
        new.latest = arrays.take("latest", np.int64, new.rows.shape)
        new.now = arrays.integer("now")
        return new

    def _add(self, other: RowAges) -> None:
        self.latest = np.maximum(self.latest, other.latest)
        self.now = max(self.now, other.now)


def hashed_ids(touched: TouchedRows) -> tuple[float, float]:
    """Returns the number of different ids before hashing, and the share that shares its row.

    Both are estimates for a hash that spreads ids evenly: of n ids in a table of R rows,
    R * (1 - (1 - 1/R)**n) rows are looked up, and an id shares its row with probability
    1 - (1 - 1/R)**(n - 1). The first is infinite if all rows are.
    """
    size, used = touched.options.size or 0, touched.count()
    if size < 2 or not used:
        return math.nan, math.nan
    if used >= size:
        return math.inf, 1.0
    log_empty = math.log1p(-1 / size)
    ids = math.log1p(-used / size) / log_empty
    return ids, -math.expm1((ids - 1) * log_empty)
