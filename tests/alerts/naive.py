"""The rules once more, as slow and as plain as they can be said: what `Engine` must agree with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from rec_summary.alerts.conditions import (
    AllOf,
    Change,
    Compare,
    IsNan,
    Rule,
    float32,
    leaves,
    patterns,
)
from rec_summary.alerts.states import Point


def transitions(rule: Rule, points: Sequence[Point]) -> list[tuple[int, bool, str | None]]:
    """Returns, for one run and rank: at which point, whether it fires, and of which tag."""
    several = len(patterns(rule.condition)) > 1
    tags = {point.tag for point in points}
    found = []
    for key in [None] if several else sorted(tags):
        mine = [(at, p) for at, p in enumerate(points) if key is None or p.tag == key]
        found += [(at, firing, key) for at, firing in _alert(rule, mine)]
    return sorted(found)


def _alert(rule: Rule, points: list[tuple[int, Point]]) -> list[tuple[int, bool]]:
    found = []
    firing = False
    streak: list[Point] = []
    for count in range(1, len(points) + 1):
        at, point = points[count - 1]
        past = [p for _, p in points[:count]]
        if all(_judged(leaf, point.tag, past) is None for leaf in leaves(rule.condition)):
            continue
        known = [_known(leaf, past) for leaf in leaves(rule.condition)]
        outcomes = {
            _truth(rule.condition, iter(guess))
            for guess in itertools.product((False, True), repeat=len(known))
            if all(k is None or k == g for k, g in zip(known, guess, strict=True))
        }
        if len(outcomes) == 2:
            continue
        if outcomes == {False}:
            streak = []
            if firing:
                found.append((at, False))
            firing = False
            continue
        streak.append(point)
        seconds = point.wall_time - min(p.wall_time for p in streak)
        steps = point.step - min(p.step for p in streak)
        if not firing and (rule.lasting is None or rule.lasting.covers(seconds, steps)):
            found.append((at, True))
            firing = True
    return found


def _known(leaf: Any, past: list[Point]) -> bool | None:
    """Whether a comparison holds for any tag, by the last value of each that it could judge."""
    last = []
    for tag in {p.tag for p in past}:
        for count in range(len(past), 0, -1):
            if past[count - 1].tag == tag:
                judged = _judged(leaf, tag, past[:count])
                if judged is not None:
                    last.append(judged)
                    break
    return any(last) if last else None


def _judged(leaf: Any, tag: str, past: list[Point]) -> bool | None:
    """What a comparison says of the last value of the past, which has this tag."""
    if not leaf.tag.matches_tag(tag):
        return None
    value = past[-1].value
    if isinstance(leaf, IsNan):
        return math.isnan(value)
    if isinstance(leaf, Compare):
        if math.isnan(value):
            return None
        number = float32(leaf.number)
        return {
            ">": value > number,
            ">=": value >= number,
            "<": value < number,
            "<=": value <= number,
            "==": value == number,
            "!=": value != number,
        }[leaf.operator]
    if not isinstance(leaf, Change):
        return math.isnan(value) or math.isinf(value)
    if math.isnan(value):
        return None
    kept: list[Point] = []
    for p in past:
        if p.tag != tag or math.isnan(p.value):
            continue
        kept = [q for q in kept if q.step <= p.step and q.wall_time <= p.wall_time]
        kept += [p] if math.isfinite(p.value) else []
        seconds = leaf.within.seconds
        if seconds is None:
            kept = [q for q in kept if p.step - q.step <= leaf.within.amount]
        else:
            kept = [q for q in kept if p.wall_time - q.wall_time <= seconds]
    if not kept:
        return False
    values = [q.value for q in kept]
    extreme = min(values) if leaf.rises else max(values)
    change = value - extreme if leaf.rises else extreme - value
    return change > 0 and change >= (
        leaf.amount * 0.01 * abs(extreme) if leaf.relative else leaf.amount
    )


def _truth(condition: Any, known: Any) -> bool:
    if not hasattr(condition, "parts"):
        return bool(next(known))
    parts = [_truth(part, known) for part in condition.parts]
    return all(parts) if isinstance(condition, AllOf) else any(parts)
