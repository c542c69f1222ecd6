"""Exporting several runs at a time, each in a process of its own."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import os
import threading
from collections.abc import Sequence
from typing import Protocol

from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.targets import Names


class Meter(Protocol):
    """Told how far an export is."""

    def begin(self, run: str) -> None:
        """Takes the name of the run at hand."""

    def advance(self, nbytes: int) -> None:
        """Takes a number of bytes that were read."""


def export_in_processes(
    runs: Sequence[Run],
    names: Names,
    logdir: LogDir,
    report: Report,
    options: ExportOptions,
    jobs: int,
    meter: Meter,
) -> bool:
    """Exports runs; tells whether any has records.

    Args:
        runs: The runs.
        names: Knows the names of all recorded runs.
        logdir: The log directory, entered; its lock stays with this process.
        report: Takes everything, run after run.
        options: What is exported.
        jobs: How many processes work at the same time.
        meter: Told of each run that is complete.

    Raises:
        DestinationError: Something cannot be written. What other runs have become stays.
    """
    trial = copy.deepcopy(names)
    for run in runs:
        # Looks at each place: nothing is written if one of them cannot be used.
        RunExporter(run, trial, logdir, Report(), options)
    # Not forked: this process may have threads.
    context = multiprocessing.get_context("spawn")
    has_records = False
    workers = min(jobs, len(runs))
    with concurrent.futures.ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
        # The largest first, so that no process is left with it in the end.
        order = sorted(runs, key=lambda run: run.nbytes, reverse=True)
        tasks = {pool.submit(_export, run, names, logdir.path, options): run for run in order}
        try:
            for task in concurrent.futures.as_completed(tasks):
                part, found = task.result()
                has_records = has_records or found
                meter.begin(tasks[task].name)
                meter.advance(part.bytes_read)
                report.add(part)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return has_records


def _end_with_parent() -> None:
    """Ends this process when its parent dies.

    The lock of the log directory dies with the parent, and the next export may begin at
    once: it must not meet a writer that nobody knows of.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="rec_summary-parent", daemon=True).start()


def _export(run: Run, names: Names, path: str, options: ExportOptions) -> tuple[Report, bool]:
    """Exports one run, in a process of its own."""
    report = Report()
    with LogDir(path, lock=False) as logdir:
        exporter = RunExporter(run, names, logdir, report, options)
        try:
            report.bytes_read += sum(exporter.update(run))
            exporter.commit()
        finally:
            exporter.close()
    return report, exporter.has_records
