"""Embedding tables for TensorBoard's Projector.

    <run>/projector_config.pbtxt         what there is
    <run>/projector/<table>.bytes        little-endian float32, row after row
    <run>/projector/<table>.tsv          a label for each row

Source: `tensorboard/plugins/projector/projector_plugin.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from rec_summary.errors import DestinationError, SourceError, three_part, verbatim
from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from rec_summary.records.files import open_plain, write_atomically
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.remote import Url, list_tree, to_place
from rec_summary.series.options import (
    ArgumentError,
    ExportOptions,
    Selection,
    check_apart,
    compiled,
    some_matching_runs,
)
from rec_summary.series.report import Report
from rec_summary.series.text import printable, reason
from rec_summary.series.values import recorded_values
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.values.npy import file_name
from rec_summary.values.tensor import from_tensor

Floats = npt.NDArray[np.float32]

CONFIG_NAME: Final = "projector_config.pbtxt"
FOLDER: Final = "projector"
CHECKPOINT_FOLDER: Final = "ckpt_dir"
MOST_ROWS: Final = 100_000  # the page asks for no more
_HEADING: Final = "# Written by rec-summary; it is replaced by the next export.\n"


def export_projector(
    source: str | os.PathLike[str],
    logdir: str | os.PathLike[str],
    pattern: str,
    *,
    runs: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Writes embedding tables of runs for the Projector.

    They are the matrices of the newest checkpoint in a run's `ckpt_dir`, or, where there is
    none, the last values of recorded tensors. Of a table with more than 100,000 rows, rows
    at even distances are taken; rows with NaN or infinities are left out.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory that the runs have been exported to.
        pattern: A regular expression that is found in the names of the tables wanted.
        runs: A pattern as of `fnmatch`: only these runs.
        checkpoint: A checkpoint to take the tables of all these runs from.
        labels: A file with a line for each row of a table: a label, or several columns with
            tabs between them and a line of names in front. By default, rows are labelled
            with their numbers.

    Returns:
        The names of the tables by run.

    Raises:
        ArgumentError: An argument is invalid, nothing matches, or the numbers of labels and rows
            are different.
        SourceError: There are no records, or a file cannot be read.
        DestinationError: Something cannot be written.
    """
    wanted = compiled(pattern, "the choice of embedding tables")
    source, logdir = to_place(source), os.fspath(logdir)
    check_apart(source, logdir, "the log directory")
    chosen = some_matching_runs(find_runs(source), runs)
    lines = None if labels is None else _read_labels(os.fspath(labels))
    written: dict[str, tuple[str, ...]] = {}
    seen: list[str] = []
    with contextlib.ExitStack() as stack:
        destination = None  # nothing is made before something matches
        for run in chosen:
            config = ProjectorConfig()
            for name, table in _tables(run, wanted, checkpoint, seen):
                destination = destination or stack.enter_context(LogDir(logdir))
                _write_table(destination, run.name, name, table, lines, config)
            if destination is not None and config.embeddings:
                _write_config(destination, run.name, config)
                written[run.name] = tuple(each.tensor_name for each in config.embeddings)
    if not written:
        found = ", ".join(printable(name) for name in seen[:8]) or "no matrix at all"
        expected = f"a pattern that is found in the name of a matrix; there is: {found}"
        raise ArgumentError(three_part("the choice of embedding tables", pattern, expected))
    return written


def _tables(
    run: Run, wanted: re.Pattern[str], checkpoint: Any, seen: list[str]
) -> Iterator[tuple[str, Floats]]:
    """Yields names and tables of a run; names that do not match are added to `seen`."""
    path = _newest_checkpoint(run) if checkpoint is None else _given(checkpoint)
    if path is None:
        yield from _recorded_tables(run, wanted, seen)
        return
    try:
        with CheckpointFile(path) as file:
            for name in file.names:
                if len(file.shape(name)) != 2 or 0 in file.shape(name):
                    continue
                if not wanted.search(name):
                    seen.append(name)
                    continue
                yield name, file.array(name).astype("<f4")
    except (OSError, MemoryError) as error:
        why = getattr(error, "strerror", None) or reason(error)
        received = verbatim(f"{printable(path)}: {why}")
        raise SourceError(three_part("the checkpoint", received, "a readable file")) from error
    except CheckpointError as error:
        raise SourceError(str(error)) from error


