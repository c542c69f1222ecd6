"""The states that alerts are in, and what is told of their changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from rec_summary.alerts.conditions import Rule, Silence
from rec_summary.alerts.holding import Holding


class Point(NamedTuple):
    """A recorded number.

    Attributes:
        run: The run's name.
        rank: The rank that recorded it.
        tag: Its tag.
        step: The training step.
        wall_time: When it was recorded, in seconds since the epoch.
        value: The number: a float32 as a float.
    """

    run: str
    rank: int
    tag: str
    step: int
    wall_time: float
    value: float


@dataclass(frozen=True)
class Transition:
    """The beginning or the end of an alert.

    Attributes:
        firing: Whether it begins.
        rule: Whose alert it is.
        run: The run's name.
        rank: The rank.
        tag: The tag of the value that was decisive; None if the rule speaks of no tag.
        step: The step of that value, or the last one; None if none is known.
        wall_time: When that was, in seconds since the epoch: the time of the record, or the
            real time of what only time can tell.
        value: That value; None for `no data`.
        reason: What was seen, in a few words.
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
    """The state of one alert of a rule about values."""

    def __init__(self, rule: Rule, run: str, rank: int) -> None:
        self._rule = rule
        self._run = run
        self._rank = rank
        assert not isinstance(rule.condition, Silence)
        self._holding = Holding(rule.condition)
        self._since: tuple[float, int] | None = None  # the time and step from which it holds
        self.fired: Transition | None = None

    def take(self, point: Point) -> Transition | None:
        """Judges a value; tells if the alert begins or ends with it."""
        holds = self._holding.take(point.tag, point.step, point.wall_time, point.value)
        if holds is None:
            return None
        if not holds:
            self._since = None
            if self.fired is None:
                return None
            self.fired = None
            return self._transition(point, firing=False)
        time, step = self._since or (point.wall_time, point.step)
        self._since = time, step = min(time, point.wall_time), min(step, point.step)
        lasting = self._rule.lasting
        if self.fired is not None or not (
            lasting is None or lasting.covers(point.wall_time - time, point.step - step)
        ):
            return None
        self.fired = self._transition(point, firing=True)
        return self.fired

    def _transition(self, point: Point, *, firing: bool) -> Transition:
        reason = f"{point.tag} = {point.value:.6g} at step {point.step}"
        extreme = self._holding.extreme
        if firing and extreme is not None:
            reason += f", from {extreme:.6g}"
        return Transition(
            firing,
            self._rule,
            self._run,
            self._rank,
            point.tag,
            point.step,
            point.wall_time,
            point.value,
            reason,
        )


@dataclass
class SilenceAlert:
    """The state of one alert of a `no data` rule. Attributes as in `Transition`."""

    rule: Rule
    run: str
    rank: int
    tag: str | None
    seen: float  # when something came last, in real time
    step: int | None = None
    fired: Transition | None = None

    @property
    def limit(self) -> float:
        assert isinstance(self.rule.condition, Silence)
        return self.rule.condition.span.seconds or math.inf

    def hear(self, seen: float, step: int | None) -> Transition | None:
        """Something came; tells if the alert ends with it."""
        self.seen = max(self.seen, seen)
        self.step = self.step if step is None else step
        return self.end(seen, "data again")

    def end(self, now: float, reason: str) -> Transition | None:
        """Ends the alert, if it fires."""
        if self.fired is None:
            return None
        self.fired = None
        return self._transition(now, reason, firing=False)

    def tick(self, now: float) -> Transition | None:
        """Tells if the alert begins."""
        if self.fired is not None or now - self.seen < self.limit:
            return None
        what = "nothing recorded" if self.tag is None else f"nothing recorded as {self.tag}"
        behind = "" if self.step is None else f", the last at step {self.step}"
        reason = f"{what} for {_duration(now - self.seen)}{behind}"
        self.fired = self._transition(now, reason, firing=True)
        return self.fired

    def _transition(self, now: float, reason: str, *, firing: bool) -> Transition:
        return Transition(
            firing, self.rule, self.run, self.rank, self.tag, self.step, now, None, reason
        )


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
