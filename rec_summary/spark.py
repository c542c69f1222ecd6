"""Scalars of records as a Spark DataFrame, through `mapInArrow`.

rec_summary.spark.read_scalars(spark, "s3://bucket/records")
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from rec_summary.errors import required
from rec_summary.tables import arrow

if TYPE_CHECKING:
    import pyarrow
    import pyspark.sql

_COLUMNS: Final = "run string, rank bigint, tag string, step bigint, wall_time double, value double"
_AT_ONCE: Final = 1 << 16  # rows


def read_scalars(
    session: pyspark.sql.SparkSession, source: str | os.PathLike[str], **choice: Any
) -> pyspark.sql.DataFrame:
    """Returns all scalars of a tree; a task reads a run, or of large runs a rank.

    The runs are found here, and read by the executors when a result is computed. Their Python needs
    the same version of this package, and the same path or URL must lead to the records there.

    Args:
        session: The Spark session.
        source: A record directory or a tree of them, or a URL.
        choice: `runs`, `tags`, `since`, `until` and `ranks`, as in `rec_summary.load`.

    Returns:
        The rows of `rec_summary.load(...).scalars()`: `run`, `rank`, `tag`, `step`, `wall_time`,
        `value`.

    Raises:
        ArgumentError: A choice is invalid, or no run or no tag matches.
        SourceError: There are no records.
        ImportError: PySpark, pandas or pyarrow is not installed.
    """
    required("pyspark.sql", "rec_summary.spark.read_scalars", "spark,tables")
    rows = [(bytearray(pickle.dumps(part)),) for part in arrow.parts(source, **choice)]
    tasks = session.sparkContext.parallelize(rows, len(rows))
    return session.createDataFrame(tasks, "part binary").mapInArrow(_read, _COLUMNS)


def _read(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for part in batch.column(0):
            table = arrow.read(pickle.loads(part.as_py()))
            yield from table.to_batches(max_chunksize=_AT_ONCE)
