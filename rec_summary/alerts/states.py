"""When alerts begin and end: a state machine that takes columns of values and does no I/O.

A rule about values has an alert for each run, rank and tag that matches. The values of a series
are judged together, as arrays, with the same result as one after another:

* An alert fires at the first value at which its condition has held, without a break, for as long
  as `for` says. It is resolved at the first value at which the condition does not hold.
* NaN is neither greater nor less than anything: only `is not finite` judges it. Other
  conditions skip it: a firing alert goes on firing, a waiting one goes on waiting.
* Where training goes back to an earlier step, `drops` and `rises` forget the values of later
  steps, and those before count again. If it goes back before the step where a condition began to
  hold, `for` counts from there. A clock that goes back does the same to times.

Only `no data` is about real time, the time at which records arrive. `tick` evaluates it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts.rules import (
    COMPARISONS,
    ERRORS,
    Change,
    Compare,
    NotFinite,
    QualityChange,
    Rule,
    Silence,
    float32,
)
from rec_summary.alerts.sliding_maximum import SlidingMaximum
from rec_summary.arrays import Flags, Floats, Integers
from rec_summary.records.failures import NO_GRAPH
from rec_summary.series.batch import Columns, concatenated, rows_of

_AFTER_END_SECS: Final = 60.0  # other ranks' last records may be a little younger than the end
_PERCENT: Final = 0.01
_KINDS: Final = 3  # of troubles that an alert names


class NewData(NamedTuple):
    """The data of some new records of a rank.

    Attributes:
        rank: The rank that wrote them.
        wall_times: When, in seconds since the epoch, of shape [records].
        steps: Their training steps, of shape [records]; None if they have none.
        scalars: The values in them.
        over: Whether they say that the run has ended (True) or goes on (False).
        state: The state of the run in a train lineage among them.
    """

    rank: int
    wall_times: Floats
    steps: Integers | None
    scalars: Columns
    over: bool | None = None
    state: RunState | None = None


class Damage(NamedTuple):
    """Quality that was lost, as an answer of `why` names it.

    Attributes:
        tags: The tags of all that lost quality, the first one the likeliest culprit.
        step: The step from which on it did.
        value: The metric of the first one from then on; None if it is not known.
        text: The first line of the answer.
    """

    tags: tuple[str, ...]
    step: int
    value: float | None
    text: str


@dataclass(frozen=True)
class Transition:
    """The beginning or the end of an alert.

    Attributes:
        firing: Whether it begins.
        rule: The rule.
        run: The run's name.
        rank: The rank.
        tag: The tag of the value that was decisive; None if the rule is about no tag.
        step: The step of that value, or the last one; None if none is known.
        wall_time: When that was, in seconds since the epoch: the time of the record, or the
            real time for `no data`.
        value: That value; None for `no data`.
        reason: What was found, in a few words.
    """

    firing: bool
    rule: Rule
    run: str
    rank: int
    tag: str | None
    step: int | None
    wall_time: float
    value: float | None
    reason: str


@dataclass
class _Alert:
    """The alert of a rule, for one series or for all records of a rank.

    Attributes:
        rule, run, rank, tag: As in `Transition`.
        fired: How it began, if it fires.
    """

    rule: Rule
    run: str
    rank: int
    tag: str | None
    fired: Transition | None = field(default=None, init=False)

    def turn(
        self, step: int | None, wall_time: float, value: float | None, reason: str, *, firing: bool
    ) -> Transition:
        """Begins or ends the alert; arguments as in `Transition`."""
        series = self.rule, self.run, self.rank, self.tag
        edge = Transition(firing, *series, step, wall_time, value, reason)
        self.fired = edge if firing else None
        return edge


class ValueAlert(_Alert):
    """The alert of a rule about values, for one series."""

    def __init__(self, rule: Rule, run: str, rank: int, tag: str) -> None:
        super().__init__(rule, run, rank, tag)
        condition = rule.condition
        self._maximum = SlidingMaximum(condition.within) if isinstance(condition, Change) else None
        self._since: float | None = None  # the time from which on the condition holds

    def take(self, values: Columns, *, past: bool, about: str = "") -> list[tuple[int, Transition]]:
        """Judges values.

        Args:
            values: The next values; at least one.
            past: Whether transitions are needed even if later values undo them.
            about: What is known of their cause, for the end of the reason of an alert.

        Returns:
            The transitions, each with the number of its value, in order.
        """
        places = np.arange(len(values.steps))
        if not isinstance(self.rule.condition, NotFinite):
            places = np.flatnonzero(~np.isnan(values.values))
            values = rows_of(values, places)
        holds, extremes = self._judge(values)
        edges = self._edges(holds, values)
        firing = [bool(holds[at]) for at in edges]
        if not past:  # an end matters only if the beginning was reported
            edges, firing = edges[-1:], firing[-1:]
            if firing == [False] and self.fired is None:
                return []
        turns = []
        for at, begins in zip(edges, firing, strict=True):
            step, wall_time, number = (column[at].item() for column in values[2:])
            reason = f"{self.tag} = {number:.6g} at step {step}"
            if begins and extremes is not None:
                reason += f", from {extremes[at]:.6g}"
            if begins and about:
                reason += f": {about}"
            turn = self.turn(step, wall_time, number, reason, firing=begins)
            turns.append((int(places[at]), turn))
        return turns

    def _judge(self, values: Columns) -> tuple[Flags, Floats | None]:
        """Returns where the condition holds, and from which value each dropped or rose."""
        condition, numbers = self.rule.condition, values.values
        if isinstance(condition, Compare):
            holds: Flags = COMPARISONS[condition.operator](numbers, float32(condition.number))
            return holds, None
        if isinstance(condition, NotFinite):
            return ~np.isfinite(numbers), None
        assert isinstance(condition, Change)
        assert self._maximum is not None
        sign = -1.0 if condition.rises else 1.0
        highest = self._maximum.take(values._replace(values=sign * numbers))
        with np.errstate(invalid="ignore"):  # no value within the span: -inf
            change = highest - sign * numbers
            enough = condition.amount
            least = enough * _PERCENT * np.abs(highest) if condition.relative else enough
            return (change > 0) & (change >= least) & np.isfinite(highest), sign * highest

    def _edges(self, holds: Flags, values: Columns) -> list[int]:
        """Returns the numbers of the values at which the alert fires or is resolved."""
        if self._since is None and not holds.any():
            return []
        least = self.rule.lasting or 0.0
        changes = []
        firing = self.fired is not None
        times = values.wall_times.tolist()
        for at, (holds_here, time) in enumerate(zip(holds.tolist(), times, strict=True)):
            if holds_here:
                self._since = time if self._since is None else min(self._since, time)
                if firing or time - self._since < least:
                    continue
            else:
                self._since = None
                if not firing:
                    continue
            firing = holds_here
            changes.append(at)
        return changes


@dataclass
class QualityAlert(_Alert):
    """The alert of a rule about quality, for a run; its tag is that of the culprit."""

    def take(self, damage: Damage | None, now: float) -> list[Transition]:
        """Takes the newest answer, None if no quality is lost; returns what begins and ends.

        The alert goes on as long as its culprit is among what lost quality.
        """
        if self.fired is not None and damage is not None and self.tag in damage.tags:
            return []
        edges = []
        if self.fired is not None:
            reason = "no quality is lost beyond chance any more"
            if damage is not None:
                reason = "something else explains it better"
            edges.append(self.turn(self.fired.step, now, None, reason, firing=False))
        if damage is not None:
            self.tag = damage.tags[0]
            edges.append(self.turn(damage.step, now, damage.value, damage.text, firing=True))
        return edges


@dataclass
class SilenceAlert(_Alert):
    """The alert of a `no data` rule.

    Attributes:
        seen: When the last record arrived, in real time.
        step: Its step; None if none is known.
    """

    seen: float
    step: int | None = field(default=None, init=False)

    def take(self, seen: Floats, steps: Integers | None) -> list[Transition]:
        """Takes new records; returns the end of the alert if it fires.

        Args:
            seen: When they arrived, in real time, of shape [n].
            steps: The steps, of shape [n]; None if there are none.
        """
        self.step = self.step if steps is None else int(steps[0])
        edge = self.end(float(seen[0]), "data again")
        self.step = self.step if steps is None else int(steps[-1])
        self.seen = max(self.seen, float(seen.max()))
        return edge

    def end(self, now: float, reason: str) -> list[Transition]:
        """Ends the alert if it fires."""
        return [] if self.fired is None else [self.turn(self.step, now, None, reason, firing=False)]

    def tick(self, now: float) -> list[Transition]:
        """Begins the alert if it has been silent for long enough."""
        condition = self.rule.condition
        assert isinstance(condition, Silence)
        silent = now - self.seen
        if self.fired is not None or silent < condition.seconds:
            return []
        what = "nothing recorded" if self.tag is None else f"nothing recorded as {self.tag}"
        last = "" if self.step is None else f", the last at step {self.step}"
        reason = f"{what} for {_duration(silent)}{last}"
        return [self.turn(self.step, now, None, reason, firing=True)]


class _Series(NamedTuple):
    """The alerts of a series, or of all records of a rank."""

    alerts: list[ValueAlert]
    silences: list[SilenceAlert]


@dataclass
class _Run:
    """The alerts of a run, by rank and tag; the tag None stands for records of any kind."""

    series: dict[tuple[int, str | None], _Series] = field(default_factory=dict)
    qualities: dict[Rule, QualityAlert] = field(default_factory=dict)
    ended: float = math.inf  # when it has ended, by the clock of its records
    last_step: int = 0  # at that time, as its lineage states it
    troubles: str = ""  # the most frequent ones, as its lineage states them
    ranks: float = math.inf  # how many train, as its lineage states it: those from there on left

    def all_silences(self) -> list[SilenceAlert]:
        """Returns all `no data` alerts."""
        return [quiet for series in self.series.values() for quiet in series.silences]

    def firing(self) -> list[Transition]:
        """Returns the beginnings of all alerts that fire."""
        fired = [alert.fired for series in self.series.values() for alert in series.alerts]
        fired += [alert.fired for alert in (*self.all_silences(), *self.qualities.values())]
        return [alert for alert in fired if alert is not None]

    def go_on_with(self, ranks: int, seen: float) -> list[Transition]:
        """Goes on with so many ranks; returns the ends of the `no data` alerts of those that left.

        Args:
            ranks: The number of ranks.
            seen: When that was known, in real time.
        """
        before, self.ranks = self.ranks, ranks
        edges = []
        for quiet in self.all_silences():
            if quiet.rank >= ranks:
                edges += quiet.end(seen, "the training goes on without this rank")
            elif quiet.rank >= before:
                quiet.seen = max(quiet.seen, seen)
        return edges

    def mark_alive(self, seen: float) -> None:
        """Marks a run as alive, also one that had ended."""
        if self.ended < math.inf:
            self.ended = math.inf
            for quiet in self.all_silences():
                quiet.seen = max(quiet.seen, seen)


class AlertStates:
    """The alerts of some rules. Every transition is returned once.

    Attributes:
        matched: The tags that each rule has matched; None stands for records of any kind.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Begins with no alerts."""
        self._rules = tuple(rules)
        self.matched: dict[Rule, set[str | None]] = {}
        self._runs: dict[str, _Run] = {}

    @property
    def tags(self) -> str:
        """A regular expression that finds something in the tags that a rule is about."""
        tags = [rule.condition.tag for rule in self._rules if rule.condition.tag is not None]
        return "|".join(tag.regex for tag in tags) or r"(?!)"

    @property
    def unmatched(self) -> list[Rule]:
        """The rules that nothing has matched so far."""
        return [rule for rule in self._rules if rule not in self.matched]

    def take(
        self, name: str, news: NewData, now: float, *, old: bool = False, past: bool = True
    ) -> list[Transition]:
        """Takes the data of new records.

        Args:
            name: The run's name.
            news: The data of at least one record.
            now: The real time.
            old: Whether they arrived when they were written, not now.
            past: Whether all transitions are needed, or only the last of each alert.

        Returns:
            The transitions, in the order of the records.
        """
        rank, wall_times, steps, scalars, over, state = news
        run = self._runs.setdefault(name, _Run())
        arrived = _seen(wall_times, now, old)
        if over is False:
            run.mark_alive(float(arrived[0]))
        if steps is not None:
            # Landscapes and evaluations are recorded later, too: at step 0 or at the last one.
            # A rank that is late records no later step than the others.
            trained = (steps > 0) & (steps > run.last_step)
            late = arrived[trained & (wall_times > run.ended + _AFTER_END_SECS)]
            if len(late):
                run.mark_alive(float(late[0]))
        if state is not None:
            run.troubles = _most_frequent(state.troubles)
        edges: list[tuple[int, Transition]] = []
        for quiet in self._series_of(name, rank, None, float(arrived[0])).silences:
            edges += [(-1, edge) for edge in quiet.take(arrived, steps)]
        for tag, places, values in _by_tag(concatenated([scalars])):
            mine = _seen(values.wall_times, now, old)
            series = self._series_of(name, rank, tag, float(mine[0]))
            about = run.troubles if tag == ERRORS else ""
            for alert in series.alerts:
                found = alert.take(values, past=past, about=about)
                edges += [(places[at], edge) for at, edge in found]
            for quiet in series.silences:
                edges += [(places[0], edge) for edge in quiet.take(mine, values.steps)]
        edges.sort(key=lambda numbered: numbered[0])
        transitions = [edge for _, edge in edges]
        if over is False and state is not None and state.rank_size not in (0, run.ranks):
            transitions += run.go_on_with(state.rank_size, float(arrived[-1]))
        if over:
            run.ended = float(wall_times[-1])
            run.last_step = 0 if state is None else state.step
            for quiet in run.all_silences():
                transitions += quiet.end(float(arrived[-1]), "the run has ended")
        return transitions

    def judge(self, name: str, rule: Rule, damage: Damage | None, now: float) -> list[Transition]:
        """Takes what quality a run has lost of late; the arguments are as of `QualityAlert`."""
        self.matched.setdefault(rule, set()).add(None)
        alerts = self._runs.setdefault(name, _Run()).qualities
        return alerts.setdefault(rule, QualityAlert(rule, name, 0, None)).take(damage, now)

    def forget(self, name: str, now: float) -> list[Transition]:
        """Takes note that a run's records are gone; `now` is the real time."""
        run = self._runs.pop(name, _Run())
        reason = "its records are gone"
        return [
            replace(edge, firing=False, wall_time=now, value=None, reason=reason)
            for edge in run.firing()
        ]

    def tick(self, now: float) -> list[Transition]:
        """Evaluates the `no data` rules; `now` is the real time."""
        waiting = [run for run in self._runs.values() if run.ended == math.inf]
        return [
            edge
            for run in waiting
            for quiet in run.all_silences()
            if quiet.rank < run.ranks
            for edge in quiet.tick(now)
        ]

    def firing(self) -> list[Transition]:
        """Returns the beginnings of all alerts that fire."""
        return [edge for run in self._runs.values() for edge in run.firing()]

    def _series_of(self, name: str, rank: int, tag: str | None, seen: float) -> _Series:
        """Returns the alerts that values of a series go to; of all records if the tag is None."""
        run = self._runs[name]
        series = run.series.get((rank, tag))
        if series is None:
            series = run.series[rank, tag] = _Series([], [])
            for rule in self._rules:
                if isinstance(rule.condition, QualityChange):
                    continue
                pattern = rule.condition.tag
                is_about = (
                    tag is None if pattern is None else tag is not None and pattern.matches(tag)
                )
                if not is_about:
                    continue
                self.matched.setdefault(rule, set()).add(tag)
                if isinstance(rule.condition, Silence):
                    series.silences.append(SilenceAlert(rule, name, rank, tag, seen))
                elif tag is not None:
                    series.alerts.append(ValueAlert(rule, name, rank, tag))
        return series


def _seen(wall_times: Floats, now: float, old: bool) -> Floats:
    """Returns when records arrived: when they were written if they are old."""
    return np.minimum(wall_times, now) if old else np.full(len(wall_times), now)


def _most_frequent(troubles: Mapping[str, int]) -> str:
    """Returns the most frequent kinds of troubles and how often there were, as a text."""
    kinds = sorted((-count, kind) for kind, count in troubles.items() if kind != NO_GRAPH)
    return ", ".join(f"{kind} ({-count:,})" for count, kind in kinds[:_KINDS])


def _by_tag(columns: Columns) -> list[tuple[str, Integers, Columns]]:
    """Returns each tag, the places of its values, and the values, in the order of first values."""
    order = np.argsort(columns.codes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(columns.codes[order])) + 1)
    parts = sorted((part for part in parts if len(part)), key=lambda part: int(part[0]))
    return [(columns.tags[columns.codes[p[0]]], p, rows_of(columns, p)) for p in parts]


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
