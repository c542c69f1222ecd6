"""Scalars of records as a Ray Dataset: `rec_summary.ray.read_scalars("s3://bucket/records")`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rec_summary.errors import required
from rec_summary.tables import arrow

if TYPE_CHECKING:
    import pyarrow
    import ray.data


def read_scalars(source: str | os.PathLike[str], **choice: Any) -> ray.data.Dataset:
    """Returns all scalars of a tree; a task reads a run, or of large runs a rank.

    The runs are found here, and read by the workers when the data set is used. A worker needs the
    same version of this package, and the same path or URL must lead to the records there.

    Args:
        source: A record directory or a tree of them, or a URL.
        choice: `runs`, `tags`, `since`, `until` and `ranks`, as in `rec_summary.load`.

    Returns:
        The rows of `rec_summary.load(...).scalars()`, in Arrow blocks: `run`, `rank`, `tag`,
        `step`, `wall_time`, `value`.

    Raises:
        ArgumentError: A choice is invalid, or no run or no tag matches.
        SourceError: There are no records.
        ImportError: Ray, pandas or pyarrow is not installed.
    """
    data = required("ray.data", "rec_summary.ray.read_scalars", "ray,tables")
    items = [{"part": pickle.dumps(part)} for part in arrow.parts(source, **choice)]
    dataset = data.from_items(items, override_num_blocks=len(items))
    scalars: ray.data.Dataset = dataset.map_batches(_read, batch_size=1, batch_format="pyarrow")
    return scalars


def _read(batch: pyarrow.Table) -> Iterator[pyarrow.Table]:
    for part in batch.column("part"):
        yield arrow.read(pickle.loads(part.as_py()))
