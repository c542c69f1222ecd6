"""The checkpoints of a landscape: the points of the training in the space of parameters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy.typing as npt

from rec_summary.errors import SourceError, os_errors_as, three_part, verbatim
from rec_summary.landscape.metadata import Metadata
from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from rec_summary.records.checkpoints.sparse import BASE, ROWS, VALUES, dense_name, restored

FEWEST: Final = 3
TOUCHED: Final = "touched"
_MOST_BASES: Final = 100

# Statistics of normalisation layers are measured, not learned: they do not move.
_MEASURED: Final = re.compile(r"(^|\.)moving_(mean|variance)$")

Array = npt.NDArray[Any]


class Checkpoint:
    """The parameters of one checkpoint, which may be sparse: rows instead of whole tables.

    Attributes:
        path: The file.
        names: The names of the parameters, in the order of the file.
        all_names: The same names as a set.
    """

    def __init__(self, metadata: Metadata, number: int, depth: int = 0) -> None:
        """Opens a checkpoint, and the one that it is based on.

        Args:
            metadata: The metadata of the run.
            number: The number of the checkpoint.
            depth: The number of checkpoints that are based on this one.

        Raises:
            SourceError: A checkpoint is missing or cannot be read.
        """
        self._file = _open(metadata, number)
        self._base: Checkpoint | None = None
        self.path = self._file.path
        self._own = frozenset(self._file.names)
        found = [dense_name(name) for name in self._file.names if name != BASE]
        self.names = tuple(dict.fromkeys(found))
        self.all_names = frozenset(found)
        try:
            if BASE in self._own:
                base = self._base_number()
                if depth == _MOST_BASES:
                    expected = f"at most {_MOST_BASES}"
                    what = "the number of checkpoints that are based on each other"
                    raise SourceError(three_part(what, verbatim("more"), expected))
                # Without this checkpoint, so that none is based on itself.
                files = {each: name for each, name in metadata.files.items() if each != number}
                self._base = Checkpoint(replace(metadata, files=files), base, depth + 1)
            self._check_rows()
        except BaseException:
            self.close()
            raise

    @property
    def paths(self) -> list[str]:
        """The files of this checkpoint and of those that it is based on."""
        return [self.path, *(self._base.paths if self._base is not None else ())]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a parameter."""
        if name in self._own or self._base is None:
            return self._file.shape(name)
        return self._base.shape(name)

    def is_float(self, name: str) -> bool:
        """Returns whether a parameter has a floating-point type."""
        return self._file.is_float(name if name in self._own else name + VALUES)

    def array(self, name: str) -> Array:
        """Returns a parameter.

        Raises:
            SourceError: It cannot be read.
        """
        if name in self._own or self._base is None:
            return _read(self._file.array, name)
        rows, values = (_read(self._file.array, name + part) for part in (ROWS, VALUES))
        try:
            return restored(self._base.array(name), rows, values)
        except ValueError as error:
            received = verbatim(f"{self.path}: {error}")
            expected = "rows of the base checkpoint"
            raise SourceError(three_part(f"the rows of {name}", received, expected)) from error

    def elements(self, name: str, start: int, stop: int) -> Array:
        """Returns elements of a parameter, in the order of its rows.

        Raises:
            SourceError: They cannot be read.
        """
        if name not in self._own and self._base is not None:
            return self.array(name).reshape(-1)[start:stop]
        return _read(self._file.elements, name, start, stop)

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        if self._base is not None:
            self._base.close()

    def _base_number(self) -> int:
        array = _read(self._file.array, BASE)
        if array.size != 1 or array.dtype.kind not in "iu":
            what = f"the base of the checkpoint {self.path}"
            received = verbatim(f"{array.shape} of {array.dtype}")
            raise SourceError(three_part(what, received, "the number of a checkpoint"))
        return int(array.reshape(()))

    def _check_rows(self) -> None:
        """Checks that every parameter is whole, or has rows and a base that has it."""
        for name in self.names:
            if name in self._own:
                continue
            parts = {name + ROWS, name + VALUES}
            if not parts <= self._own or self._base is None or name not in self._base.all_names:
                received = verbatim(f"{self.path}: rows without values, or without a base")
                expected = "a table, or rows and values of one in the base checkpoint"
                raise SourceError(three_part(f"the parameter {name}", received, expected))


