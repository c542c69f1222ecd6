"""What a run has kept for its landscape, and the parameters at one of its checkpoints."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy.typing as npt

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.records.checkpoint_file import CheckpointError, CheckpointFile
from rec_summary.records.sparse import BASE, ROWS, VALUES, dense_name, restored

CHECKPOINT_FOLDER: Final = "ckpt_dir"
METADATA_NAME: Final = "train_metadata.json"


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


class Point:
    """The parameters at one checkpoint, which may be sparse: rows in place of tables.

    Attributes:
        path: The file.
        names: The parameters, in the order of the file.
    """

    def __init__(self, metadata: Metadata, number: int) -> None:
        """Opens a checkpoint, and the one that it is based on.

        Raises:
            SourceError: One of them is missing, or cannot be read.
        """
        self._file = _open(metadata, number)
        self._base: Point | None = None
        self.path = self._file.path
        found = [dense_name(name) for name in self._file.names if name != BASE]
        self.names = tuple(dict.fromkeys(found))
        try:
            if BASE in self._file.names:
                base = int(self._array(BASE))
                self._base = Point(_without(metadata, number), base)
        except BaseException:
            self._file.close()
            raise

    @property
    def paths(self) -> list[str]:
        """The files that this one is made of."""
        return [self.path, *(self._base.paths if self._base is not None else ())]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a parameter's shape."""
        if name in self._file.names or self._base is None:
            return self._file.shape(name)
        return self._base.shape(name)

    def is_float(self, name: str) -> bool:
        """Whether a parameter is of floating point."""
        return self._file.is_float(name if name in self._file.names else name + VALUES)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Returns a parameter.

        Raises:
            SourceError: It cannot be read.
        """
        if name in self._file.names or self._base is None:
            return self._array(name)
        rows, values = self._array(name + ROWS), self._array(name + VALUES)
        try:
            return restored(self._base.array(name), rows, values)
        except ValueError as error:
            received = verbatim(f"{self.path}: {error}")
            expected = "rows of the base checkpoint"
            raise SourceError(three_part(f"the rows of {name}", received, expected)) from error

    def elements(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Returns elements of a parameter, in the order of its rows.

        Raises:
            SourceError: They cannot be read.
        """
        if name not in self._file.names and self._base is not None:
            return self.array(name).reshape(-1)[start:stop]
        try:
            return self._file.elements(name, start, stop)
        except (OSError, CheckpointError, KeyError) as error:
            raise SourceError(str(error)) from error

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        if self._base is not None:
            self._base.close()

    def _array(self, name: str) -> npt.NDArray[Any]:
        try:
            return self._file.array(name)
        except (OSError, CheckpointError, KeyError) as error:
            raise SourceError(str(error)) from error


def _without(metadata: Metadata, number: int) -> Metadata:
    """Returns the metadata without one checkpoint, so that none can be based on itself."""
    files = {each: name for each, name in metadata.files.items() if each != number}
    return replace(metadata, files=files)


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
