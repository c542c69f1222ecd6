"""Keeping a log directory up to date while trainings write their records."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from rec_summary.errors import DestinationError, three_part
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ArgumentError, ExportOptions, check_apart, matching_runs
from rec_summary.series.report import ExportReport, Tally
from rec_summary.series.run_poller import Watch
from rec_summary.series.words import printable
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExport
from rec_summary.tensorboard.event_files.targets import Names

INTERVAL_SECS: Final = 0.25
_COMMIT_SECS: Final = 5.0
_RETRY_SECS: Final = 10.0

Told = Callable[[ExportReport], None]
"""Told what has been done so far, each time that something was."""


def follow_tensorboard(
    source: str | os.PathLike[str],
    logdir: str | os.PathLike[str],
    *,
    stop: threading.Event,
    options: ExportOptions | None = None,
    runs: str | None = None,
    interval: float = INTERVAL_SECS,
    told: Told | None = None,
) -> ExportReport:
    """Exports like `export_tensorboard`, and goes on with whatever is written, until stopped.

    A record is in the event file at most `interval` seconds, and the time to read and
    write it, after it was flushed. Runs, ranks and files that turn up later are taken in;
    the source need not exist yet. A run that cannot be written is told, and tried again.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory; made if need be. Not inside `source`, nor around it.
        stop: To be set when it shall end: everything is then brought to an end, and noted
            down for a later export.
        options: What is exported; it cannot be thinned, since nobody knows how much comes.
        runs: As in `export_tensorboard`.
        interval: How long to rest between two looks, in seconds.
        told: Told what was done so far.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: `logdir` and `source` lie inside each other, or an option cannot be
            meant.
        DestinationError: `logdir` cannot be written to, or another export is using it.
    """
    source, logdir = os.fspath(source), os.fspath(logdir)
    options = options or ExportOptions()
    if not options.resumable:
        expected = "None: a series that still grows cannot be thinned"
        raise ArgumentError(three_part("max_points", options.max_points, expected))
    check_apart(source, logdir, "the log directory")
    with LogDir(logdir) as destination:
        follower = _Follower(source, destination, options, runs, stop)
        try:
            while not stop.is_set():
                if follower.look() and told is not None:
                    told(follower.tally.report())
                stop.wait(interval)
            follower.finish()
        except _Stopped:
            pass  # in the middle of a run: the next export completes it
        finally:
            follower.close()
    return follower.tally.report()


class _Stopped(Exception):
    """It shall end while there is still a lot to read."""


class _Follower:
    """The exports of all runs, each brought up to date when its records have grown."""

    def __init__(
        self,
        source: str,
        logdir: LogDir,
        options: ExportOptions,
        pattern: str | None,
        stop: threading.Event,
    ) -> None:
        self.tally = Tally()
        self._watch = Watch(source)
        self._logdir = logdir
        self._options = options
        self._pattern = pattern
        self._stop = stop
        self._finishing = False
        self._names: Names | None = None
        self._exports: dict[str, RunExport] = {}  # by the paths of runs
        self._called: dict[str, str] = {}  # the names of runs, by their paths
        self._uncommitted: dict[str, float] = {}  # when to note down how far a run has come
        self._failed: dict[str, tuple[Run, float]] = {}  # when to try a run again

    def look(self) -> bool:
        """Exports what is new; tells whether there was anything."""
        now = time.monotonic()
        changed = matching_runs(self._watch.look(), self._pattern)
        if self._names is None and changed:
            self._names = Names(run.name for run in self._watch.all())
        again = [run for run, due in self._failed.values() if due <= now]
        paths = {run.path for run in changed}
        for run in (*changed, *(run for run in again if run.path not in paths)):
            self._update(run, final=False)
        for path, due in list(self._uncommitted.items()):
            if due <= now:
                self._commit(path)
        return bool(changed)

    def finish(self) -> None:
        """Brings everything up to date for the last time."""
        self._finishing = True
        for run in matching_runs(self._watch.all(), self._pattern):
            self._update(run, final=True)
        for path in list(self._uncommitted):
            self._commit(path)

    def close(self) -> None:
        """Closes all files."""
        for export in self._exports.values():
            export.close()

    def _update(self, run: Run, *, final: bool) -> None:
        assert self._names is not None  # a look came before
        try:
            export = self._exports.get(run.path)
            if export is None:
                self._called.setdefault(run.path, self._names.claim_run(run.name))
                run = dataclasses.replace(run, name=self._called[run.path])
                export = self._exports[run.path] = RunExport(
                    run, self._names, self._logdir, self.tally, self._options, self._advance
                )
            export.update(dataclasses.replace(run, name=self._called[run.path]), final=final)
        except DestinationError as error:
            self._fail(run, error)
            return
        if self._failed.pop(run.path, None) is not None:
            self.tally.note(f"run {printable(run.name)}: can be written again")
        self._uncommitted.setdefault(run.path, time.monotonic() + _COMMIT_SECS)

    def _commit(self, path: str) -> None:
        del self._uncommitted[path]
        export = self._exports.get(path)
        if export is None:
            return
        try:
            export.commit()
        except DestinationError as error:
            self.tally.note(f"how far the export has come cannot be noted down: {error}")

    def _fail(self, run: Run, error: DestinationError) -> None:
        """Gives up what is known of a run: the next try goes on from its cursor."""
        if run.path not in self._failed:
            self.tally.problem(
                run.path, 0, f"the run cannot be written, and is tried again: {error}"
            )
        self._failed[run.path] = (run, time.monotonic() + _RETRY_SECS)
        self._uncommitted.pop(run.path, None)
        export = self._exports.pop(run.path, None)
        if export is not None:
            export.close()

    def _advance(self, nbytes: int) -> None:
        self.tally.bytes_read += nbytes
        if self._stop.is_set() and not self._finishing:
            raise _Stopped
