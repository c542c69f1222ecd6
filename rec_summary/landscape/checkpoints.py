"""The checkpoints of a landscape: the points of the training in the space of parameters."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from rec_summary.arrays import Array
from rec_summary.checks import check_that
from rec_summary.errors import SourceError, os_errors_as, three_part, verbatim
from rec_summary.landscape.metadata import Metadata
from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from rec_summary.records.checkpoints.sparse import BASE, ROWS, VALUES, dense_name, restored

FEWEST: Final = 3
TOUCHED: Final = "touched"
SELECTIONS: Final = ("all", TOUCHED, "dense")

# Statistics of normalisation layers are measured, not learned: they do not move.
_MEASURED: Final = re.compile(r"(^|\.)moving_(mean|variance)$")


class Checkpoint(contextlib.ExitStack):
    """The parameters of one checkpoint, which may be sparse: rows instead of whole tables.

    A context manager, which closes the files.

    Attributes:
        path: The file.
        names: The names of the parameters, in the order of the file.
    """

    def __init__(self, metadata: Metadata, number: int) -> None:
        """Opens a checkpoint, and the one that it is based on.

        Args:
            metadata: The metadata of the run.
            number: The number of the checkpoint.

        Raises:
            SourceError: A checkpoint is missing or cannot be read.
        """
        super().__init__()
        self._files: list[CheckpointFile] = []  # the checkpoint, and its base if it is sparse
        self._whole: dict[str, int] = {}  # which of them has a whole parameter
        try:
            self._open(metadata, number)
            present = [frozenset(file.names) for file in self._files]
            for name in map(dense_name, self._files[0].names):
                if name != BASE:
                    self._whole[name] = self._find(name, *present)
        except BaseException:
            self.close()
            raise
        self.path = self._files[0].path
        self.names = tuple(self._whole)

    @property
    def paths(self) -> list[str]:
        """The files of this checkpoint and of the one that it is based on."""
        return [file.path for file in self._files]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a parameter."""
        return self._files[self._whole[name]].shape(name)

    def is_float(self, name: str) -> bool:
        """Returns whether a parameter has a floating-point type."""
        return self._files[self._whole[name]].is_float(name)

    def array(self, name: str) -> Array:
        """Returns a parameter.

        Raises:
            SourceError: It cannot be read.
        """
        index = self._whole[name]
        array = _read(self._files[index].array, name)
        if not index:
            return array
        rows, values = (_read(self._files[0].array, name + part) for part in (ROWS, VALUES))
        try:
            return restored(array, rows, values)
        except ValueError as error:
            received, expected = verbatim(f"{self.path}: {error}"), "rows of the base checkpoint"
            raise SourceError(three_part(f"the rows of {name}", received, expected)) from error

    def elements(self, name: str, start: int, stop: int) -> Array:
        """Returns elements of a parameter, in the order of its rows.

        Raises:
            SourceError: They cannot be read.
        """
        if self._whole[name]:
            return self.array(name).reshape(-1)[start:stop]
        return _read(self._files[0].elements, name, start, stop)

    def _open(self, metadata: Metadata, number: int) -> None:
        """Opens the checkpoint, and its base if it is sparse."""
        file = self._opened(metadata, number)
        if BASE not in file.names:
            return
        base, what = _read(file.array, BASE), f"the base of the checkpoint {file.path}"
        if base.size != 1 or base.dtype.kind not in "iu":
            received = verbatim(f"{base.shape} of {base.dtype}")
            raise SourceError(three_part(what, received, "the number of a checkpoint"))
        whole = self._opened(metadata, int(base.reshape(())))
        if BASE in whole.names:
            received = verbatim(f"{whole.path}, which is sparse")
            raise SourceError(three_part(what, received, "a checkpoint with whole tables"))

    def _opened(self, metadata: Metadata, number: int) -> CheckpointFile:
        what, name = f"checkpoint {number} of the loss landscape", metadata.files.get(number)
        if name is None:
            kept = ", ".join(map(str, sorted(metadata.files))) or "none"
            raise SourceError(three_part(what, verbatim("none"), f"one of those kept: {kept}"))
        path = os.path.join(metadata.folder, name)
        try:
            with os_errors_as(SourceError, what, path, "a readable file"):
                self._files.append(self.enter_context(CheckpointFile(path)))
        except CheckpointError as error:
            raise SourceError(str(error)) from error
        return self._files[-1]

    def _find(
        self, name: str, names: frozenset[str], names_of_base: frozenset[str] = frozenset()
    ) -> int:
        """Returns which file has a parameter whole: 0 for the checkpoint, 1 for its base."""
        if name in names:
            return 0
        if {name + ROWS, name + VALUES} <= names and name in names_of_base:
            return 1
        received = verbatim(f"{self._files[0].path}: rows without values, or without a base")
        expected = "a table, or rows and values of one in the base checkpoint"
        raise SourceError(three_part(f"the parameter {name}", received, expected))


