"""Incident files: the last batches of a training before something broke.

A file is a NumPy archive without pickles, in `incidents/` of the record directory. It has the
arrays `step`, `reason`, `wall_time`, `version`, `columns` and `hashed` (names of columns), `steps`
and `losses` (of each batch), and of the batch with number N, from 0 on, `batch_N/input_C` of each
column C, and `batch_N/output_O`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import check_that
from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.records.files import (
    FILE_MODE,
    make_directory,
    open_plain,
    refuse_link,
    write_atomically,
)

FOLDER: Final = "incidents"

_read_array: Any = np.lib.format.read_array
_write_array: Any = np.lib.format.write_array
_NAME: Final = re.compile(r"rank_\d+_step_\d+\.npz", re.ASCII)
_MEMBER: Final = re.compile(r"batch_(\d{1,9})/(input|output)_(\d{1,9})", re.ASCII)
_FACTS: Final = ("reason", "version", "wall_time", "step", "columns", "hashed", "steps", "losses")
_EXPECTED: Final = "a file that SummaryCollector(incident=Incident()) has written"


@dataclass(frozen=True, eq=False)
class IncidentBatch:
    """One batch of an incident.

    Attributes:
        step: The step that it trained.
        inputs: The columns of the data set by name; one without a name has its position as name.
        outputs: What the network returned, from before the update.
        loss: The loss; NaN also if the network returned none.
    """

    step: int
    inputs: Mapping[str, Array]
    outputs: tuple[Array, ...]
    loss: float


@dataclass(frozen=True, eq=False)
class RecordedIncident:
    """The last batches of a training before something broke.

    Attributes:
        path: The file.
        step: The step that broke, which the last batch trained.
        reason: What was noticed.
        batches: The batches, the oldest first.
        hashed: The columns whose values are hashes.
        wall_time: When it was noticed, in seconds since the epoch.
        version: The version of rec_summary that wrote it.
    """

    path: str
    step: int
    reason: str
    batches: tuple[IncidentBatch, ...]
    hashed: tuple[str, ...] = ()
    wall_time: float = 0.0
    version: str = ""


def incident_path(directory: str, rank: int, step: int) -> str:
    """Returns the file of an incident below a record directory."""
    return os.path.join(directory, FOLDER, f"rank_{rank}_step_{step}.npz")


def bytes_of_incidents(directory: str) -> int:
    """Returns the size of all incident files of a record directory."""
    return sum(status.st_size for _, status in _files(os.path.join(directory, FOLDER)))


def write_incident(incident: RecordedIncident) -> int:
    """Writes an incident to its path as a whole; returns the size of the file, in bytes.

    Only the user can read it.

    Raises:
        OSError: It cannot be written.
        ValueError: An array holds objects.
    """
    names = {name: None for batch in incident.batches for name in batch.inputs}
    numbers = {name: number for number, name in enumerate(names)}
    arrays: dict[str, Array] = {
        "step": np.array(incident.step),
        "reason": np.array(incident.reason),
        "wall_time": np.array(incident.wall_time),
        "version": np.array(incident.version),
        "columns": np.array([*names], np.str_),
        "hashed": np.array([*incident.hashed], np.str_),
        "steps": np.array([batch.step for batch in incident.batches], np.int64),
        "losses": np.array([batch.loss for batch in incident.batches], np.float64),
    }
    for number, batch in enumerate(incident.batches):
        for name, array in batch.inputs.items():
            arrays[f"batch_{number}/input_{numbers[name]}"] = array
        for place, array in enumerate(batch.outputs):
            arrays[f"batch_{number}/output_{place}"] = array
    make_directory(os.path.dirname(incident.path))
    with write_atomically(incident.path, FILE_MODE) as file:
        # Not `np.savez`, which leaves an open archive behind where the disk is full.
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write_array(member, array, allow_pickle=False)
        return file.tell()


def load_incident(path: str | os.PathLike[str]) -> RecordedIncident:
    """Returns the batches that a training has kept when something broke.

    MindSpore is not needed. Nothing in the file is executed.

    Args:
        path: An incident file, or a record directory: then the incident that was written last. If
            there are several, a warning names it.

    Raises:
        SourceError: There is none, it cannot be read, it is damaged, or it is another file.
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        name = _newest(name)
    try:
        # A file that the user has named may be a link.
        with os.fdopen(open_plain(os.path.realpath(name)), "rb") as file:
            arrays = _arrays(file)
        return _incident(name, arrays)
    except Exception as error:  # a damaged file may raise anything in NumPy and `zipfile`
        received = verbatim(f"{name}: {type(error).__name__}: {error}")
        raise SourceError(three_part("the incident file", received, _EXPECTED)) from error


def _files(folder: str) -> Iterable[tuple[str, os.stat_result]]:
    """Yields the incident files of a folder, with their status; none if there is no folder."""
    with contextlib.suppress(OSError):
        refuse_link(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                    yield entry.path, status


def _newest(directory: str) -> str:
    found = sorted(_files(os.path.join(directory, FOLDER)), key=lambda each: each[1].st_mtime_ns)
    if not found:
        received = verbatim(f"{directory}, which has no {FOLDER}/rank_R_step_N.npz")
        expected = f"a record directory with incidents, or {_EXPECTED}"
        raise SourceError(three_part("the directory of incidents", received, expected))
    path = found[-1][0]
    if len(found) > 1:
        text = f"{directory} has {len(found)} incidents; this one was written last: {path}"
        warnings.warn(text, stacklevel=3)
    return path


def _arrays(file: Any) -> dict[str, Array]:
    """Returns all arrays of a file, which takes no more memory than the file has bytes."""
    size = os.fstat(file.fileno()).st_size
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        is_plain = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        check_that(is_plain, "a member", verbatim("compressed data"), "data as it is")
        total = sum(member.file_size for member in members)
        check_that(total <= size, "the size of its arrays", total, f"at most {size:,} bytes")
        for member in members:
            with archive.open(member) as data:
                array = _read_array(data, allow_pickle=False)
            arrays[member.filename.removesuffix(".npy")] = array
    return arrays


def _incident(path: str, arrays: Mapping[str, Array]) -> RecordedIncident:
    reason, version, wall_time, step, columns, hashed, steps, losses = (
        arrays[name].tolist() for name in _FACTS
    )
    inputs: list[dict[str, Array]] = [{} for _ in steps]
    outputs: list[dict[int, Array]] = [{} for _ in steps]
    for name, array in arrays.items():
        if (member := _MEMBER.fullmatch(name)) is not None:
            batch, number = int(member[1]), int(member[3])
            if member[2] == "input":
                inputs[batch][columns[number]] = array
            else:
                outputs[batch][number] = array
    batches = tuple(
        IncidentBatch(int(one), own, tuple(out[n] for n in range(len(out))), float(loss))
        for one, loss, own, out in zip(steps, losses, inputs, outputs, strict=True)
    )
    facts = (tuple(map(str, hashed)), float(wall_time), str(version))
    return RecordedIncident(path, int(step), str(reason), batches, *facts)
