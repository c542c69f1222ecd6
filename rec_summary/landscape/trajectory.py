"""The checkpoints of a training: where it went through the space of parameters."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.records.checkpoint_file import CheckpointError, CheckpointFile

Floats = npt.NDArray[np.float64]

CHECKPOINT_FOLDER: Final = "ckpt_dir"
METADATA_NAME: Final = "train_metadata.json"
FEWEST: Final = 3
TOUCHED: Final = "touched"

# Statistics of normalisation layers are measured, not learned: they do not move.
_MEASURED: Final = re.compile(r"(^|\.)moving_(mean|variance)$")


@dataclass(frozen=True)
class Metadata:
    """What a run has kept for its landscape.

    Attributes:
        folder: Where the checkpoints are.
        files: The name of each checkpoint's file, by its number.
        groups: The numbers of each landscape's checkpoints.
        unit: What these count: `step` or `epoch`.
        steps_per_epoch: How many steps an epoch has.
        landscape_size: Points along each side of the grid.
        num_samples: How many samples the loss is to be computed on.
        train: Whether the landscape of the training path is wanted.
        result: Whether the landscape around the result is wanted.
    """

    folder: str
    files: dict[int, str]
    groups: tuple[tuple[int, ...], ...]
    unit: str
    steps_per_epoch: int
    landscape_size: int
    num_samples: int
    train: bool
    result: bool


def read_metadata(summary_dir: str | os.PathLike[str]) -> Metadata:
    """Reads the metadata of a record directory, of ours or MindSpore's.

    The paths in it are those of the machine that wrote them, so only the names of the files
    are used: they lie beside the metadata, wherever the directory has been moved to.

    Raises:
        SourceError: There is none, or it is damaged.
    """
    folder = os.path.join(os.fspath(summary_dir), CHECKPOINT_FOLDER)
    path = os.path.join(folder, METADATA_NAME)
    what = "the metadata of a loss landscape"
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        files = {
            int(number): os.path.basename(name)
            for number, name in found["model_params_file_map"].items()
        }
        groups = tuple(tuple(map(int, group)) for group in found["epoch_group"].values())
        create = found["create_landscape"]
        return Metadata(
            folder=folder,
            files=files,
            groups=groups,
            unit=str(found["unit"]),
            steps_per_epoch=int(found["step_per_epoch"]),
            landscape_size=int(found["landscape_size"]),
            num_samples=int(found["num_samples"]),
            train=bool(create["train"]),
            result=bool(create["result"]),
        )
    except OSError as error:
        received = verbatim(f"{path}: {error.strerror or error}")
        expected = (
            "a record directory of a training with collect_specified_data="
            "{'collect_landscape': {...}}"
        )
        raise SourceError(three_part(what, received, expected)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        received = verbatim(f"{path}: {type(error).__name__}: {error}")
        raise SourceError(three_part(what, received, "the file that a collector wrote")) from error


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
        self._files: list[CheckpointFile] = []
        try:
            for number in self.numbers:
                self._files.append(_open(metadata, number))
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
        try:
            return self._files[index].array(name)
        except (OSError, CheckpointError) as error:
            raise SourceError(str(error)) from error

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
        for file in self._files:
            status = os.stat(file.path)
            found.append([os.path.basename(file.path), status.st_size, status.st_mtime_ns])
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


def _open(metadata: Metadata, number: int) -> CheckpointFile:
    what = f"checkpoint {number} of the loss landscape"
    name = metadata.files.get(number)
    if name is None:
        there = ", ".join(map(str, sorted(metadata.files))) or "none"
        raise SourceError(three_part(what, verbatim("none"), f"one of those kept: {there}"))
    path = os.path.join(metadata.folder, name)
    try:
        return CheckpointFile(path)
    except OSError as error:
        received = verbatim(f"{path}: {error.strerror or error}")
        raise SourceError(three_part(what, received, "a readable file")) from error
    except CheckpointError as error:
        raise SourceError(str(error)) from error


def _check_same(first: CheckpointFile, other: CheckpointFile) -> None:
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
