"""The metadata that a training wrote for its landscapes: checkpoints, grid and samples."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.checks import (
    check_bool,
    check_choice,
    check_elements,
    check_entries,
    check_int,
    check_that,
    check_type,
)
from rec_summary.errors import SourceError, os_errors_as, three_part, verbatim
from rec_summary.records.checkpoints import FOLDER, METADATA_NAME
from rec_summary.records.files import read_plain, refuse_link

_MOST_METADATA: Final = 1 << 26  # bytes
_MOST_CHECKPOINTS: Final = 100_000
_LONGEST_UNIT: Final = 100


@dataclass(frozen=True)
class Metadata:
    """The metadata of a run.

    Attributes:
        folder: The directory of the checkpoints.
        files: The file name of each checkpoint, by its number.
        intervals: The numbers of the checkpoints of each landscape.
        unit: The unit of these numbers: `step` or `epoch`.
        steps_per_epoch: The number of steps of an epoch.
        landscape_size: The number of points along each side of the grid.
        num_samples: The number of samples of the loss.
        train: Whether to compute the landscape of the training path.
        result: Whether to compute the landscape around the result.
    """

    folder: str
    files: dict[int, str]
    intervals: tuple[tuple[int, ...], ...]
    unit: str
    steps_per_epoch: int
    landscape_size: int
    num_samples: int
    train: bool
    result: bool


def read_metadata(summary_dir: str | os.PathLike[str]) -> Metadata:
    """Reads the metadata of a record directory, written by this package or by MindSpore.

    Only the names of the checkpoint files are used, because their paths are those of the machine
    that wrote them. The files are next to the metadata, wherever the directory is moved to.

    Raises:
        SourceError: The metadata is missing or damaged.
    """
    folder = os.path.join(os.fspath(summary_dir), FOLDER)
    path = os.path.join(folder, METADATA_NAME)
    what = "the metadata of a loss landscape"
    expected = (
        "a record directory of a training with collect_specified_data={'collect_landscape': {...}}"
    )
    with os_errors_as(SourceError, what, path, expected):
        refuse_link(folder)
        content = read_plain(path, _MOST_METADATA)
    try:
        return _parse(folder, json.loads(content))
    except (
        *(ValueError, ArithmeticError, LookupError, TypeError, AttributeError),
        *(RecursionError, MemoryError),
    ) as error:
        received = verbatim(f"{path}: {type(error).__name__}: {error}")
        raise SourceError(three_part(what, received, "the file that a collector wrote")) from error


def _parse(folder: str, document: Any) -> Metadata:
    files = {
        int(number): _base_name(name) for number, name in document["model_params_file_map"].items()
    }
    intervals = tuple(tuple(map(int, group)) for group in document["epoch_group"].values())
    if not all(intervals) or sum(map(len, intervals)) > _MOST_CHECKPOINTS:
        raise ValueError(f"no landscape can be made of {list(map(len, intervals))[:8]} checkpoints")
    create = document["create_landscape"]
    return Metadata(
        folder=folder,
        files=files,
        intervals=intervals,
        unit=str(document["unit"])[:_LONGEST_UNIT],
        steps_per_epoch=int(document["step_per_epoch"]),
        landscape_size=int(document["landscape_size"]),
        num_samples=int(document["num_samples"]),
        train=bool(create["train"]),
        result=bool(create["result"]),
    )


def _base_name(path: str) -> str:
    """Returns the name of a file next to the metadata, without the stated directory."""
    name = os.path.basename(path)
    if name in ("", ".", "..") or "\0" in name:
        raise ValueError(f"{path!r} names no file")
    return name


def check_changes(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the fields of `Metadata` that are changed.

    Args:
        changes: Some of the keys of MindSpore's `collect_landscape`; None for no change.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: A key is unknown, or a value is invalid.
    """
    entries = check_entries("collect_landscape", changes, _CHANGES)
    entries.pop("unit", None)  # it stays as it was trained
    entries |= entries.pop("create_landscape", {})
    return entries


def _check_create(name: str, value: object) -> dict[str, bool]:
    check_type(name, value, Mapping, "a dict with bools for 'train' and 'result'")
    return check_entries(name, value, {"train": check_bool, "result": check_bool})


def _check_groups(name: str, value: object) -> tuple[tuple[int, ...], ...]:
    groups = check_elements(name, value, Sequence, "a list of lists of ints")
    check_that(all(map(len, groups)), name, value, "lists of numbers")
    return tuple(tuple(check_int(f"a number in {name}", n, 0) for n in group) for group in groups)


_CHANGES: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "landscape_size": functools.partial(check_int, least=3, most=256),
    "unit": functools.partial(check_choice, choices=("step", "epoch")),
    "create_landscape": _check_create,
    "num_samples": check_int,
    "intervals": _check_groups,
}