def _read(read: Callable[..., Array], *arguments: Any) -> Array:
    """Returns what a method of a `CheckpointFile` reads.

    Raises:
        SourceError: The file cannot be read.
    """
    try:
        return read(*arguments)
    except (OSError, CheckpointError, MemoryError) as error:
        raise SourceError(str(error) or type(error).__name__) from error


class Trajectory(contextlib.ExitStack):
    """The open checkpoints of one landscape; a context manager.

    Attributes:
        numbers: The steps or epochs, in the given order.
        checkpoints: The checkpoints, in the same order.
        names: The parameters that can move: of a floating-point type, and no statistics.
    """

    def __init__(self, metadata: Metadata, numbers: Sequence[int]) -> None:
        """Opens the checkpoints.

        Args:
            metadata: The metadata of the run.
            numbers: The numbers of the checkpoints.

        Raises:
            SourceError: A checkpoint is missing, cannot be read, or has other parameters or
                shapes than the first one.
        """
        super().__init__()
        self.numbers = tuple(numbers)
        self.checkpoints: list[Checkpoint] = []
        try:
            for number in self.numbers:
                self.checkpoints.append(self.enter_context(Checkpoint(metadata, number)))
                _check_same(self.checkpoints[0], self.checkpoints[-1])
        except BaseException:
            self.close()
            raise
        self.names = tuple(
            name
            for name in self.last.names
            if not _MEASURED.search(name) and self.last.is_float(name)
        )

    @property
    def last(self) -> Checkpoint:
        """The last checkpoint."""
        return self.checkpoints[-1]

    @property
    def fingerprint(self) -> list[Any]:
        """Names, sizes and times of the files, which identify the checkpoints."""
        files = []
        for path in dict.fromkeys(path for point in self.checkpoints for path in point.paths):
            status = os.lstat(path)
            files.append([os.path.basename(path), status.st_size, status.st_mtime_ns])
        return files


def _check_same(first: Checkpoint, other: Checkpoint) -> None:
    expected = "the same in all checkpoints"
    names = sorted(set(first.names) ^ set(other.names))
    if names:
        received = verbatim(f"{', '.join(names[:5])} in only one of {first.path} and {other.path}")
        raise SourceError(three_part("the parameters of a checkpoint", received, expected))
    for name in first.names:
        if first.shape(name) != other.shape(name):
            received = verbatim(f"{first.shape(name)} and, in {other.path}, {other.shape(name)}")
            raise SourceError(three_part(f"the shape of {name}", received, expected))


def choose(trajectory: Trajectory, selection: str) -> tuple[str, ...]:
    """Returns the parameters that move.

    Args:
        trajectory: The checkpoints.
        selection: `all`; `touched`, the same (`random_plane` chooses the rows); `dense`, without
            embedding tables; or a regular expression that is searched in the names.

    Raises:
        ValueError: The selection selects no parameter.
    """
    names, shape = trajectory.names, trajectory.last.shape
    if selection in ("all", TOUCHED):
        chosen = names
    elif selection == "dense":
        chosen = tuple(name for name in names if not is_table(name, shape(name)))
    else:
        chosen = tuple(name for name in names if re.search(selection, name))
    expected = f"a choice of at least one of {', '.join(names[:8])}"
    check_that(chosen, "the choice of parameters", selection, expected)
    return chosen


def is_table(name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a parameter is an embedding table: a matrix with such a name."""
    return len(shape) == 2 and "embedding" in name.lower()
