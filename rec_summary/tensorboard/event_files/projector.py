"""Embedding tables for TensorBoard's Projector.

    <run>/projector_config.pbtxt         what there is
    <run>/projector/<table>.bytes        little-endian float32, row after row
    <run>/projector/<table>.tsv          a label for each row

Source: `tensorboard/plugins/projector/projector_plugin.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from rec_summary.errors import ArgumentError, DestinationError, SourceError, three_part, verbatim
from rec_summary.records.files import open_plain
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.remote import Url, path_or_url
from rec_summary.series.options import ExportOptions, Selection, compiled, places_apart
from rec_summary.series.overview.choice import chosen_runs
from rec_summary.series.report import Report
from rec_summary.series.runs.values import recorded_values
from rec_summary.series.text import printable
from rec_summary.tensorboard.embedding_tables import TableRows, tables_of
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.run_names import Names
from rec_summary.values.npy import file_name

CONFIG_NAME: Final = "projector_config.pbtxt"
FOLDER: Final = "projector"
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
        runs: A pattern for `fnmatch`: only these runs.
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
    source, logdir = places_apart(source, logdir, LogDir.what)
    chosen = chosen_runs(Names().named(find_runs(source)), runs)
    lines = None if labels is None else _read_labels(os.fspath(labels))
    location = None if checkpoint is None else _followed(checkpoint)
    written: dict[str, tuple[str, ...]] = {}
    names: list[str] = []
    with contextlib.ExitStack() as stack:
        destination = None  # nothing is made before something matches
        for run in chosen:
            config = ProjectorConfig()
            recorded = functools.partial(_last_tensors, run)
            with tables_of(run, recorded, location) as tables:
                for name in tables.shapes:
                    if not wanted.search(name):
                        names.append(name)
                        continue
                    destination = destination or stack.enter_context(LogDir(logdir))
                    _write_table(destination, run.name, name, tables.read(name), lines, config)
            if destination is not None and config.embeddings:
                _check_ours(destination, run.name)
                with destination.replacing(f"{run.name}/{CONFIG_NAME}") as file:
                    file.write((_HEADING + text_format.MessageToString(config)).encode())
                written[run.name] = tuple(embedding.tensor_name for embedding in config.embeddings)
    if not written:
        present = ", ".join(printable(name) for name in names[:8]) or "no matrix at all"
        expected = f"a pattern that is found in the name of a matrix; there is: {present}"
        raise ArgumentError(three_part("the choice of embedding tables", pattern, expected))
    return written


def _followed(checkpoint: str | os.PathLike[str]) -> str:
    """Returns the place that a user means, who may give a link to it."""
    location = path_or_url(checkpoint)
    return location if isinstance(location, Url) else os.path.realpath(location)


def _last_tensors(run: Run) -> dict[str, Any]:
    values = recorded_values(run, ["tensor"], Selection(ExportOptions()), Report())
    return {value.recorded.tag: value.recorded.value.tensor for value in values}


def _read_labels(path: str) -> list[str]:
    try:
        # A title may have separators of Unicode, which `str.splitlines` takes for ends of lines.
        with open(path, encoding="utf-8-sig") as file:
            return [line.removesuffix("\n") for line in file]
    except (OSError, UnicodeDecodeError) as error:
        received = verbatim(f"{printable(path)}: {error}")
        raise SourceError(three_part("the file of labels", received, "a text file")) from error


def _write_table(
    logdir: LogDir,
    run: str,
    name: str,
    table: TableRows,
    labels: Sequence[str] | None,
    config: Any,
) -> None:
    """Writes a table and its labels, and adds it to the configuration."""
    lines = _labels(name, table.rows.tolist(), table.total, labels)
    path = f"{FOLDER}/{file_name(name, 0).removesuffix('_0.npy')}"
    with logdir.replacing(f"{run}/{path}.bytes") as file:
        file.write(table.values.tobytes())
    with logdir.replacing(f"{run}/{path}.tsv") as file:
        file.writelines(f"{line}\n".encode() for line in lines)
    config.embeddings.add(
        tensor_name=name,
        tensor_shape=table.values.shape,
        tensor_path=f"{path}.bytes",
        metadata_path=f"{path}.tsv",
    )


def _labels(name: str, rows: list[int], count: int, labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        return [str(row) for row in rows]
    header = 1 if labels and "\t" in labels[0] else 0
    if len(labels) - header != count:
        expected = f"as many as {printable(name)} has rows, which is {count}"
        raise ArgumentError(three_part("the number of labels", len(labels) - header, expected))
    return [*labels[:header], *(labels[header + row] for row in rows)]


def _check_ours(logdir: LogDir, run: str) -> None:
    """Makes sure that a run has no configuration of another writer."""
    heading = _HEADING.encode()
    with logdir.opened(run) as directory, contextlib.suppress(FileNotFoundError):
        fd = open_plain(CONFIG_NAME, dir_fd=directory)
        with os.fdopen(fd, "rb") as file:
            if file.read(len(heading)) == heading:
                return
        raise DestinationError(
            three_part(
                f"the run directory {printable(os.path.join(logdir.path, run))}",
                verbatim(f"a {CONFIG_NAME} of another writer"),
                "a run directory without that file, or with one of ours: move that file away",
            )
        )
