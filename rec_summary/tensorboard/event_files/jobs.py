"""Exporting runs: one after another, or several at a time, each in a process of its own."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import os
import threading
from collections.abc import Generator, Sequence

from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.targets import Names

Exported = Generator[tuple[str, int, bool], None, None]
"""A run's name, the bytes of it that were read since the last time, and whether it has records."""


def export_runs(
    runs: Sequence[Run], names: Names, logdir: LogDir, report: Report, options: ExportOptions
) -> Exported:
    """Exports runs one after another.

    Args:
        runs: The runs.
        names: Knows the names of all recorded runs.
        logdir: The log directory, entered.
        report: Counts what is exported and what is not, without the bytes read.
        options: What is exported.

    Raises:
        DestinationError: Something cannot be written.
    """
    # All places are checked first: nothing is written if one of them cannot be used.
    exporters = [(run, RunExporter(run, names, logdir, report, options)) for run in runs]
    for run, exporter in exporters:
        yield run.name, 0, exporter.has_records  # the progress shows the run before it is read
        try:
            for nbytes in exporter.update(run):
                yield run.name, nbytes, exporter.has_records
            exporter.commit()
        finally:
            exporter.close()
        yield run.name, 0, exporter.has_records


def export_in_processes(
    runs: Sequence[Run],
    names: Names,
    logdir: LogDir,
    report: Report,
    options: ExportOptions,
    jobs: int,
) -> Exported:
    """Exports runs like `export_runs`, several at a time, each in a process of its own.

    The lock of the log directory stays with this process; `jobs` processes work at the same time.

    Raises:
        DestinationError: Something cannot be written. What was written of other runs stays.
    """
    trial = copy.deepcopy(names)
    for run in runs:
        # All places are checked first: nothing is written if one of them cannot be used.
        RunExporter(run, trial, logdir, Report(), options)
    # Not forked: this process may have threads.
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(runs))
    with concurrent.futures.ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
        # The largest first: no process is left with it at the end.
        order = sorted(runs, key=lambda run: run.nbytes, reverse=True)
        tasks = {pool.submit(_export, run, names, logdir.path, options): run for run in order}
        try:
            for task in concurrent.futures.as_completed(tasks):
                part, nbytes, has_records = task.result()
                report.add(part)
                yield tasks[task].name, 0, has_records
                yield tasks[task].name, nbytes, has_records
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """Ends this process when its parent dies.

    The lock of the log directory is released when the parent dies, and the next export may begin
    at once. It must not meet another writer.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="rec_summary-parent", daemon=True).start()


def _export(run: Run, names: Names, path: str, options: ExportOptions) -> tuple[Report, int, bool]:
    """Exports one run, in a process of its own."""
    report, total, has_records = Report(), 0, False
    with LogDir(path, lock=False) as logdir:
        for _, nbytes, is_readable in export_runs([run], names, logdir, report, options):
            total += nbytes
            has_records |= is_readable
    return report, total, has_records
