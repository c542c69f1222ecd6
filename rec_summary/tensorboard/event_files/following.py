"""Keeping what is exported of a tree of runs up to date while trainings write their records."""

from __future__ import annotations

import dataclasses
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from rec_summary.errors import DestinationError
from rec_summary.records.reading.runs import Run
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.options import matching_runs
from rec_summary.series.report import Report
from rec_summary.series.text import printable
from rec_summary.tensorboard.event_files.run_exporter import RunExporter

INTERVAL_SECS: Final = 0.25
COMMIT_SECS: Final = 5.0  # from something new to the commit of an exporter
RETRY_SECS: Final = 10.0  # from a failure of a run to the next try


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


@dataclass(eq=False)
class Follower:
    """The exporters of all runs; each is updated when its records have grown.

    Attributes:
        poller: Finds the runs.
        opened: Returns the exporter of a run; raises DestinationError.
        report: Takes problems and notes.
        stop: A long update ends when it is set.
        named: Returns the name that a new run is exported under.
        pattern: A pattern for `fnmatch`: only runs whose name matches.
        committed: Called after exporters were committed.
        clock: Returns the monotonic time.
    """

    poller: RunPoller
    opened: Callable[[Run], RunExporter]
    report: Report
    stop: threading.Event
    _: KW_ONLY
    named: Callable[[str], str] = lambda name: name
    pattern: str | None = None
    committed: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _interrupted: bool = field(default=False, init=False)
    _followed: dict[str, _Followed] = field(default_factory=dict, init=False)  # by path

    def run(self, interval: float, reported: Callable[[Report], None] | None = None) -> None:
        """Exports until it is stopped, and everything for the last time.

        Args:
            interval: How long to wait between two polls, in seconds.
            reported: Called with the report so far after each poll that exported something.
        """
        try:
            while not self.stop.is_set():
                if self.poll() and reported is not None:
                    reported(self.report)
                self.stop.wait(interval)
            self.finish()
        finally:
            self.close()

    def poll(self) -> bool:
        """Exports what is new; returns whether there was anything new."""
        now = self.clock()
        changed = self._chosen(self.poller.poll())
        paths = {run.path for run in changed}
        again = [followed.run for followed in self._followed.values() if followed.retry_at <= now]
        for run in (*changed, *(run for run in again if run.path not in paths)):
            self._update(run, final=False)
        self._commit_until(now)
        return bool(changed)

    def finish(self) -> None:
        """Exports everything for the last time, unless a long update was interrupted."""
        if self._interrupted:
            return  # in the middle of a run: the next export completes it
        # Stopped before the first poll, it knows none of the runs that the poller has found.
        for run in self._chosen(self.poller.runs()):
            self._update(run, final=True)
        self._commit_until(sys.float_info.max)

    def close(self) -> None:
        """Closes all files."""
        for followed in self._followed.values():
            if followed.exporter is not None:
                followed.exporter.close()

    def _chosen(self, runs: list[Run]) -> list[Run]:
        """Names the runs that are new, and returns those that are exported."""
        # First of all, so that no sub-run gets the name of a run.
        for run in runs:
            if run.path not in self._followed:
                name = self.named(run.name)
                self._followed[run.path] = _Followed(dataclasses.replace(run, name=name))
        return matching_runs(runs, self.pattern)

    def _update(self, run: Run, *, final: bool) -> None:
        if self._interrupted:
            return
        followed = self._followed[run.path]
        followed.run = run = dataclasses.replace(run, name=followed.run.name)
        try:
            if followed.exporter is None:
                followed.exporter = self.opened(run)
            for _ in followed.exporter.update(run, final=final):
                if not final and self.stop.is_set():
                    self._interrupted = True
                    break
        except DestinationError as error:
            self._fail(followed, error)
            return
        if followed.exporter.is_waiting:
            self.poller.again(run)
        if followed.retry_at < math.inf:
            followed.retry_at = math.inf
            self.report.note(f"run {printable(run.name)}: can be written again")
        followed.commit_at = min(followed.commit_at, self.clock() + COMMIT_SECS)

    def _commit_until(self, now: float) -> None:
        """Commits the exporters that are due by now."""
        due = [followed for followed in self._followed.values() if followed.commit_at <= now]
        for followed in due:
            followed.commit_at = math.inf
            assert followed.exporter is not None  # a failure leaves nothing to commit
            try:
                followed.exporter.commit()
            except DestinationError as error:
                self._fail(followed, error)
        if due:
            self.committed()

    def _fail(self, followed: _Followed, error: DestinationError) -> None:
        """Drops the exporter of a run: the next try continues from its cursor."""
        if followed.retry_at == math.inf:
            what = f"the run cannot be written, and is tried again: {error}"
            self.report.problem(followed.run.path, 0, what)
        followed.retry_at = self.clock() + RETRY_SECS
        if followed.exporter is not None:
            followed.exporter.close()
        followed.exporter, followed.commit_at = None, math.inf
