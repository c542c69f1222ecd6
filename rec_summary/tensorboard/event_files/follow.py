"""Keeping a log directory up to date while trainings write their records."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rec_summary.errors import DestinationError, three_part
from rec_summary.records.reading.runs import Run
from rec_summary.records.remote import to_place
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.options import ArgumentError, ExportOptions, check_apart, matching_runs
from rec_summary.series.report import ExportReport, Report
from rec_summary.series.text import printable
from rec_summary.tensorboard.event_files.experiment import ExperimentFile
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.targets import Destination
from rec_summary.tensorboard.outputs import Names

INTERVAL_SECS: Final = 0.25
_COMMIT_SECS: Final = 5.0
_RETRY_SECS: Final = 10.0


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
        poller: What finds the runs of `source`, if it has looked for them already.

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
        destination = Destination(Names(), entered, Report(), options)
        poller = RunPoller(source) if poller is None else poller
        follower = _Follower(poller, destination, runs, stop)
        try:
            while not stop.is_set():
                if follower.poll() and reported is not None:
                    reported(destination.report.result())
                stop.wait(interval)
            follower.finish()
        finally:
            follower.close()
    return destination.report.result()


@dataclass
class _Followed:
    """A run and its exporter.

    Attributes:
        run: The run at the last poll. If it was found late, its name may differ from that of its
            directory.
        exporter: Its exporter; None after a failure.
        commit_at: When to save its cursor, by the monotonic clock; infinite if nothing is new.
        retry_at: When to try it again after a failure; infinite if there was none.
    """

    run: Run
    exporter: RunExporter | None = None
    commit_at: float = math.inf
    retry_at: float = math.inf


class _Follower:
    """The exporters of all runs; each is updated when its records have grown."""

    def __init__(
        self,
        poller: RunPoller,
        destination: Destination,
        pattern: str | None,
        stop: threading.Event,
    ) -> None:
        self._watch = poller
        self._destination = destination
        self._experiment = ExperimentFile(destination.logdir)
        self._pattern = pattern
        self._stop = stop
        self._interrupted = False
        self._followed: dict[str, _Followed] = {}  # by the paths of runs

    def poll(self) -> bool:
        """Exports what is new; returns whether there was anything new."""
        now = time.monotonic()
        changed = self._watch.poll()
        # First of all, so that no sub-run gets the name of a run.
        for run in changed:
            if run.path not in self._followed:
                name = self._destination.names.claim_run(run.name)
                self._followed[run.path] = _Followed(dataclasses.replace(run, name=name))
        changed = matching_runs(changed, self._pattern)
        paths = {run.path for run in changed}
        again = [each.run for each in self._followed.values() if each.retry_at <= now]
        for run in (*changed, *(run for run in again if run.path not in paths)):
            self._update(run, final=False)
        self._commit_until(now)
        return bool(changed)

    def finish(self) -> None:
        """Exports everything for the last time, unless a long update was interrupted."""
        if self._interrupted:
            return  # in the middle of a run: the next export completes it
        for run in matching_runs(self._watch.runs(), self._pattern):
            self._update(run, final=True)
        self._commit_until(sys.float_info.max)

    def close(self) -> None:
        """Closes all files."""
        for followed in self._followed.values():
            if followed.exporter is not None:
                followed.exporter.close()

    def _update(self, run: Run, *, final: bool) -> None:
        if self._interrupted:
            return
        report, followed = self._destination.report, self._followed[run.path]
        followed.run = run = dataclasses.replace(run, name=followed.run.name)
        try:
            if followed.exporter is None:
                followed.exporter = RunExporter(run, self._destination)
            for _ in followed.exporter.update(run, final=final):
                if not final and self._stop.is_set():
                    self._interrupted = True
                    break
        except DestinationError as error:
            self._fail(followed, error)
            return
        if followed.exporter.is_waiting:
            self._watch.again(run)
        if followed.retry_at < math.inf:
            followed.retry_at = math.inf
            report.note(f"run {printable(run.name)}: can be written again")
        followed.commit_at = min(followed.commit_at, time.monotonic() + _COMMIT_SECS)

    def _commit_until(self, now: float) -> None:
        """Saves the cursors that are due by now, and then the description of the experiment."""
        due = [each for each in self._followed.values() if each.commit_at <= now]
        for followed in due:
            followed.commit_at = math.inf
            with self._noted("the cursor"):
                if followed.exporter is not None:
                    followed.exporter.commit()
        if due:
            with self._noted("the description of the experiment"):
                self._experiment.update()

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        try:
            yield
        except DestinationError as error:
            self._destination.report.note(f"{what} cannot be saved: {error}")

    def _fail(self, followed: _Followed, error: DestinationError) -> None:
        """Drops the exporter of a run: the next try continues from its cursor."""
        if followed.retry_at == math.inf:
            what = f"the run cannot be written, and is tried again: {error}"
            self._destination.report.problem(followed.run.path, 0, what)
        followed.retry_at = time.monotonic() + _RETRY_SECS
        followed.commit_at = math.inf
        if followed.exporter is not None:
            followed.exporter.close()
        followed.exporter = None
