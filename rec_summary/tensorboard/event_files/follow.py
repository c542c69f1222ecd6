"""Keeping a log directory up to date while trainings write their records."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from rec_summary.errors import DestinationError, three_part
from rec_summary.records.reading.runs import Run
from rec_summary.records.remote import to_place
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.exports.following import INTERVAL_SECS, Follower
from rec_summary.series.options import ArgumentError, ExportOptions, Selection, check_apart
from rec_summary.series.report import ExportReport, Report
from rec_summary.tensorboard.event_files.experiment import ExperimentFile
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.targets import Destination
from rec_summary.tensorboard.outputs import Names


def follow_tensorboard(
    source: str | os.PathLike[str],
    logdir: str | os.PathLike[str],
    *,
    stop: threading.Event,
    options: ExportOptions | None = None,
    runs: str | None = None,
    interval: float = INTERVAL_SECS,
    reported: Callable[[ExportReport], None] | None = None,
    poller: RunPoller | None = None,
) -> ExportReport:
    """Exports like `export_tensorboard`, and continues with new records until stopped.

    A record is in the event file at most `interval` seconds, and the time to read and
    write it, after it was flushed. New runs, ranks and files are exported
    too; the source need not exist yet. A run that cannot be written is reported, and tried
    again.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory, a local one; created if it does not exist. Not inside `source`,
            nor around it. To write to a URL, use the command `rec-summary export --follow`.
        stop: Set it to end: everything is then exported for the last time, and the cursors
            are saved for a later export.
        options: What is exported; `max_points` is not allowed, since a series that still grows
            cannot be downsampled.
        runs: As in `export_tensorboard`.
        interval: How long to wait between two polls, in seconds.
        reported: Called with the report so far after each poll that exported something.
        poller: What finds the runs, if they have been listed before.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: `logdir` and `source` lie inside each other, or an option is invalid.
        DestinationError: `logdir` cannot be written to, or another export is using it.
    """
    source, logdir = to_place(source), os.fspath(logdir)
    options = options or ExportOptions()
    if not options.resumable:
        expected = "None: a series that still grows cannot be downsampled"
        raise ArgumentError(three_part("max_points", options.max_points, expected))
    check_apart(source, logdir, "the log directory")
    with LogDir(logdir) as entered:
        destination = Destination(Names(selection=Selection(options)), entered, Report(), options)
        report, experiment = destination.report, ExperimentFile(entered)

        def announced(names: list[str]) -> None:
            with contextlib.suppress(DestinationError):  # those of others: `opened` says so
                entered.claim(names)

        def opened(run: Run) -> RunExporter:
            entered.claim([run.name])
            return RunExporter(run, destination)

        def describe() -> None:
            try:
                experiment.update()
            except DestinationError as error:
                report.note(f"the description of the experiment cannot be saved: {error}")

        follower = Follower(
            RunPoller(source) if poller is None else poller,
            opened,
            report,
            stop,
            named=destination.names.claim_run,
            announced=announced,
            pattern=runs,
            committed=describe,
        )
        follower.run(interval, reported)
    return report.result()
