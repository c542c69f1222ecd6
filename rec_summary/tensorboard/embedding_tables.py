"""Embedding tables as the Projector shows them: matrices of a run's newest checkpoint."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array
from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.landscape.checkpoints import Checkpoint
from rec_summary.landscape.metadata import read_metadata
from rec_summary.records.checkpoints import FOLDER
from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from rec_summary.records.checkpoints.saved import list_checkpoints
from rec_summary.records.checkpoints.sparse import BASE
from rec_summary.records.reading.runs import Run
from rec_summary.series.text import printable, reason
from rec_summary.values.tensor import from_tensor

MOST_ROWS: Final = 100_000
"""Rows of a table that are shown: the page requests no more."""

_SIDES: Final = 2  # of a matrix
_BLOCK: Final = 1 << 22  # elements that are read at once


class TableRows(NamedTuple):
    """A table, or rows of it at even distances, without rows that have NaN or infinities.

    Attributes:
        rows: The numbers of the rows, of shape [n].
        values: Their elements, float32 of shape [n, width].
    """

    rows: npt.NDArray[np.intp]
    values: npt.NDArray[np.float32]


def newest_checkpoint(run: Run) -> str | None:
    """Returns the checkpoint that was written last; links out of the run are not followed."""
    return max(list_checkpoints(run.path, FOLDER), default=(0, None))[1]


@contextlib.contextmanager
def opened(path: str) -> Iterator[CheckpointFile | Checkpoint]:
    """Opens a checkpoint; a sparse one is completed by the one that it is based on.

    Raises:
        SourceError: It cannot be read, now or in the context.
    """
    try:
        with CheckpointFile(path) as file:
            if BASE not in file.names:
                yield file
                return
        metadata = read_metadata(os.path.dirname(os.path.dirname(path)))
        numbers = {name: number for number, name in metadata.files.items()}
        with contextlib.closing(Checkpoint(metadata, numbers[os.path.basename(path)])) as point:
            yield point
    except (OSError, MemoryError, KeyError) as error:
        why = getattr(error, "strerror", None) or reason(error)
        received = verbatim(f"{printable(path)}: {why}")
        raise SourceError(three_part("the checkpoint", received, "a readable file")) from error
    except CheckpointError as error:
        raise SourceError(str(error)) from error


class Tables(NamedTuple):
    """The tables of a run.

    Attributes:
        checkpoint: The checkpoint that they are in; None if they were recorded.
        shapes: Their shapes by name, in the order of the checkpoint.
        read: Returns a table by its name; raises CheckpointError, SourceError, OSError.
    """

    checkpoint: str | None
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], TableRows]


@contextlib.contextmanager
def tables_of(run: Run, recorded: Callable[[], Mapping[str, Any]]) -> Iterator[Tables]:
    """Opens the tables of a run: those of its newest checkpoint, or recorded matrices.

    Args:
        run: The run.
        recorded: Returns the last values of recorded tensors by tag; called if there is no
            checkpoint.

    Raises:
        SourceError: They cannot be read, now or in the context.
    """
    path = newest_checkpoint(run)
    if path is not None:
        with opened(path) as file:
            yield Tables(path, matrices(file), functools.partial(table_of, file))
        return
    named: dict[str, TableRows] = {}
    for tag, tensor in recorded().items():
        if len(tensor.dims) == _SIDES and all(tensor.dims):
            with contextlib.suppress(ValueError):
                named[tag] = table_of_array(from_tensor(tensor))
    yield Tables(None, {tag: table.values.shape for tag, table in named.items()}, named.__getitem__)


def matrices(checkpoint: CheckpointFile | Checkpoint) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the matrices of a checkpoint by name, in its order."""
    shapes = {name: checkpoint.shape(name) for name in checkpoint.names}
    return {
        name: shape for name, shape in shapes.items() if len(shape) == _SIDES and 0 not in shape
    }


def table_of(
    checkpoint: CheckpointFile | Checkpoint,
    name: str,
    most_rows: int = MOST_ROWS,
    at_once: int = _BLOCK,
) -> TableRows:
    """Reads a table of a checkpoint; of a large one, no more at once than is shown of it.

    Args:
        checkpoint: The checkpoint.
        name: The name of the table.
        most_rows: The number of rows that are shown.
        at_once: The number of elements that are read at once.

    Raises:
        CheckpointError, SourceError, OSError: It cannot be read.
    """
    finite = [np.isfinite(block).all(axis=1) for block in _blocks(checkpoint, name, at_once)]
    rows = _spread(np.flatnonzero(np.concatenate(finite)), most_rows)
    values, first = [], 0
    for block in _blocks(checkpoint, name, at_once):
        within = rows[(rows >= first) & (rows < first + len(block))] - first
        values.append(block[within])
        first += len(block)
    return TableRows(rows, np.concatenate(values))


def table_of_array(array: Array, most_rows: int = MOST_ROWS) -> TableRows:
    """Returns a recorded matrix as a table of at most so many rows."""
    values = array.astype("<f4")
    rows = _spread(np.flatnonzero(np.isfinite(values).all(axis=1)), most_rows)
    return TableRows(rows, values[rows])


def _blocks(
    checkpoint: CheckpointFile | Checkpoint, name: str, at_once: int
) -> Iterator[npt.NDArray[np.float32]]:
    """Yields the rows of a matrix, float32; of a sparse checkpoint all at once."""
    count, width = checkpoint.shape(name)
    step = count if isinstance(checkpoint, Checkpoint) else max(at_once // width, 1)
    for first in range(0, count, step):
        last = min(first + step, count)
        elements = checkpoint.elements(name, first * width, last * width)
        yield elements.reshape(-1, width).astype("<f4")


def _spread(rows: npt.NDArray[np.intp], most: int) -> npt.NDArray[np.intp]:
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]
