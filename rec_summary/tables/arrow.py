"""Scalars as Arrow tables, for engines that read them in several processes or machines.

A part is a run; of a large run with several ranks, it is a rank. It is read where an engine asks
for it, into columns, without a Python object for each value. The rows of all parts, in their order,
are those of `rec_summary.load(...).scalars()`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from rec_summary.errors import required
from rec_summary.tables.formats import SCHEMAS
from rec_summary.tables.frames import Records, load
from rec_summary.tables.parquet import arrow_schema

if TYPE_CHECKING:
    import pyarrow

_LARGE: Final = 1 << 26  # bytes of a run


def parts(source: str | os.PathLike[str], **choice: Any) -> list[Records]:
    """Finds the runs of a tree, once, and returns a part for each; nothing of them is read yet.

    Args:
        source: As in `rec_summary.load`.
        choice: As in `rec_summary.load`.

    Raises:
        ArgumentError: A choice is invalid, or no run or no tag matches.
        SourceError: There are no records.
        ImportError: pandas or pyarrow is not installed.
    """
    schema()  # a missing package is known here, and not on a worker
    return list(load(source, **choice).parts(_LARGE))


def schema() -> pyarrow.Schema:
    """Returns the columns: run, rank, tag, step, wall_time (seconds since the epoch), value."""
    required("pyarrow", "reading records on an engine", "tables")
    return arrow_schema({**SCHEMAS["scalars"], "value": "float64"})


def read(part: Records) -> pyarrow.Table:
    """Reads a part; warns of records that cannot be read.

    Returns:
        A row for each value, with the columns of `schema`.
    """
    pa = required("pyarrow", "reading records on an engine", "tables")
    # Runs and tags are codes so far, with each text once.
    return pa.Table.from_pandas(part.scalars(), preserve_index=False).cast(schema())
