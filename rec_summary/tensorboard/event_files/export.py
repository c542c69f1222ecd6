"""Exporting record directories to a TensorBoard log directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Final

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.records.reading.runs import find_runs
from rec_summary.records.remote import to_place
from rec_summary.series.options import (
    ArgumentError,
    ExportOptions,
    check_apart,
    some_matching_runs,
)
from rec_summary.series.report import ExportReport, Report
from rec_summary.tensorboard.event_files.jobs import export_in_processes, export_runs
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.targets import Names

__all__ = ["ArgumentError", "Progress", "export_tensorboard"]

Progress = Callable[[str, int, int], None]
"""Takes the progress of an export: the current run, the bytes read so far, the bytes in total."""

_PROGRESS_BYTES: Final = 1 << 20


def export_tensorboard(
    source: str | os.PathLike[str],
    logdir: str | os.PathLike[str],
    *,
    tags: str | None = None,
    runs: str | None = None,
    plugins: Sequence[str] | None = None,
    since: int | None = None,
    until: int | None = None,
    max_points: int | None = None,
    tensors: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> ExportReport:
    """Makes TensorBoard event files of MindSpore record directories.

    Every record directory in `source` becomes a TensorBoard run of the same name; if several
    ranks wrote to it, each one's values become a sub-run `rank_<n>`. Values keep their tags,
    steps and wall times. Lineage becomes a session of the HParams dashboard and a text
    `lineage`; evaluation results become scalars of the sub-run `eval`. Damaged records are
    skipped and reported. Memory is bounded by the number of different tags and by the
    largest record, not by the number of records.

    Each run directory gets one event file. Exporting again adds what is new: a cursor beside
    the event file states how far the export has come, also after an interruption. The same
    records give the same bytes. A run is exported again from the beginning, and its event file
    replaced, if the options are different, if the records are those of another training, or if
    its hyper-parameters or its final status have changed. A TensorBoard that is running may show
    that only after a restart. Event files of other writers are never changed.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory, a local one; created if it does not exist. Not inside `source`,
            nor around it. To write to a URL, use the command `rec-summary export`.
        tags: As in `ExportOptions`.
        runs: A pattern as of `fnmatch`, where `*` also matches `/`; only runs whose names
            match are exported.
        plugins: As in `ExportOptions`.
        since: As in `ExportOptions`.
        until: As in `ExportOptions`.
        max_points: As in `ExportOptions`.
        tensors: As in `ExportOptions`.
        jobs: How many processes export at the same time, each one run.
        progress: Called about once for each megabyte that was read.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: One of `logdir` and `source` is inside the other, an option is invalid,
            or no run matches `runs`.
        SourceError: There are no records, or none that can be read.
        DestinationError: `logdir` cannot be written to, another export is using it, or a
            run directory in it has event files of another writer.
    """
    source, logdir = to_place(source), os.fspath(logdir)
    options = ExportOptions(tags, plugins, since, until, max_points, tensors)
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ArgumentError(three_part("jobs", jobs, "an int of at least 1"))
    check_apart(source, logdir, "the log directory")
    found = find_runs(source)
    chosen = some_matching_runs(found, runs)
    names = Names(run.name for run in found)
    report = Report()
    total = sum(run.nbytes for run in chosen)
    has_records, shown, due = False, "", 0
    with LogDir(logdir) as destination:
        arguments = chosen, names, destination, report, options
        serial = jobs == 1 or len(chosen) == 1
        exported = export_runs(*arguments) if serial else export_in_processes(*arguments, jobs)
        with contextlib.closing(exported):
            for run, nbytes, is_readable in exported:
                has_records |= is_readable
                report.bytes_read += nbytes
                if progress is not None and (run != shown or report.bytes_read >= due):
                    shown, due = run, report.bytes_read + _PROGRESS_BYTES
                    # A live file may have grown since its size was taken.
                    progress(run, report.bytes_read, max(total, report.bytes_read))
        if progress is not None:
            progress(shown, report.bytes_read, report.bytes_read)
    result = report.result()
    if not has_records:
        raise SourceError(
            three_part(
                "the source of records",
                verbatim(f"{result.files} files without a readable record; {result.problems[0]}"),
                "at least one record",
            )
        )
    return result
