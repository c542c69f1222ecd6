"""When alerts begin and end: a state machine that is fed values, and does no I/O.

Each alert of a rule is a state of its own. A rule that speaks of one tag (or one pattern)
has an alert for each run, rank and tag that matches; a rule that speaks of several has one
for each run and rank, where a comparison holds if it holds for any tag that matches it.

What holds is judged at every value, with the time and the step that are recorded with it:

* An alert fires at the first value with which its condition has held, without a break, for
  as long as `for` says; it is resolved at the first value with which it does not hold.
* NaN is neither greater nor less than anything: only `is nan` and `is not finite` judge
  it. A value that no part of a condition can judge is passed over: an alert that fires goes
  on firing, and one that waits goes on waiting.
* Nothing is known of a tag before its first value: `and` needs all to be known, `or` one
  that holds.
* Where training has gone back to an earlier step, `drops` and `rises` forget the values of
  later steps; behind the step where a condition began to hold, `for` counts from there. A
  clock that goes back does the same to times.

Only `no data` is about real time: that at which records were seen to arrive. It is told
with `tick`, and not about runs that have ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rec_summary.alerts.conditions import Rule, Silence, leaves, patterns
from rec_summary.alerts.states import Point, SilenceAlert, Transition, ValueAlert

_AFTER_END_SECS: Final = 60.0  # other ranks' last records may be a little younger than the end


class Engine:
    """The alerts of some rules. Every transition is returned exactly once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Begins with no alerts."""
        self._rules = tuple(rules)
        self._has_silences = any(isinstance(rule.condition, Silence) for rule in rules)
        self._matched: set[Rule] = set()
        self._alerts: dict[tuple[Rule, str, int, str | None], ValueAlert] = {}
        self._quiet: dict[tuple[Rule, str, int, str | None], SilenceAlert] = {}
        # What a value, or a record of a rank (tag None), goes to.
        self._alerts_of: dict[tuple[str, int, str], tuple[ValueAlert, ...]] = {}
        self._quiet_of: dict[tuple[str, int, str | None], tuple[SilenceAlert, ...]] = {}
        self._ended: dict[str, float] = {}  # when runs have ended, by the clock of their records

    @property
    def unmatched(self) -> list[Rule]:
        """The rules that nothing has matched so far."""
        return [rule for rule in self._rules if rule not in self._matched]

    def feed(self, point: Point, seen: float) -> list[Transition]:
        """Takes a value.

        Args:
            point: The value.
            seen: When it arrived, in real time.
        """
        run, rank, tag, step, wall_time, _ = point
        found = self.alive(run, rank, wall_time, seen, step)
        alerts = self._alerts_of.get((run, rank, tag))
        if alerts is None:
            alerts = self._alerts_of[run, rank, tag] = self._begin(run, rank, tag)
        told = [alert.take(point) for alert in alerts]
        if self._has_silences:
            told += [quiet.hear(seen, step) for quiet in self._silences(run, rank, tag, seen)]
        return [*found, *(each for each in told if each is not None)]

    def alive(
        self, run: str, rank: int, wall_time: float, seen: float, step: int | None = None
    ) -> list[Transition]:
        """Takes note of a record of whatever kind; arguments as of `feed` and `Point`."""
        if not self._has_silences:
            return []
        if self._ended and wall_time > self._ended.get(run, math.inf) + _AFTER_END_SECS:
            self.running(run, seen)
        told = (quiet.hear(seen, step) for quiet in self._silences(run, rank, None, seen))
        return [each for each in told if each is not None]

    def ended(self, run: str, wall_time: float, seen: float) -> list[Transition]:
        """Takes note that a run has ended, well or not: it owes no more data.

        Args:
            run: The run's name.
            wall_time: When it ended, by the time of its records.
            seen: When that was seen, in real time.
        """
        self._ended[run] = wall_time
        return self._hush(run, seen, "the run has ended")

    def running(self, run: str, seen: float) -> None:
        """Takes note that a run, which may have ended before, is going on."""
        if self._ended.pop(run, None) is not None:
            for quiet in self._quiet.values():
                if quiet.run == run:
                    quiet.seen = max(quiet.seen, seen)

    def forget(self, run: str, now: float) -> list[Transition]:
        """Takes note that a run's records are gone; `now` is the real time."""
        self._ended.pop(run, None)
        found = [
            Transition(False, *_what(alert.fired), now, None, "its records are gone")
            for alert in self._alerts.values()
            if alert.fired is not None and alert.fired.run == run
        ]
        found += self._hush(run, now, "its records are gone")
        self._alerts = {key: each for key, each in self._alerts.items() if key[1] != run}
        self._quiet = {key: each for key, each in self._quiet.items() if key[1] != run}
        self._alerts_of = {key: each for key, each in self._alerts_of.items() if key[0] != run}
        self._quiet_of = {key: each for key, each in self._quiet_of.items() if key[0] != run}
        return found

    def tick(self, now: float) -> list[Transition]:
        """Looks at what only time can tell; `now` is the real time."""
        waiting = (quiet for quiet in self._quiet.values() if quiet.run not in self._ended)
        return [each for quiet in waiting if (each := quiet.tick(now)) is not None]

    def firing(self) -> list[Transition]:
        """Returns the beginnings of all alerts that fire."""
        fired = [alert.fired for alert in self._alerts.values()]
        fired += [quiet.fired for quiet in self._quiet.values()]
        return [each for each in fired if each is not None]

    def _hush(self, run: str, now: float, reason: str) -> list[Transition]:
        mine = (quiet for quiet in self._quiet.values() if quiet.run == run)
        return [each for quiet in mine if (each := quiet.end(now, reason)) is not None]

    def _begin(self, run: str, rank: int, tag: str) -> tuple[ValueAlert, ...]:
        """Returns the alerts that values of a tag go to; makes those that there are not yet."""
        found = []
        for rule in self._rules:
            condition = rule.condition
            if isinstance(condition, Silence) or not rule.matches_run(run):
                continue
            if not any(leaf.tag.matches_tag(tag) for leaf in leaves(condition)):
                continue
            self._matched.add(rule)
            key = (rule, run, rank, tag if len(patterns(condition)) == 1 else None)
            if key not in self._alerts:
                self._alerts[key] = ValueAlert(rule, run, rank)
            found.append(self._alerts[key])
        return tuple(found)

    def _silences(
        self, run: str, rank: int, tag: str | None, seen: float
    ) -> tuple[SilenceAlert, ...]:
        """Returns the `no data` alerts that something ends; makes those that there are not yet."""
        known = self._quiet_of.get((run, rank, tag))
        if known is not None:
            return known
        found = []
        for rule in self._rules:
            if not isinstance(rule.condition, Silence) or not rule.matches_run(run):
                continue
            pattern = rule.condition.tag
            if (pattern is None) != (tag is None):
                continue
            if pattern is not None and tag is not None and not pattern.matches_tag(tag):
                continue
            self._matched.add(rule)
            found.append(SilenceAlert(rule, run, rank, tag, seen))
            self._quiet[rule, run, rank, tag] = found[-1]
        self._quiet_of[run, rank, tag] = tuple(found)
        return tuple(found)


def _what(fired: Transition) -> tuple[Rule, str, int, str | None, int | None]:
    return fired.rule, fired.run, fired.rank, fired.tag, fired.step