def _given(checkpoint: str | os.PathLike[str]) -> str:
    place = to_place(checkpoint)
    return place if isinstance(place, Url) else os.path.realpath(place)


def _newest_checkpoint(run: Run) -> str | None:
    """Returns the checkpoint that was written last; links out of the run are not followed."""
    if isinstance(run.path, Url):
        files = list_tree(run.path.child(CHECKPOINT_FOLDER))
        checkpoints = [each for each in files if each.url.endswith(".ckpt")]
        return max(checkpoints, key=lambda each: each.modified).url if checkpoints else None
    folder = os.path.join(run.path, CHECKPOINT_FOLDER)
    found = []
    if os.path.islink(folder):
        return None
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".ckpt") and entry.is_file(follow_symlinks=False):
                found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
    return max(found)[1] if found else None


def _recorded_tables(
    run: Run, wanted: re.Pattern[str], seen: list[str]
) -> Iterator[tuple[str, Floats]]:
    last: dict[str, Any] = {}
    for value in recorded_values(run, ["tensor"], Selection(ExportOptions()), Report()):
        tag, tensor = value.recorded.tag, value.recorded.value.tensor
        if len(tensor.dims) != 2:
            continue
        if wanted.search(tag):
            last[tag] = tensor
        elif tag not in seen:
            seen.append(tag)
    for tag, tensor in last.items():
        with contextlib.suppress(ValueError):
            table = from_tensor(tensor)
            if table.size:
                yield tag, table.astype("<f4")


def _read_labels(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        received = verbatim(f"{printable(path)}: {error}")
        raise SourceError(three_part("the file of labels", received, "a text file")) from error


def _write_table(
    logdir: LogDir,
    run: str,
    name: str,
    table: Floats,
    labels: Sequence[str] | None,
    config: Any,
) -> None:
    """Writes a table and its labels, and adds it to the configuration."""
    rows = np.flatnonzero(np.isfinite(table).all(axis=1))
    if len(rows) > MOST_ROWS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_ROWS).astype(np.intp)]
    chosen = table[rows]
    lines = _labels(name, rows, len(table), labels)
    base = file_name(name, 0).removesuffix("_0.npy")
    files = {
        f"{base}.bytes": np.ascontiguousarray(chosen).tobytes(),
        f"{base}.tsv": "".join(f"{line}\n" for line in lines).encode(),
    }
    with logdir.made(f"{run}/{FOLDER}") as directory:
        for file, data in files.items():
            with write_atomically(file, dir_fd=directory) as out:
                out.write(data)
    config.embeddings.add(
        tensor_name=name,
        tensor_shape=chosen.shape,
        tensor_path=f"{FOLDER}/{base}.bytes",
        metadata_path=f"{FOLDER}/{base}.tsv",
    )


def _labels(
    name: str, rows: npt.NDArray[np.intp], count: int, labels: Sequence[str] | None
) -> list[str]:
    if labels is None:
        return [str(row) for row in rows.tolist()]
    has_header = bool(labels) and "\t" in labels[0]
    heading, body = (list(labels[:1]), labels[1:]) if has_header else ([], labels)
    if len(body) != count:
        expected = f"as many as {printable(name)} has rows, which is {count}"
        raise ArgumentError(three_part("the number of labels", len(body), expected))
    return [*heading, *(body[row] for row in rows.tolist())]


def _write_config(logdir: LogDir, run: str, config: Any) -> None:
    data = (_HEADING + text_format.MessageToString(config)).encode()
    with logdir.made(run) as directory:
        _check_ours(directory, os.path.join(logdir.path, run))
        with write_atomically(CONFIG_NAME, dir_fd=directory) as out:
            out.write(data)


def _check_ours(directory: int, path: str) -> None:
    try:
        fd = open_plain(CONFIG_NAME, dir_fd=directory)
    except FileNotFoundError:
        return
    with os.fdopen(fd, "rb") as file:
        if file.read(len(_HEADING)) == _HEADING.encode():
            return
    raise DestinationError(
        three_part(
            f"the run directory {printable(path)}",
            verbatim(f"a {CONFIG_NAME} of another writer"),
            "one that is not there yet, or is ours: move that file away",
        )
    )
