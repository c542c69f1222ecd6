"""What a run has kept for its landscape, and the parameters at one of its checkpoints."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy.typing as npt

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from rec_summary.records.checkpoints.sparse import BASE, ROWS, VALUES, dense_name, restored
from rec_summary.records.files import read_plain, refuse_link

CHECKPOINT_FOLDER: Final = "ckpt_dir"
METADATA_NAME: Final = "train_metadata.json"
_MOST_METADATA: Final = 1 << 26  # bytes
_MOST_CHECKPOINTS: Final = 100_000
_MOST_BASES: Final = 100
_LONGEST_UNIT: Final = 100


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
        refuse_link(folder)
        found = json.loads(read_plain(path, _MOST_METADATA))
        files = {
            int(number): _base_name(name) for number, name in found["model_params_file_map"].items()
        }
        groups = tuple(tuple(map(int, group)) for group in found["epoch_group"].values())
        if not all(groups) or sum(map(len, groups)) > _MOST_CHECKPOINTS:
            raise ValueError(
                f"no landscape can be made of {list(map(len, groups))[:8]} checkpoints"
            )
        create = found["create_landscape"]
        return Metadata(
            folder=folder,
            files=files,
            groups=groups,
            unit=str(found["unit"])[:_LONGEST_UNIT],
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
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise _not_ours(what, path, error) from error
    except (RecursionError, MemoryError) as error:
        raise _not_ours(what, path, error) from error


def _base_name(path: str) -> str:
    """Returns the name of a file that lies beside the metadata, whatever path is stated."""
    name = os.path.basename(path)
    if name in ("", ".", "..") or "\0" in name:
        raise ValueError(f"{path!r} names no file")
    return name


def _not_ours(what: str, path: str, error: BaseException) -> SourceError:
    received = verbatim(f"{path}: {type(error).__name__}: {error}")
    return SourceError(three_part(what, received, "the file that a collector wrote"))


class Point:
    """The parameters at one checkpoint, which may be sparse: rows in place of tables.

    Attributes:
        path: The file.
        names: The parameters, in the order of the file.
        all_names: The same, to look one up.
    """

    def __init__(self, metadata: Metadata, number: int, depth: int = 0) -> None:
        """Opens a checkpoint, and the one that it is based on.

        Args:
            metadata: What the run has kept.
            number: Which checkpoint.
            depth: How many checkpoints are based on this one.

        Raises:
            SourceError: One of them is missing, or cannot be read.
        """
        self._file = _open(metadata, number)
        self._base: Point | None = None
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
                    what = "how many checkpoints are based on each other"
                    raise SourceError(three_part(what, verbatim("more"), expected))
                self._base = Point(_without(metadata, number), base, depth + 1)
            self._check_rows()
        except BaseException:
            self._file.close()
            raise

    @property
    def paths(self) -> list[str]:
        """The files that this one is made of."""
        return [self.path, *(self._base.paths if self._base is not None else ())]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a parameter's shape."""
        if name in self._own or self._base is None:
            return self._file.shape(name)
        return self._base.shape(name)

    def is_float(self, name: str) -> bool:
        """Whether a parameter is of floating point."""
        return self._file.is_float(name if name in self._own else name + VALUES)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Returns a parameter.

        Raises:
            SourceError: It cannot be read.
        """
        if name in self._own or self._base is None:
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
        if name not in self._own and self._base is not None:
            return self.array(name).reshape(-1)[start:stop]
        try:
            return self._file.elements(name, start, stop)
        except (OSError, CheckpointError, KeyError, MemoryError) as error:
            raise SourceError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        if self._base is not None:
            self._base.close()

    def _base_number(self) -> int:
        array = self._array(BASE)
        if array.size != 1 or array.dtype.kind not in "iu":
            what = f"the base of the checkpoint {self.path}"
            received = verbatim(f"{array.shape} of {array.dtype}")
            raise SourceError(three_part(what, received, "the number of a checkpoint"))
        return int(array.reshape(()))

    def _check_rows(self) -> None:
        """Makes sure that every parameter is there: whole, or as rows of a base that has it."""
        for name in self.names:
            if name in self._own:
                continue
            parts = {name + ROWS, name + VALUES}
            if not parts <= self._own or self._base is None or name not in self._base.all_names:
                received = verbatim(f"{self.path}: rows without values, or without a base")
                expected = "a table, or rows and values of one in the base checkpoint"
                raise SourceError(three_part(f"the parameter {name}", received, expected))

    def _array(self, name: str) -> npt.NDArray[Any]:
        try:
            return self._file.array(name)
        except (OSError, CheckpointError, KeyError, MemoryError) as error:
            raise SourceError(str(error) or type(error).__name__) from error


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
