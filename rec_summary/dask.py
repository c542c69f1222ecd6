"""Scalars of records as a Dask DataFrame: `rec_summary.dask.read_scalars("s3://bucket/records")`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from rec_summary.errors import required
from rec_summary.tables.formats import SCHEMAS
from rec_summary.tables.frames import Records, load
from rec_summary.tables.parquet import arrow_schema

if TYPE_CHECKING:
    import dask.dataframe
    import pandas as pd

_LARGE: Final = 1 << 26  # bytes of a run


def read_scalars(source: str | os.PathLike[str], **choice: Any) -> dask.dataframe.DataFrame:
    """Returns all scalars of a tree, in a partition for each run; of large runs, for each rank.

    The runs are found here, and read by the workers when a result is computed. A worker needs the
    same version of this package, and the same path or URL must lead to the records there.

    Args:
        source: A record directory or a tree of them, or a URL.
        choice: `runs`, `tags`, `since`, `until` and `ranks`, as in `rec_summary.load`.

    Returns:
        The rows of `rec_summary.load(...).scalars()`, in their order: `run`, `rank`, `tag`, `step`,
        `wall_time` (seconds since the epoch), `value`. Texts are Arrow strings.

    Raises:
        ArgumentError: A choice is invalid, or no run or no tag matches.
        SourceError: There are no records.
        ImportError: Dask, pandas or pyarrow is not installed.
    """
    frames = required("dask.dataframe", "rec_summary.dask.read_scalars", "dask,tables")
    meta = _frame(_schema().empty_table())
    parts = list(load(source, **choice).parts(_LARGE))
    scalars: dask.dataframe.DataFrame = frames.from_map(
        _read, parts, meta=meta, label="rec_summary", enforce_metadata=False
    )
    return scalars


def _schema() -> Any:
    required("pyarrow", "rec_summary.dask.read_scalars", "dask,tables")
    return arrow_schema({**SCHEMAS["scalars"], "value": "float64"})


def _read(part: Records) -> pd.DataFrame:
    import pyarrow as pa

    # Runs and tags are codes so far, with each text once.
    table = pa.Table.from_pandas(part.scalars(), preserve_index=False)
    return _frame(table.cast(_schema()))


def _frame(table: Any) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    texts = {pa.string(): pd.StringDtype("pyarrow")}
    frame: pd.DataFrame = table.to_pandas(types_mapper=texts.get)
    return frame
