"""Exporting record directories to a TensorBoard log directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.series.options import (
    ArgumentError,
    ExportOptions,
    check_apart,
    some_matching_runs,
)
from rec_summary.series.report import ExportReport, Report
from rec_summary.tensorboard.event_files.jobs import export_in_processes
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.targets import Names

__all__ = ["ArgumentError", "Progress", "export_tensorboard"]

Progress = Callable[[str, int, int], None]
"""Told how far an export is: the run at hand, the bytes read so far, the bytes in all."""

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
    `lineage`; evaluation results become scalars of the sub-run `eval`. What is damaged is
    skipped and reported. Memory is bounded by the number of different tags and by the
    largest record, not by the number of records.

    Each run directory gets one event file. Exporting again adds what is new: a cursor
    beside the event file says how far the export has come, also one that was interrupted.
    The same records give the same bytes. A run is exported anew, and its event file
    replaced, if other options were in force, if the records are those of another training,
    or if its hyper-parameters or its end turn out to be different; a TensorBoard that is
    running may notice that only after a restart. Event files of others are never touched.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory; made if need be. Not inside `source`, nor around it.
        tags: As in `ExportOptions`.
        runs: A pattern as of `fnmatch`, where `*` also matches `/`; only runs whose name
            matches are exported.
        plugins: As in `ExportOptions`.
        since: As in `ExportOptions`.
        until: As in `ExportOptions`.
        max_points: As in `ExportOptions`.
        tensors: As in `ExportOptions`.
        jobs: How many processes work at the same time, each at a run of its own.
        progress: Told how far the export is, about once for each megabyte.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: `logdir` and `source` lie inside each other, an option cannot be
            meant, or no run matches `runs`.
        SourceError: There are no records, or none that can be read.
        DestinationError: `logdir` cannot be written to, another export is using it, or a
            run directory in it holds event files of another writer.
    """
    source, logdir = os.fspath(source), os.fspath(logdir)
    options = ExportOptions(tags, plugins, since, until, max_points, tensors)
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ArgumentError(three_part("jobs", jobs, "an int of at least 1"))
    check_apart(source, logdir, "the log directory")
    found = find_runs(source)
    chosen = some_matching_runs(found, runs)
    names = Names(run.name for run in found)
    report = Report()
    meter = _Meter(sum(run.nbytes for run in chosen), progress)
    with LogDir(logdir) as destination:
        if jobs == 1 or len(chosen) == 1:
            has_records = _export_here(chosen, names, destination, report, options, meter)
        else:
            has_records = export_in_processes(
                chosen, names, destination, report, options, jobs, meter
            )
        meter.end()
    report.bytes_read = meter.done
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


def _export_here(
    runs: Iterable[Run],
    names: Names,
    logdir: LogDir,
    report: Report,
    options: ExportOptions,
    meter: _Meter,
) -> bool:
    """Exports run after run; tells whether any has records."""
    # All are looked at first: nothing is written if one of them cannot be.
    exporters = [(run, RunExporter(run, names, logdir, report, options)) for run in runs]
    for run, exporter in exporters:
        meter.begin(run.name)
        try:
            for nbytes in exporter.update(run):
                meter.advance(nbytes)
            exporter.commit()
        finally:
            exporter.close()
    return any(exporter.has_records for _, exporter in exporters)


class _Meter:
    """Counts bytes, and reports them now and then."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done = 0
        self._total = total
        self._progress = progress
        self._run = ""
        self._next = 0

    def begin(self, run: str) -> None:
        self._run = run
        self._report()

    def advance(self, nbytes: int) -> None:
        self.done += nbytes
        if self.done >= self._next:
            self._report()

    def end(self) -> None:
        """Reports the end, whatever could not be read."""
        self._total = self.done
        self._report()

    def _report(self) -> None:
        self._next = self.done + _PROGRESS_BYTES
        if self._progress is not None:
            # A live file may have grown since its size was taken.
            self._progress(self._run, self.done, max(self._total, self.done))
