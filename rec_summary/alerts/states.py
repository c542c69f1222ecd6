"""When alerts begin and end: a state machine that takes columns of values and does no I/O.

A rule about values has an alert for each run, rank and tag that matches. The values of a series
are judged together, as arrays, with the same result as one after another:

* An alert fires at the first value at which its condition has held, without a break, for as long
  as `for` says. It is resolved at the first value at which the condition does not hold.
* NaN is neither greater nor less than anything: only `is nan` and `is not finite` judge it. Other
  conditions skip it: a firing alert goes on firing, a waiting one goes on waiting.
* Where training goes back to an earlier step, `drops` and `rises` forget the values of later
  steps. If it goes back behind the step where a condition began to hold, `for` counts from there.
  A clock that goes back does the same to times.

Only `no data` is about real time, the time at which records arrive. `tick` evaluates it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.alerts.rules import (
    COMPARISONS,
    Change,
    Compare,
    NotFinite,
    Rule,
    Silence,
    ValueCondition,
    float32,
)
from rec_summary.alerts.windows import Window, running_minima, unsigned
from rec_summary.series.batch import Columns, Floats, Integers, concatenated, rows_of

_AFTER_END_SECS: Final = 60.0  # other ranks' last records may be a little younger than the end
_PERCENT: Final = 0.01

Flags = npt.NDArray[np.bool_]


class News(NamedTuple):
    """What some records of a rank say.

    Attributes:
        rank: The rank that wrote them.
        wall_times: When, in seconds since the epoch, of shape [records].
        steps: Their training steps, of shape [records]; None if they have none.
        scalars: The values in them.
        over: Whether they say that the run has ended (True) or goes on (False).
    """

    rank: int
    wall_times: Floats
    steps: Integers | None
    scalars: Columns
    over: bool | None = None


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


class ValueAlert:
    """The alert of a rule about values, for one series."""

    def __init__(self, rule: Rule, run: str, rank: int, tag: str) -> None:
        self.fired: Transition | None = None
        self._rule = rule
        self._place = (run, rank, tag)
        assert not isinstance(rule.condition, Silence)
        self._condition: ValueCondition = rule.condition
        self._window = Window(rule.condition.within) if isinstance(rule.condition, Change) else None
        self._holds = False
        self._since: npt.NDArray[Any] | None = None  # from where on it holds, of shape [1]

    def take(self, values: Columns, *, past: bool) -> list[tuple[int, Transition]]:
        """Judges values.

        Args:
            values: The next values; at least one.
            past: Whether transitions are needed even if later values undo them.

        Returns:
            The transitions, each with the number of its value, in order.
        """
        places: Integers | None = None
        if not isinstance(self._condition, NotFinite):
            missing = np.isnan(values.values)
            if missing.any():
                places = np.flatnonzero(~missing)
                values = rows_of(values, places)
                if not len(places):
                    return []
        holds, extremes = self._judge(values)
        if not self._holds and not holds.any():
            return []
        fires, ends = self._edges(holds, values)
        edges = [*((at, True) for at in fires), *((at, False) for at in ends)]
        edges.sort()
        if not past:
            edges = edges[-1:]  # of which an end matters only to who has learnt of the beginning
            if edges and not edges[0][1] and self.fired is None:
                return []
        found = []
        for at, firing in edges:
            extreme = extremes[at] if firing and extremes is not None else None
            transition = self._transition(values, at, extreme, firing=firing)
            self.fired = transition if firing else None
            found.append((at if places is None else int(places[at]), transition))
        return found

    def _judge(self, values: Columns) -> tuple[Flags, Floats | None]:
        """Returns where the condition holds, and from which value each dropped or rose."""
        condition, numbers = self._condition, values.values
        if isinstance(condition, Compare):
            holds: Flags = COMPARISONS[condition.operator](numbers, float32(condition.number))
            return holds, None
        if isinstance(condition, NotFinite):
            return ~np.isfinite(numbers) if condition.infinite else np.isnan(numbers), None
        assert self._window is not None
        sign = -1.0 if condition.rises else 1.0
        highest = self._window.take(values._replace(values=sign * numbers))
        with np.errstate(invalid="ignore"):  # no value within the span: -inf
            change = highest - sign * numbers
            enough = condition.amount
            least = enough * _PERCENT * np.abs(highest) if condition.relative else enough
            return (change > 0) & (change >= least) & np.isfinite(highest), sign * highest

    def _edges(self, holds: Flags, values: Columns) -> tuple[list[int], list[int]]:
        """Returns the numbers of the values at which the alert fires, and is resolved."""
        before = np.concatenate([[self._holds], holds[:-1]])
        begins, ends = holds & ~before, np.flatnonzero(~holds & before)
        self._holds = bool(holds[-1])
        lasting = self._rule.lasting
        if lasting is None:
            return np.flatnonzero(begins).tolist(), ends.tolist()
        streaks = np.cumsum(begins, dtype=np.int64)  # 0 is the one that earlier values began
        places = np.flatnonzero(holds)
        seconds, numbers = lasting.seconds, streaks[places]
        positions: npt.NDArray[Any] = values.wall_times[places]
        limit: np.generic = np.float64(seconds)
        if seconds is None:
            positions, limit = unsigned(values.steps[places]), np.uint64(int(lasting.amount))
        if self._since is not None and holds[0]:
            places = np.concatenate([[-1], places])
            positions = np.concatenate([self._since, positions])
            numbers = np.concatenate([[0], numbers])
        origins = running_minima(positions, numbers)
        self._since = origins[-1:].copy() if self._holds else None
        with np.errstate(over="ignore"):
            lasted = np.flatnonzero(positions - origins >= limit)
        fired, first = np.unique(numbers[lasted], return_index=True)
        fires = places[lasted[first]]
        if self.fired is not None:
            fires = fires[fired > 0]
            fired = np.concatenate([[0], fired])
        return fires.tolist(), ends[np.isin(streaks[ends], fired)].tolist()

    def _transition(
        self, values: Columns, at: int, extreme: float | None, *, firing: bool
    ) -> Transition:
        run, rank, tag = self._place
        step, wall_time, number = (column[at].item() for column in values[2:])
        reason = f"{tag} = {number:.6g} at step {step}"
        if extreme is not None:
            reason += f", from {extreme:.6g}"
        return Transition(firing, self._rule, run, rank, tag, step, wall_time, number, reason)


@dataclass
class SilenceAlert:
    """The alert of a `no data` rule. Attributes as in `Transition`."""

    rule: Rule
    run: str
    rank: int
    tag: str | None
    seen: float  # when the last record arrived, in real time
    step: int | None = None
    fired: Transition | None = None

    def take(self, seen: Floats, steps: Integers | None) -> list[Transition]:
        """Takes what has arrived; returns the end of the alert if it fires.

        Args:
            seen: When it arrived, in real time, of shape [n].
            steps: The steps, of shape [n]; None if there are none.
        """
        self.step = self.step if steps is None else int(steps[0])
        found = self.end(float(seen[0]), "data again")
        self.step = self.step if steps is None else int(steps[-1])
        self.seen = max(self.seen, float(seen.max()))
        return found

    def end(self, now: float, reason: str) -> list[Transition]:
        """Ends the alert if it fires."""
        if self.fired is None:
            return []
        self.fired = None
        return [self._transition(now, reason, firing=False)]

    def tick(self, now: float) -> list[Transition]:
        """Begins the alert if it has been silent for long enough."""
        condition = self.rule.condition
        assert isinstance(condition, Silence)
        silent = now - self.seen
        if self.fired is not None or silent < (condition.span.seconds or math.inf):
            return []
        what = "nothing recorded" if self.tag is None else f"nothing recorded as {self.tag}"
        last = "" if self.step is None else f", the last at step {self.step}"
        reason = f"{what} for {_duration(silent)}{last}"
        self.fired = self._transition(now, reason, firing=True)
        return [self.fired]

    def _transition(self, now: float, reason: str, *, firing: bool) -> Transition:
        return Transition(
            firing, self.rule, self.run, self.rank, self.tag, self.step, now, None, reason
        )


Key = tuple[str, int, str | None]
"""A run, a rank and a tag; None stands for records of any kind."""


class Engine:
    """The alerts of some rules. Every transition is returned once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Begins with no alerts."""
        self._rules = tuple(rules)
        self._has_silences = any(isinstance(rule.condition, Silence) for rule in rules)
        self._matched: set[Rule] = set()
        self._alerts: dict[Key, tuple[ValueAlert, ...]] = {}
        self._silences: dict[Key, tuple[SilenceAlert, ...]] = {}
        self._ended: dict[str, float] = {}  # when runs have ended, by the clock of their records

    @property
    def tags(self) -> str:
        """A regular expression that finds something in the tags that a rule is about."""
        tags = [rule.condition.tag for rule in self._rules if rule.condition.tag is not None]
        return "|".join(tag.regex for tag in tags) or r"(?!)"

    @property
    def unmatched(self) -> list[Rule]:
        """The rules that nothing has matched so far."""
        return [rule for rule in self._rules if rule not in self._matched]

    def take(
        self, run: str, news: News, now: float, *, old: bool = False, past: bool = True
    ) -> list[Transition]:
        """Takes what records say.

        Args:
            run: The run's name.
            news: What they say; at least one record.
            now: The real time.
            old: Whether they arrived when they were written, not now.
            past: Whether all transitions are needed, or only the last of each alert.

        Returns:
            The transitions, in the order of the records.
        """
        rank, wall_times, steps, scalars, over = news

        def seen(times: Floats) -> Floats:
            return np.minimum(times, now) if old else np.full(len(times), now)

        if over is False:
            self._go_on(run, float(seen(wall_times)[0]))
        found: list[tuple[int, int, Transition]] = []
        if self._has_silences:
            late = np.flatnonzero(wall_times > self._ended.get(run, math.inf) + _AFTER_END_SECS)
            if len(late):
                self._go_on(run, float(seen(wall_times[late])[0]))
            for quiet in self._silences_of((run, rank, None), float(seen(wall_times)[0])):
                found += [(-1, 0, each) for each in quiet.take(seen(wall_times), steps)]
        for tag, places, values in _by_tag(concatenated([scalars])):
            for number, alert in enumerate(self._alerts_of(run, rank, tag)):
                for at, each in alert.take(values, past=past):
                    found.append((int(places[at]), number, each))
            if self._has_silences:
                arrived = seen(values.wall_times)
                for quiet in self._silences_of((run, rank, tag), float(arrived[0])):
                    silent = len(self._rules)  # behind those of values
                    ended = quiet.take(arrived, values.steps)
                    found += [(int(places[0]), silent, each) for each in ended]
        found.sort(key=lambda each: each[:2])
        transitions = [each for _, _, each in found]
        if over:
            self._ended[run] = float(wall_times[-1])
            transitions += self._hush(run, float(seen(wall_times)[-1]), "the run has ended")
        return transitions

    def forget(self, run: str, now: float) -> list[Transition]:
        """Takes note that a run's records are gone; `now` is the real time."""
        self._ended.pop(run, None)
        reason = "its records are gone"
        found = [
            Transition(False, each.rule, run, each.rank, each.tag, each.step, now, None, reason)
            for each in self.firing()
            if each.run == run and each.value is not None
        ]
        found += self._hush(run, now, reason)
        self._alerts = {key: each for key, each in self._alerts.items() if key[0] != run}
        self._silences = {key: each for key, each in self._silences.items() if key[0] != run}
        return found

    def tick(self, now: float) -> list[Transition]:
        """Evaluates the `no data` rules; `now` is the real time."""
        return [
            transition
            for key, silences in self._silences.items()
            if key[0] not in self._ended
            for quiet in silences
            for transition in quiet.tick(now)
        ]

    def firing(self) -> list[Transition]:
        """Returns the beginnings of all alerts that fire."""
        fired = [each.fired for alerts in self._alerts.values() for each in alerts]
        fired += [each.fired for silences in self._silences.values() for each in silences]
        return [each for each in fired if each is not None]

    def _go_on(self, run: str, seen: float) -> None:
        """Takes note that a run, which may have ended before, is going on."""
        if self._ended.pop(run, None) is not None:
            for quiet in self._silences_in(run):
                quiet.seen = max(quiet.seen, seen)

    def _hush(self, run: str, now: float, reason: str) -> list[Transition]:
        return [each for quiet in self._silences_in(run) for each in quiet.end(now, reason)]

    def _silences_in(self, run: str) -> list[SilenceAlert]:
        return [quiet for key in self._silences if key[0] == run for quiet in self._silences[key]]

    def _alerts_of(self, run: str, rank: int, tag: str) -> tuple[ValueAlert, ...]:
        """Returns the alerts that values of a series go to."""
        known = self._alerts.get((run, rank, tag))
        if known is None:
            rules = [
                rule
                for rule in self._rules
                if not isinstance(rule.condition, Silence) and rule.condition.tag.matches(tag)
            ]
            self._matched.update(rules)
            known = tuple(ValueAlert(rule, run, rank, tag) for rule in rules)
            self._alerts[run, rank, tag] = known
        return known

    def _silences_of(self, key: Key, seen: float) -> tuple[SilenceAlert, ...]:
        """Returns the `no data` alerts that records of a rank, or values of a series, go to."""
        known = self._silences.get(key)
        if known is None:
            tag = key[2]
            rules = [
                rule
                for rule in self._rules
                if isinstance(rule.condition, Silence)
                and (
                    tag is None
                    if rule.condition.tag is None
                    else tag is not None and rule.condition.tag.matches(tag)
                )
            ]
            self._matched.update(rules)
            known = self._silences[key] = tuple(SilenceAlert(rule, *key, seen) for rule in rules)
        return known


def _by_tag(columns: Columns) -> list[tuple[str, Integers, Columns]]:
    """Returns each tag, the numbers of its values, and these, in the order of first values."""
    order = np.argsort(columns.codes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(columns.codes[order])) + 1)
    parts = sorted((part for part in parts if len(part)), key=lambda part: int(part[0]))
    return [(columns.tags[columns.codes[p[0]]], p, rows_of(columns, p)) for p in parts]


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
