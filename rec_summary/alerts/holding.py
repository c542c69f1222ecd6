"""Whether a condition holds, value after value."""

from __future__ import annotations

import collections
import math
from typing import Final, NamedTuple

from rec_summary.alerts.conditions import (
    COMPARISONS,
    AllOf,
    AnyOf,
    Change,
    Compare,
    Condition,
    IsNan,
    Leaf,
    Span,
    float32,
)

_PERCENT: Final = 0.01


class Holding:
    """The state of a condition: what is known of each of its comparisons.

    The truth of a whole is that of three-valued logic: it stays unknown as long as it
    depends on tags of which no value has come yet.
    """

    def __init__(self, condition: Condition) -> None:
        """Begins with nothing known."""
        self._root = _node(condition)

    def take(self, tag: str, step: int, wall_time: float, value: float) -> bool | None:
        """Takes a value; returns whether the condition holds with it.

        None means that the value does not judge: no comparison is about it, or it is NaN
        where a number is needed, or other values have to come first.
        """
        return self._root.holds if self._root.take(tag, step, wall_time, value) else None

    @property
    def extreme(self) -> float | None:
        """What the last value has dropped or risen from, if that is a part of what holds."""
        return self._root.extreme


class _Node:
    """Several conditions joined."""

    def __init__(self, parts: list[_Node | _LeafNode], *, every: bool) -> None:
        self._parts = parts
        self._every = every

    def take(self, tag: str, step: int, wall_time: float, value: float) -> bool:
        """Takes a value; returns whether any comparison could judge it."""
        taken = [part.take(tag, step, wall_time, value) for part in self._parts]  # all of them
        return any(taken)

    @property
    def holds(self) -> bool | None:
        known = [part.holds for part in self._parts]
        decisive = not self._every
        if decisive in known:
            return decisive
        return None if None in known else self._every

    @property
    def extreme(self) -> float | None:
        return next((part.extreme for part in self._parts if part.extreme is not None), None)


class _LeafNode:
    """One comparison, of every tag that matches it."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self._number = float32(leaf.number) if isinstance(leaf, Compare) else 0.0
        self._windows: dict[str, Window] = {}
        self._known: dict[str, bool] = {}  # whether it holds for each tag; of others nothing is
        self.extreme: float | None = None  # what the last value has dropped or risen from

    def take(self, tag: str, step: int, wall_time: float, value: float) -> bool:
        """Takes a value; returns whether this comparison could judge it."""
        if tag not in self._known and not self._leaf.tag.matches_tag(tag):
            return False
        holds = self._judge(tag, step, wall_time, value)
        if holds is None:
            return False
        self._known[tag] = holds
        return True

    @property
    def holds(self) -> bool | None:
        return any(self._known.values()) if self._known else None

    def _judge(self, tag: str, step: int, wall_time: float, value: float) -> bool | None:
        leaf = self._leaf
        if isinstance(leaf, IsNan):
            return math.isnan(value)
        if isinstance(leaf, Compare):
            return None if math.isnan(value) else COMPARISONS[leaf.operator](value, self._number)
        if not isinstance(leaf, Change):
            return not math.isfinite(value)
        if math.isnan(value):
            return None
        window = self._windows.get(tag)
        if window is None:
            window = self._windows[tag] = Window(leaf.within, lowest=leaf.rises)
        extreme = window.add(step, wall_time, value)
        if extreme is None:
            return False
        change = value - extreme if leaf.rises else extreme - value
        enough = leaf.amount * _PERCENT * abs(extreme) if leaf.relative else leaf.amount
        holds = change > 0 and change >= enough
        self.extreme = extreme if holds else None
        return holds


class _Seen(NamedTuple):
    step: int
    wall_time: float
    value: float


class Window:
    """The highest (or lowest) finite value of the last while.

    All values of that while are kept, because going back to an earlier step or time takes
    the later ones away again. Several values of one step all count: an evaluation without
    a step of its own may come again and again while training stands still.
    """

    def __init__(self, span: Span, *, lowest: bool) -> None:
        """Begins empty."""
        self._span = span
        self._sign = -1.0 if lowest else 1.0
        self._all: collections.deque[_Seen] = collections.deque()
        # Those that no later one surpasses; the first of them is the highest of all.
        self._best: collections.deque[_Seen] = collections.deque()

    def add(self, step: int, wall_time: float, value: float) -> float | None:
        """Takes the next value; returns the highest (lowest) one, this one included.

        None if there is no finite value within the span.

        Args:
            step: Its step.
            wall_time: Its time, in seconds.
            value: The value; not NaN.
        """
        went_back = False
        while self._all and (self._all[-1].step > step or self._all[-1].wall_time > wall_time):
            self._all.pop()
            went_back = True
        if went_back:
            self._best.clear()
            for each in self._all:
                self._push(each)
        if math.isfinite(value):
            seen = _Seen(step, wall_time, value)
            self._all.append(seen)
            self._push(seen)
        for kept in (self._all, self._best):
            while kept and self._is_over(kept[0], step, wall_time):
                kept.popleft()
        return self._best[0].value if self._best else None

    def _push(self, seen: _Seen) -> None:
        while self._best and self._best[-1].value * self._sign <= seen.value * self._sign:
            self._best.pop()
        self._best.append(seen)

    def _is_over(self, seen: _Seen, step: int, wall_time: float) -> bool:
        seconds = self._span.seconds
        if seconds is None:
            return step - seen.step > self._span.amount
        return wall_time - seen.wall_time > seconds


def _node(condition: Condition) -> _Node | _LeafNode:
    if isinstance(condition, AllOf | AnyOf):
        parts = [_node(part) for part in condition.parts]
        return _Node(parts, every=isinstance(condition, AllOf))
    return _LeafNode(condition)
