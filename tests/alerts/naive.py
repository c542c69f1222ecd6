"""The rules once more, as slow and as plain as possible: what `Engine` must agree with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rec_summary.alerts.rules import Compare, NotFinite, Rule, float32


class Point(NamedTuple):
    """A value that was recorded.

    Attributes:
        tag: Its tag.
        step: The training step.
        wall_time: When it was recorded, in seconds since the epoch.
        value: The value, a float32.
    """

    tag: str
    step: int
    wall_time: float
    value: float


def transitions(rule: Rule, points: Sequence[Point]) -> list[tuple[int, bool]]:
    """Returns, for one run and rank, at which point an alert begins (True) or ends."""
    found = []
    for tag in {point.tag for point in points}:
        if rule.condition.tag.matches(tag):
            mine = [(at, point) for at, point in enumerate(points) if point.tag == tag]
            found += _alert(rule, mine)
    return sorted(found)


def _alert(rule: Rule, points: list[tuple[int, Point]]) -> list[tuple[int, bool]]:
    found = []
    firing = False
    streak: list[Point] = []
    for count in range(1, len(points) + 1):
        at, point = points[count - 1]
        holds = _holds(rule.condition, [p for _, p in points[:count]])
        if holds is None:
            continue
        if not holds:
            streak = []
            if firing:
                found.append((at, False))
            firing = False
            continue
        streak.append(point)
        if not firing and (rule.lasting is None or _lasts(rule.lasting, streak)):
            found.append((at, True))
            firing = True
    return found


def _lasts(seconds: float, streak: list[Point]) -> bool:
    return streak[-1].wall_time - min(p.wall_time for p in streak) >= seconds


def within(seconds: float, past: Sequence[Point]) -> list[float]:
    """Returns the finite values that count within a span before the last value, with that."""
    kept: list[Point] = []
    for p in past:
        if math.isnan(p.value):
            continue
        before = len(kept)
        kept = [q for q in kept if q.step <= p.step and q.wall_time <= p.wall_time]
        if kept and len(kept) < before:  # a restart: the time in between does not count
            gap = p.wall_time - kept[-1].wall_time
            kept = [Point(q.tag, q.step, q.wall_time + gap, q.value) for q in kept]
        kept += [p] if math.isfinite(p.value) else []
    return [q.value for q in kept if past[-1].wall_time - q.wall_time <= seconds]


def _holds(condition: Any, past: list[Point]) -> bool | None:
    """Whether a condition holds at the last value of the past; None if that is skipped."""
    value = past[-1].value
    if isinstance(condition, NotFinite):
        return not math.isfinite(value)
    if math.isnan(value):
        return None
    if isinstance(condition, Compare):
        number = float32(condition.number)
        return {
            ">": value > number,
            ">=": value >= number,
            "<": value < number,
            "<=": value <= number,
            "==": value == number,
            "!=": value != number,
        }[condition.operator]
    values = within(condition.within, past)
    if not values:
        return False
    extreme = min(values) if condition.rises else max(values)
    change = value - extreme if condition.rises else extreme - value
    return change > 0 and change >= (
        condition.amount * 0.01 * abs(extreme) if condition.relative else condition.amount
    )
