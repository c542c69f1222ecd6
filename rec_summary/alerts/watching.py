"""Watching a tree of records: what is written is judged by the rules soon afterwards."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rec_summary.alerts.conditions import SECONDS, Rule
from rec_summary.alerts.reading import RunReader
from rec_summary.alerts.rules import Engine
from rec_summary.alerts.states import Transition
from rec_summary.errors import three_part
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ArgumentError, matching_runs
from rec_summary.series.report import Problem, Report
from rec_summary.series.run_poller import Watch
from rec_summary.series.words import valid

INTERVAL_SECS: Final = 1.0
_LONG_SECS: Final = 1.0  # reading for longer than this, something may have been written meanwhile
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)

Tell = Callable[[Transition], None]


@dataclass(frozen=True)
class Since:
    """From where on records are judged.

    Attributes:
        step: Only values of this step or later.
        wall_time: Only records of this time or later, in seconds since the epoch.
    """

    step: int | None = None
    wall_time: float = -math.inf


def read_since(text: str, now: float) -> Since:
    """Returns what a text such as `5000` (a step), `2h` or `2026-01-31T12:00` means.

    Args:
        text: A step; an age in seconds, minutes, hours or days; or a local date and time.
        now: The time of which the age is counted, in seconds since the epoch.

    Raises:
        ArgumentError: It is none of these.
    """
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return Since(step=int(text))
    age = _AGE.fullmatch(text)
    if age is not None:
        return Since(wall_time=now - float(age[1]) * SECONDS[age[2]])
    try:
        return Since(wall_time=datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        expected = "a step (5000), an age (30s, 5m, 2h, 1d) or a date and time (2026-01-31T12:00)"
        raise ArgumentError(three_part("since", text, expected)) from error


@dataclass(frozen=True)
class Seen:
    """What watching came to.

    Attributes:
        firing: The alerts that fire, as they were when they began.
        unmatched: The rules that nothing has matched.
        runs: How many runs there are.
        problems: What could not be read; at most a thousand of them.
        problem_count: How many there were in truth.
    """

    firing: tuple[Transition, ...]
    unmatched: tuple[Rule, ...]
    runs: int
    problems: tuple[Problem, ...]
    problem_count: int


def watch(
    source: str | os.PathLike[str],
    rules: Sequence[Rule],
    tell: Tell,
    *,
    stop: threading.Event,
    once: bool = False,
    history: bool = False,
    since: Since | None = None,
    runs: str | None = None,
    interval: float = INTERVAL_SECS,
    caught_up: Callable[[Seen], None] = lambda seen: None,
    problem: Callable[[Problem], None] = lambda problem: None,
) -> Seen:
    """Judges the records of a source, and whatever is written there, until stopped.

    Of what was there before, only alerts that fire still are told, unless `history` asks
    for all of them. From then on every beginning and every end is told, once.

    Args:
        source: A record directory, or a tree of them; it need not exist yet.
        rules: What alerts are raised for.
        tell: Told of alerts; it must not take long.
        stop: To be set when it shall end.
        once: Whether to end when everything that is there has been judged.
        history: Whether alerts of the past are told as well.
        since: From where on records are judged; None for all.
        runs: A pattern as of `fnmatch`: only these runs.
        interval: How long to rest between two looks, in seconds.
        caught_up: Told when everything that was there has been judged.
        problem: Told of what cannot be read.

    Returns:
        What it came to.
    """
    watcher = _Watcher(os.fspath(source), rules, since or Since(), runs, stop, problem)
    watcher.catch_up(tell if history else _nobody)
    if not history:
        for transition in watcher.engine.firing():
            tell(transition)
    caught_up(watcher.seen())
    while not once and not stop.wait(interval):
        watcher.look(tell)
    return watcher.seen()


class _Clock:
    """Real time that neither jumps nor passes while the machine is suspended."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset


class _Watcher:
    """The runs of a source, and the rules that judge them."""

    def __init__(
        self,
        source: str,
        rules: Sequence[Rule],
        since: Since,
        pattern: str | None,
        stop: threading.Event,
        problem: Callable[[Problem], None],
    ) -> None:
        self.engine = Engine(rules)
        self._source = source
        self._since = since
        self._pattern = pattern
        self._stop = stop
        self._watch = Watch(source)
        self._report = Report()
        self._problem = problem
        self._told = 0  # problems
        self._clock = _Clock()
        self._readers: dict[str, RunReader] = {}  # by the paths of runs
        self._names: dict[str, str] = {}  # the names of runs, by their paths; they stay

    def catch_up(self, tell: Tell) -> None:
        """Judges what is there; its silence counts from the times of the records."""
        self._read(tell, is_past=True)
        while not self._stop.is_set() and self._read(tell, is_past=False):
            pass
        self._tick(tell)

    def look(self, tell: Tell) -> None:
        """Judges what is new."""
        if not self._read(tell, is_past=False):
            self._tick(tell)

    def seen(self) -> Seen:
        """Returns what it has come to."""
        return Seen(
            tuple(self.engine.firing()),
            tuple(self.engine.unmatched),
            len(self._readers),
            tuple(self._report.problems),
            self._report.problem_count,
        )

    def _read(self, tell: Tell, *, is_past: bool) -> bool:
        """Reads what is new; returns whether that took so long that there may be more."""
        begun = time.monotonic()
        for run in matching_runs(self._watch.look(), self._pattern):
            self._read_run(run, tell, is_past=is_past)
        self._forget_the_gone(tell)
        for problem in self._report.problems[self._told :]:
            self._problem(problem)
        self._told = len(self._report.problems)
        return time.monotonic() - begun > _LONG_SECS

    def _read_run(self, run: Run, tell: Tell, *, is_past: bool) -> None:
        engine, since = self.engine, self._since
        name = self._names.setdefault(run.path, valid(run.name))
        run = dataclasses.replace(run, name=name)
        reader = self._readers.setdefault(run.path, RunReader(self._report))
        for rank, wall_time, step, points, over in reader.read(run, since.wall_time):
            if self._stop.is_set():
                return
            if wall_time < since.wall_time:
                continue
            now = self._clock.now()
            seen = min(wall_time, now) if is_past else now
            told = []
            if over is False:
                engine.running(name, seen)
            told += engine.alive(name, rank, wall_time, seen, step)
            for point in points:
                if since.step is None or point.step >= since.step:
                    told += engine.feed(point, seen)
            if over:
                told += engine.ended(name, wall_time, seen)
            for transition in told:
                tell(transition)

    def _forget_the_gone(self, tell: Tell) -> None:
        there = {run.path for run in self._watch.all()}
        gone = [path for path in self._readers if path not in there]
        if not gone or not os.path.isdir(self._source):
            return  # a file system that is away is no reason to think that a training is over
        for path in gone:
            del self._readers[path]
            for transition in self.engine.forget(self._names.pop(path), self._clock.now()):
                tell(transition)

    def _tick(self, tell: Tell) -> None:
        if self._stop.is_set():
            return
        for transition in self.engine.tick(self._clock.now()):
            tell(transition)


def _nobody(_transition: Transition) -> None:
    pass
