"""Watching a tree of records: what is written is judged by the rules soon afterwards."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts.last_values import LastValues, WatchReport
from rec_summary.alerts.quality import damage_of
from rec_summary.alerts.rules import ERRORS, QualityChange, Rule
from rec_summary.alerts.states import AlertStates, Damage, NewData, Transition
from rec_summary.records.failures import NO_GRAPH
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.records.remote import Url
from rec_summary.series.batch import (
    SCALAR,
    SUMMARY,
    Batch,
    Columns,
    Record,
    concatenated,
    rows_of,
)
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.limits import MOST_SERIES
from rec_summary.series.new_records import PATIENCE_SECS, NewRecords
from rec_summary.series.options import ExportOptions, Selection, Since, matching_runs
from rec_summary.series.report import Problem, Report
from rec_summary.series.text import valid
from rec_summary.values import slice_sums

INTERVAL_SECS: Final = 1.0
_LONG_SECS: Final = 1.0  # reading for longer than this, something may have been written meanwhile
_RECENT_SECS: Final = 86_400.0  # a run that has written nothing for so long is left alone
_OVER: Final = frozenset((RunState.FINISHED, RunState.STOPPED, RunState.FAILED))
_QUALITY_SHARE: Final = 0.1  # of the time, at most, in which runs are asked why
_JOINED: Final = 4096  # records that are judged together
_NOTHING: Final = concatenated([])  # no scalars


EVERYTHING: Final = Since()


Judge = Callable[..., Damage | None]


class Clock(Protocol):
    """The real time and one that never jumps, as the module `time` has them."""

    def time(self) -> float:
        """Returns the seconds since the epoch."""

    def monotonic(self) -> float:
        """Returns seconds that only grow."""


def watch(
    source: str | os.PathLike[str],
    rules: Sequence[Rule],
    *,
    stop: threading.Event,
    once: bool = False,
    history: bool = False,
    since: Since | None = EVERYTHING,
    runs: str | None = None,
    interval: float = INTERVAL_SECS,
    values: LastValues | None = None,
    poller: RunPoller | None = None,
    patience: float = PATIENCE_SECS,
    clock: Clock = time,
    judge: Judge = damage_of,
) -> Iterator[Transition | Problem | WatchReport]:
    """Judges the records of a source, and whatever is written there, until stopped.

    Of the records that are there at the start, only alerts that still fire are reported, unless
    `history` asks for all of them. From then on each beginning and each end is reported, once.

    Args:
        source: A record directory, or a tree of them; it need not exist yet.
        rules: What alerts are raised for.
        stop: Set it to end the watch.
        once: Whether to end when everything that is there has been judged.
        history: Whether alerts of the past are reported as well.
        since: From where on records are judged; None means that values that are there at the
            start are not judged. Only the end of a run, or its silence, is then noticed.
        runs: A pattern for `fnmatch`: only these runs.
        interval: How long to wait between two polls, in seconds.
        values: Takes everything that is read, and the alerts; None for nothing.
        poller: What finds the runs of `source`, if it has looked for them already.
        patience: How long damage may be a write in progress, in seconds; with `once`, none is.
        clock: What tells the time.
        judge: As `quality.damage_of`.

    Yields:
        Transitions of alerts and problems as they come, and a report when everything that was
        there at the start has been judged; without `once`, another one after each poll and at the
        end.
    """
    patience = 0.0 if once else patience
    poller = RunPoller(os.fspath(source)) if poller is None else poller
    watcher = _Watcher(poller, rules, since, runs, stop, patience, values, clock, judge)
    for transition in watcher.catch_up(past=history, once=once):
        if history:
            yield transition
    yield from watcher.new_problems()
    if not history:
        yield from sorted(watcher.alerts.firing(), key=lambda edge: edge.wall_time)
    yield watcher.report()
    while not once and not stop.wait(interval):
        yield from watcher.poll()
        yield from watcher.new_problems()
        yield watcher.report()
    if not once:
        yield watcher.report()


class _Watcher:
    """The runs of a source, and the rules that judge them."""

    def __init__(
        self,
        poller: RunPoller,
        rules: Sequence[Rule],
        since: Since | None,
        pattern: str | None,
        stop: threading.Event,
        patience: float,
        values: LastValues | None,
        clock: Clock,
        judge: Judge,
    ) -> None:
        self._judge = judge
        self.alerts = AlertStates(rules)
        self._poller = poller
        self._clock, self._offset = clock, clock.time() - clock.monotonic()
        self._skips = since is None
        self._pattern = pattern
        self._stop = stop
        self._patience = patience
        self._values = values
        tags = self.alerts.tags if values is None else None
        since = since or Since(wall_time=self._now() - _RECENT_SECS)
        self._selection = Selection(ExportOptions(tags=tags, since=since))
        self._report = Report()
        self._reported = 0  # problems
        self._readers: dict[str, WatchedRun] = {}  # by the paths of runs
        self._names: dict[str, str] = {}  # the names of runs, by their paths; they stay
        self._rules = [rule for rule in rules if isinstance(rule.condition, QualityChange)]
        self._changed: dict[str, Run] = {}  # runs with new sums by slice, by their paths
        self._next_judged = -math.inf  # when, by the clock
        self._begun = self._now()
        self._gone: list[str] = []  # the paths of runs that the next poll may find again
        self._is_late, self._took = False, 0.0  # the last reading

    def _now(self) -> float:
        """Returns the real time, which neither jumps nor passes while the machine is suspended."""
        return self._clock.monotonic() + self._offset

    def catch_up(self, *, past: bool, once: bool) -> Iterator[Transition]:
        """Judges what is there; its silence counts from the times of the records."""
        yield from self._read(old=True, past=past)
        while not self._stop.is_set() and self._is_late:
            yield from self._read(past=past)
        self._changed = {} if self._skips else self._changed
        yield from self._judge_quality(all_of_them=once)
        yield from self._tick()

    def poll(self) -> Iterator[Transition]:
        """Judges what is new."""
        yield from self._read()
        yield from self._judge_quality()
        if not self._is_late:
            yield from self._tick()

    def new_problems(self) -> Iterator[Problem]:
        """Yields the problems that were not yielded before."""
        yield from self._report.problems[self._reported :]
        self._reported = len(self._report.problems)

    def report(self) -> WatchReport:
        """Returns what was found so far."""
        firing, unmatched = tuple(self.alerts.firing()), tuple(self.alerts.unmatched)
        count = self._report.problem_count
        report = WatchReport(firing, unmatched, len(self._readers), count, self.alerts.matched)
        if self._values is not None:
            self._values.done(report)
        return report

    def _read(self, *, old: bool = False, past: bool = True) -> Iterator[Transition]:
        """Judges what is new; notes whether that took so long that there may be more.

        Where each reading takes long, such as one of thousands of live runs, there is always more.
        """
        begun = self._clock.monotonic()
        for run in matching_runs(self._poller.poll(), self._pattern):
            name = self._names.setdefault(run.path, valid(run.name))
            reader = self._readers.get(run.path)
            if reader is None:
                reader = WatchedRun(self._selection, self._report, self._patience)
                self._readers[run.path] = reader
            skips = old and self._skips
            for news in reader.skip(run) if skips else ():
                self.alerts.take(name, news, self._now(), old=True)
            for news in reader.read(run):
                if self._stop.is_set():
                    return
                if skips:
                    news = news._replace(scalars=_NOTHING)
                now = self._now()
                if self._values is not None:
                    arrived = min(now, float(news.wall_times[-1])) if old else now
                    self._values.take(name, run, news, arrived - self._offset)
                for transition in self.alerts.take(name, news, now, old=old, past=past):
                    yield transition
                    if self._stop.is_set():
                        return
            if reader.has_sums and self._rules:
                reader.has_sums = False
                self._changed[run.path] = run
            if reader.is_waiting:
                self._poller.again(run)
        yield from self._forget_the_gone()
        took = self._clock.monotonic() - begun
        is_usual = self._took / 2 <= took <= self._took * 2
        self._is_late, self._took = took > _LONG_SECS and not is_usual, took

    def _judge_quality(self, *, all_of_them: bool = False) -> Iterator[Transition]:
        """Asks runs with new sums by slice what quality they have lost.

        Unless it asks all, it takes a tenth of the time at most: one run after the other has its
        turn.
        """
        for path, run in list(self._changed.items()):
            begun = self._clock.monotonic()
            if self._stop.is_set() or (begun < self._next_judged and not all_of_them):
                return
            del self._changed[path]
            name, now = self._names.get(path), self._now()
            for rule in self._rules if name is not None else ():
                condition = rule.condition
                assert name is not None
                assert isinstance(condition, QualityChange)
                since = max(now - condition.within, self._begun if self._skips else -math.inf)
                if max(file.changed for file in run.files) >= since:
                    damage = self._judge(run, since, self._report, past=condition.within)
                    yield from self.alerts.judge(name, rule, damage, now)
            took = self._clock.monotonic() - begun
            self._next_judged = begun + took / _QUALITY_SHARE

    def _forget_the_gone(self) -> Iterator[Transition]:
        before, self._gone = self._gone, self._poller.gone()
        source = self._poller.source
        if not (isinstance(source, Url) or os.path.isdir(source)):
            self._gone += before
            return  # the file system may be away, which does not end a training
        for path in before:  # it may have come back after this poll: the next one tells
            if path in self._poller or path not in self._readers:
                continue
            del self._readers[path]
            name = self._names.pop(path)
            if self._values is not None:
                self._values.forget(name)
            yield from self.alerts.forget(name, self._now())

    def _tick(self) -> Iterator[Transition]:
        if not self._stop.is_set():
            yield from self.alerts.tick(self._now())


class WatchedRun:
    """Reads what is new in a run's files, in the order of wall times within a rank.

    Attributes:
        is_waiting: Whether reading stopped at damage that is soon tried again.
        has_sums: Whether there were sums by slice; you may set it to False.
    """

    def __init__(
        self,
        selection: Selection,
        report: Report,
        patience: float = PATIENCE_SECS,
        most_series: int = MOST_SERIES,
    ) -> None:
        """Begins at the beginning of every file.

        Args:
            selection: Which tags are read, and from where on.
            report: Takes problems.
            patience: As in `NewRecords`.
            most_series: How many series are judged.
        """
        self.is_waiting = self.has_sums = False
        self._selection = selection
        self._report = report
        self._records = NewRecords(report, patience=patience)
        self._most_series = most_series
        self._series: set[tuple[int, str]] = set()  # ranks and tags
        self._is_full = False  # whether a series was left out

    def skip(self, run: Run) -> Iterator[NewData]:
        """Skips the values that are there; yields when each rank wrote for the last time."""
        for rank in run.ranks:
            times = []
            for file in run.files_of(Kind.SUMMARY, rank):
                self._records.skip(file)
                times.append(file.changed)
            changed = max(times, default=-math.inf)
            if changed > time.time() - _RECENT_SECS:
                yield NewData(rank, np.array([changed]), None, _NOTHING)

    def read(self, run: Run) -> Iterator[NewData]:
        """Yields what is new and selected, rank after rank."""
        for rank in run.ranks:
            joined: list[NewData] = []
            count = 0  # records in them
            for batch in self._merged(run, rank):
                news = self._new_data(rank, batch)
                if not len(news.wall_times):
                    continue
                if news.steps is not None:
                    joined.append(news)
                    count += len(news.wall_times)
                    if count < _JOINED:
                        continue
                yield from _merge_steps(joined)
                joined, count = [], 0
                if news.steps is None:
                    yield news
            yield from _merge_steps(joined)
        self._records.keep(run.files)
        self.is_waiting = self._records.is_waiting(run.files)

    def _merged(self, run: Run, rank: int) -> Iterator[Batch]:
        """Yields batches of values and records of the lineage, each when it was written."""
        after = self._selection.since.wall_time
        values = self._records.batches(run.files_of(Kind.SUMMARY, rank), after)
        # A run of which something is new, such as a note, may have ended long before.
        is_new = any(file.may_hold(after) for file in run.files)
        since = -math.inf if is_new else after
        lineage = self._records.batches(run.files_of(Kind.LINEAGE, rank), since)
        batch, due = next(values, None), next(lineage, None)
        while batch is not None:
            first = 0
            while due is not None:
                later = batch.wall_times[first:] > due.wall_times[0]
                if not later.any():
                    break
                cut = first + int(later.argmax())
                if cut > first:
                    yield batch.part(first, cut)
                yield due
                due, first = next(lineage, None), cut
            yield batch.part(first, len(batch)) if first else batch
            batch = next(values, None)
        if due is not None:
            yield due
        yield from lineage

    def _new_data(self, rank: int, batch: Batch) -> NewData:
        """Returns what a batch says, as far as it is selected."""
        within = self._selection.times(batch.wall_times)
        times = batch.wall_times[within]
        if isinstance(batch, Record) and batch.kind == "train_lineage":
            # MindSpore's collector writes this record at the end of a training, without a state.
            state = batch.event.train_lineage
            over = not state.HasField("run_state") or state.run_state.status in _OVER
            scalars = self._troubles(rank, batch) if len(times) else _NOTHING
            if over:
                times = batch.wall_times  # an end counts, whenever it was
            return NewData(rank, times, None, scalars, over, state.run_state)
        if batch.kind != SUMMARY or not batch.count:
            return NewData(rank, times, None, _NOTHING)
        self.has_sums |= any(kind == slice_sums.KIND for kind, _ in batch.series())
        scalars = batch.select(self._selection, (SCALAR,)).scalars()
        chosen = [self._has_room(rank, tag, batch) for tag in scalars.tags]
        if not all(chosen):
            scalars = rows_of(scalars, np.array(chosen)[scalars.codes])
        return NewData(rank, times, batch.steps[within], scalars)

    def _troubles(self, rank: int, batch: Record) -> Columns:
        """Returns how often telemetry has failed, as the counter of this tag has it.

        A loop of one's own has no such counter.
        """
        stated = batch.event.train_lineage
        if not (self._selection.tag(ERRORS) and stated.HasField("run_state")):
            return _NOTHING
        if not self._has_room(rank, ERRORS, batch):
            return _NOTHING
        state = stated.run_state
        count = sum(n for kind, n in state.troubles.items() if kind != NO_GRAPH)
        steps, counts = np.array([state.step]), np.array([count], np.float64)
        return Columns((ERRORS,), np.zeros(1, np.int64), steps, batch.wall_times, counts)

    def _has_room(self, rank: int, tag: str, batch: Batch) -> bool:
        """Whether a series is judged; notes that it is there."""
        if (rank, tag) in self._series or len(self._series) < self._most_series:
            self._series.add((rank, tag))
            return True
        if not self._is_full:
            self._is_full = True
            what = f"tags beyond the first {self._most_series:,} of the run are not judged"
            self._report.problem(batch.path, batch.offset, what)
        return False


def _merge_steps(parts: list[NewData]) -> Iterator[NewData]:
    """Yields news of records with steps as one."""
    if parts:
        wall_times = np.concatenate([part.wall_times for part in parts])
        steps = np.concatenate([part.steps for part in parts if part.steps is not None])
        scalars = concatenated([part.scalars for part in parts])
        yield NewData(parts[0].rank, wall_times, steps, scalars)
