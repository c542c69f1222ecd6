"""What can be told about a data set without reading it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.training.online.stream import is_unbounded

# The attributes in which MindSpore's data sets keep where their data is.
_PATH_ATTRIBUTES: Final = ("dataset_files", "dataset_file", "dataset_dir")


@dataclass(frozen=True)
class DatasetInfo:
    """A data set, as far as it is known.

    Attributes:
        path: The directory (or the first file's directory) that it reads; None if it
            reads none.
        batch_size: Samples in a batch; 0 if not known.
        size: Samples in one pass; None for an unbounded stream and where it is not known.
        unbounded: Whether it has no end that could be known.
    """

    path: str | None
    batch_size: int
    size: int | None
    unbounded: bool


def describe_dataset(dataset: Any, samples: int = 0) -> DatasetInfo:
    """Describes a data set. A stream is never asked for its size: it would not answer.

    Args:
        dataset: A `mindspore.dataset.Dataset`, or None if it is not known.
        samples: The number of samples in a batch that was seen; 0 if none was.
    """
    if dataset is None:
        return DatasetInfo(None, samples, None, False)
    # MindSpore keeps a size that it has once counted; that is the only way to know a stream's.
    counted = getattr(dataset, "dataset_size", None)
    unbounded = is_unbounded(dataset) and counted is None
    batch_size = int(dataset.get_batch_size() or 0)
    if batch_size <= 1:  # a generator that yields whole batches says 1
        batch_size = samples or batch_size
    size = None
    if not unbounded:
        batches = counted if counted is not None else dataset.get_dataset_size()
        size = int(batches) * max(batch_size, 1)
    return DatasetInfo(_path(dataset), batch_size, size, unbounded)


def _path(dataset: Any) -> str | None:
    """The first path found on the way from the last operation to the source."""
    while dataset is not None:
        for attribute in _PATH_ATTRIBUTES:
            held = getattr(dataset, attribute, None)
            if isinstance(held, (list, tuple)) and held:
                held = held[0]
            if isinstance(held, str) and held:
                return _directory(held)
        children = getattr(dataset, "children", None)
        dataset = children[0] if children else None
    return None


def _directory(path: str) -> str:
    return os.path.dirname(path) if os.path.isfile(path) else path