def _read(read: Callable[..., Array], *arguments: Any) -> Array:
    """Returns what a method of a `CheckpointFile` reads.

    Raises:
        SourceError: The file cannot be read.
    """
    try:
        return read(*arguments)
    except (OSError, CheckpointError, KeyError, MemoryError) as error:
        raise SourceError(str(error) or type(error).__name__) from error


def _open(metadata: Metadata, number: int) -> CheckpointFile:
    what = f"checkpoint {number} of the loss landscape"
    name = metadata.files.get(number)
    if name is None:
        there = ", ".join(map(str, sorted(metadata.files))) or "none"
        raise SourceError(three_part(what, verbatim("none"), f"one of those kept: {there}"))
    path = os.path.join(metadata.folder, name)
    try:
        with os_errors_as(SourceError, what, path, "a readable file"):
            return CheckpointFile(path)
    except CheckpointError as error:
        raise SourceError(str(error)) from error


class Trajectory:
    """The open checkpoints of one landscape; a context manager.

    Attributes:
        numbers: The steps or epochs, in the given order.
        checkpoints: The checkpoints, in the same order.
        names: The parameters that can move: learned, and of a floating-point type.
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
        self.numbers = tuple(numbers)
        self.checkpoints: list[Checkpoint] = []
        try:
            for number in self.numbers:
                self.checkpoints.append(Checkpoint(metadata, number))
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
        found = []
        for path in dict.fromkeys(path for each in self.checkpoints for path in each.paths):
            status = os.lstat(path)
            found.append([os.path.basename(path), status.st_size, status.st_mtime_ns])
        return found

    def close(self) -> None:
        """Closes the files."""
        for checkpoint in self.checkpoints:
            checkpoint.close()

    def __enter__(self) -> Trajectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_same(first: Checkpoint, other: Checkpoint) -> None:
    expected = "the same in all checkpoints"
    if first.all_names != other.all_names:
        names = sorted(first.all_names ^ other.all_names)
        received = verbatim(f"{', '.join(names[:5])} in only one of {first.path} and {other.path}")
        raise SourceError(three_part("the parameters of a checkpoint", received, expected))
    for name in first.names:
        if first.shape(name) != other.shape(name):
            received = verbatim(f"{first.shape(name)} and, in {other.path}, {other.shape(name)}")
            raise SourceError(three_part(f"the shape of {name}", received, expected))


def choose(
    names: Iterable[str], shape: Callable[[str], tuple[int, ...]], selection: str
) -> tuple[str, ...]:
    """Returns the parameters that move.

    Args:
        names: The parameters that can move.
        shape: Returns the shape of a parameter by its name.
        selection: `all`; `touched`, the same (`random_plane` chooses the rows); `dense`, without
            embedding tables; or a regular expression that is searched in the names.

    Raises:
        ValueError: The selection is not a regular expression, or selects no parameter.
    """
    names = tuple(names)
    if selection in ("all", TOUCHED):
        chosen = names
    elif selection == "dense":
        chosen = tuple(name for name in names if not is_table(name, shape(name)))
    else:
        try:
            pattern = re.compile(selection)
        except re.error as error:
            expected = f"'all', 'touched', 'dense', or a regular expression ({error})"
            raise ValueError(three_part("the choice of parameters", selection, expected)) from error
        chosen = tuple(name for name in names if pattern.search(name))
    if not chosen:
        expected = f"a choice of at least one of {', '.join(names[:8])}"
        raise ValueError(three_part("the choice of parameters", selection, expected))
    return chosen


def is_table(name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a parameter is an embedding table: a matrix with such a name."""
    return len(shape) == 2 and "embedding" in name.lower()
