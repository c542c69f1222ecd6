"""The ids that a batch looks up in an embedding table, classified once for all states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rec_summary.checks import plain_array
from rec_summary.errors import three_part
from rec_summary.metrics.hashing import hashed


@dataclass(frozen=True)
class TableIds:
    """Ids of one table.

    Attributes:
        rows: The ids that are rows of the table, (m,), including the unknown id if it is a row.
        count: The number of all ids.
        unknown: How many of them are the unknown id.
        out_of_range: How many are not rows of the table, without the unknown id.
    """

    rows: npt.NDArray[np.intp]
    count: int
    unknown: int
    out_of_range: int


def classify(ids: npt.ArrayLike, size: int | None, unknown_id: int | None) -> TableIds:
    """Returns the classified ids of a batch. 4,096 ids take about 10 microseconds.

    Args:
        ids: Integers of any shape; in an open table also strings, which are hashed.
        size: The number of rows of the table. None if it is open, as in a hash table: every id of
            64 bits is in range. Ids of 2**63 and above count as negative ones, of the same bits.
        unknown_id: The id of everything unknown; None if there is none. It may be outside the
            table.

    Raises:
        TypeError: The ids are anything else.
    """
    array = plain_array(ids)
    if size is None and array.size:
        array = hashed(array)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(three_part("the dtype of the ids", array.dtype, "an integer dtype"))
    # numpy indexes with 64 bits. As unsigned numbers negative ids are too large, so that one
    # comparison is enough.
    rows = array.astype(np.intp).ravel()
    unsigned = rows.view(np.uintp)
    count = rows.size
    unknown = 0 if unknown_id is None else int(np.count_nonzero(rows == unknown_id))
    out_of_range = 0
    if size is not None and count and int(unsigned.max()) >= size:
        rows = rows[unsigned < np.uint64(size)]
        out_of_range = count - rows.size
        if unknown_id is not None and not 0 <= unknown_id < size:
            out_of_range -= unknown
    return TableIds(rows, count, unknown, out_of_range)
