"""Health of an embedding table: which rows are looked up, how often, and invalid ids."""

from __future__ import annotations

import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.state import State, Stored
from rec_summary.metrics.tables.cardinality import TouchedRows
from rec_summary.metrics.tables.frequency import IdFrequency
from rec_summary.metrics.tables.ids import classify


class TableHealth(State):
    """Touched rows and frequencies of one table; each batch is classified only once.

    A mergeable state.

    Attributes:
        touched: The touched rows.
        frequency: The frequencies of ids.
    """

    _parts = ("touched", "frequency")

    def __init__(self, touched: TouchedRows, frequency: IdFrequency) -> None:
        """Starts with the states of one table.

        Raises:
            ValueError: The states are of tables of different sizes.
        """
        if touched.options.size != frequency.options.size:
            sizes = (touched.options.size, frequency.options.size)
            raise ValueError(three_part("the size of the table", sizes, "two equal sizes"))
        self.touched = touched
        self.frequency = frequency

    def add(self, ids: npt.ArrayLike) -> None:
        """Adds the ids of a batch, integers of any shape.

        Raises:
            TypeError: The ids are not integers.
        """
        options = self.frequency.options
        table_ids = classify(ids, options.size, options.unknown_id)
        self.touched.add_rows(table_ids.rows)
        self.frequency.add_classified(table_ids)

    def following(self) -> TableHealth:
        """Returns an empty state that continues the sample of ids of this state."""
        return type(self)(TouchedRows(self.touched.options), self.frequency.following())

    @classmethod
    def _restored(cls, arrays: Stored) -> TableHealth:
        return cls(
            TouchedRows.from_arrays(arrays.part("touched")),
            IdFrequency.from_arrays(arrays.part("frequency")),
        )
