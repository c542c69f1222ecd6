"""Embedding tables, and samples of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import check_that
from rec_summary.errors import three_part
from rec_summary.metrics.tables.row_norms import SAMPLED_ROWS, sample_rows
from rec_summary.records.failures import Troubles
from rec_summary.training.tensors import as_array

_SIZE: Final = "the number of rows, or None if the table is open"


@dataclass(frozen=True)
class EmbeddingTable:
    """A table, for `SummaryRecord(tables={"item": EmbeddingTable(lambda rows: weights[rows])})`.

    Attributes:
        read: Returns the values of some rows, of shape [s, width], from their numbers, an int64
            array of shape [s]: a few hundred of them, with a detailed report. It runs on the
            training thread. None if only the ids of the lookups are known.
        size: The number of rows; None if the table is open: it has a row for each id that was
            looked up.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: The size is below 1.
    """

    read: Callable[[Array], Any] | None
    size: int | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        if self.read is not None and not callable(self.read):
            raise TypeError(three_part("read", self.read, "a function of row numbers, or None"))
        is_int = isinstance(self.size, int) and not isinstance(self.size, bool)
        check_that(self.size is None or is_int, "size", self.size, _SIZE, TypeError)
        check_that(self.size is None or self.size > 0, "size", self.size, _SIZE)


class RowSampler:
    """Reads the same few rows of each table each time, and never a whole table."""

    def __init__(
        self,
        tables: Mapping[str, EmbeddingTable],
        troubles: Troubles,
        count: int = SAMPLED_ROWS,
    ) -> None:
        """Chooses the rows, `count` of each table at most."""
        self._troubles = troubles
        self._count = count
        self._tables = {n: table for n, table in tables.items() if table.read is not None}
        self._rows: dict[str, Array] = {
            name: sample_rows(table.size, count)
            for name, table in self._tables.items()
            if table.size is not None
        }

    @property
    def open_tables(self) -> list[str]:
        """The tables of open size whose rows are not chosen yet."""
        return [name for name in self._tables if name not in self._rows]

    def choose(self, table: str, ids: Array) -> None:
        """Chooses the rows of a table of open size, from the ids of a batch."""
        if ids.size and ids.dtype.kind in "iu":
            self._rows[table] = np.unique(ids[ids >= 0])[: self._count].astype(np.int64)

    @property
    def names(self) -> list[str]:
        """The tables with chosen rows."""
        return list(self._rows)

    def take(self, names: Iterable[str]) -> dict[str, tuple[Array, Array]]:
        """Returns numbers (s,) and values (s, width) by table. It drops a table that fails."""
        samples = {}
        for name in names:
            rows = self._rows[name]
            try:
                values = self._tables[name].read(rows)  # type: ignore[misc]  # it has one
                values = np.array(as_array(values, f"rows of {name}"), np.float32)
                samples[name] = rows, values.reshape(len(rows), -1)
            except Exception as error:  # noqa: BLE001  # training continues
                self._troubles.report(f"recommender metrics: rows of {name}", error)
                del self._tables[name], self._rows[name]
        return samples
