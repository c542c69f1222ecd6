"""The checkpoints of a training: where it went through the space of parameters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.landscape.point import Metadata, Point

Floats = npt.NDArray[np.float64]

FEWEST: Final = 3
TOUCHED: Final = "touched"

# Statistics of normalisation layers are measured, not learned: they do not move.
_MEASURED: Final = re.compile(r"(^|\.)moving_(mean|variance)$")


class Trajectory:
    """The checkpoints of one landscape, opened; a context that keeps the files open.

    Attributes:
        numbers: The steps or epochs, ascending as they were asked for.
        names: The parameters that can move: learned, and of floating point.
    """

    def __init__(self, metadata: Metadata, numbers: Sequence[int]) -> None:
        """Opens the checkpoints.

        Args:
            metadata: What the run has kept.
            numbers: Which checkpoints.

        Raises:
            SourceError: One is missing, cannot be read, or has other parameters or shapes
                than the first one.
        """
        self.numbers = tuple(numbers)
        self._files: list[Point] = []
        try:
            for number in self.numbers:
                self._files.append(Point(metadata, number))
                _check_same(self._files[0], self._files[-1])
        except BaseException:
            self.close()
            raise
        self.names = tuple(name for name in self._files[-1].names if self._can_move(name))

    def array(self, index: int, name: str) -> npt.NDArray[Any]:
        """Returns a parameter at a checkpoint; -1 is the last one.

        Raises:
            SourceError: It cannot be read.
        """
        return self._files[index].array(name)

    def elements(self, index: int, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Returns elements of a parameter at a checkpoint, in the order of its rows.

        Raises:
            SourceError: They cannot be read.
        """
        return self._files[index].elements(name, start, stop)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a parameter's shape."""
        return self._files[-1].shape(name)

    @property
    def all_names(self) -> tuple[str, ...]:
        """All parameters, those that cannot move included."""
        return self._files[-1].names

    @property
    def fingerprint(self) -> list[Any]:
        """What tells these checkpoints from others: names, sizes and times of the files."""
        found = []
        for path in dict.fromkeys(path for point in self._files for path in point.paths):
            status = os.lstat(path)
            found.append([os.path.basename(path), status.st_size, status.st_mtime_ns])
        return found

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Trajectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _can_move(self, name: str) -> bool:
        if _MEASURED.search(name):
            return False
        return self._files[-1].is_float(name)


def _check_same(first: Point, other: Point) -> None:
    if set(first.names) != set(other.names):
        names = sorted(set(first.names) ^ set(other.names))
        received = verbatim(f"{', '.join(names[:5])} in only one of {first.path} and {other.path}")
        raise SourceError(
            three_part("the parameters of a checkpoint", received, "the same in all checkpoints")
        )
    for name in first.names:
        if first.shape(name) != other.shape(name):
            received = verbatim(f"{first.shape(name)} and, in {other.path}, {other.shape(name)}")
            expected = "the same in all checkpoints"
            raise SourceError(three_part(f"the shape of {name}", received, expected))


def choose(names: Iterable[str], shapes: Any, selection: str) -> tuple[str, ...]:
    """Returns the parameters that move.

    Args:
        names: Those that can.
        shapes: Gives a parameter's shape by its name.
        selection: `all`; `touched`, the same (rows are chosen later); `dense`, without
            embedding tables; or a regular expression that is found in the names.

    Raises:
        ValueError: It is no regular expression, or none is chosen.
    """
    names = tuple(names)
    if selection in ("all", TOUCHED):
        chosen = names
    elif selection == "dense":
        chosen = tuple(name for name in names if not is_table(name, shapes(name)))
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
    """Whether a parameter is an embedding table: by its name, and a matrix."""
    return len(shape) == 2 and "embedding" in name.lower()
