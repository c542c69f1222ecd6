"""Rules for checkpoints of an unbounded run: when they are saved, and which of them are kept.

    collect_specified_data={
        "collect_landscape": {"policy": SavePolicy(LogSpaced(5), KeepLogSpaced(20))}
    }

Each rule is a small object that decides from numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rec_summary.checks import check_int, check_that, check_type
from rec_summary.errors import three_part


class When(Protocol):
    """Decides whether a checkpoint is saved now."""

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """Whether a checkpoint is due.

        Args:
            number: The step or epoch that has just ended.
            last: The number of the last checkpoint; None before the first.
            seconds: The time since the last checkpoint, or since the start of the run.
        """


class Keep(Protocol):
    """Decides which checkpoints are kept."""

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """Returns the numbers to keep, of ascending numbers; the last one is always kept."""


@dataclass(frozen=True)
class EverySteps:
    """A checkpoint after every `steps` steps (or epochs), and after the first."""

    steps: int

    def __post_init__(self) -> None:
        check_int("EverySteps", self.steps)

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """As in `When`."""
        return last is None or number - last >= self.steps


@dataclass(frozen=True)
class LogSpaced:
    """Checkpoints at equal distances of the logarithm: dense at the start of training.

    Attributes:
        per_decade: Checkpoints from a step to ten times that step.
    """

    per_decade: int = 5

    def __post_init__(self) -> None:
        check_int("LogSpaced", self.per_decade)

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """As in `When`."""
        if last is None:
            return True
        # The first whole numbers are further apart than the rule requires.
        return number > last and number >= max(last, 1) * 10 ** (1 / self.per_decade) - 1e-9


@dataclass(frozen=True)
class EveryMinutes:
    """A checkpoint after every `minutes` minutes of wall time, and after the first step."""

    minutes: float

    def __post_init__(self) -> None:
        check_type("EveryMinutes", self.minutes, (int, float), "a number above 0")
        check_that(0 < self.minutes < math.inf, "EveryMinutes", self.minutes, "a number above 0")

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """As in `When`."""
        return last is None or seconds >= 60 * self.minutes


@dataclass(frozen=True)
class AnyWhen:
    """A checkpoint when any of the rules asks for one.

    Attributes:
        rules: Such as `(EverySteps(10_000), EveryMinutes(30))`.
    """

    rules: Sequence[When]

    def __post_init__(self) -> None:
        _check_rules("AnyWhen", self.rules, "due", "such as (EverySteps(1000), EveryMinutes(30))")

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """As in `When`."""
        return any(rule.due(number, last, seconds) for rule in self.rules)


@dataclass(frozen=True)
class KeepAll:
    """Keeps every checkpoint."""

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """As in `Keep`."""
        return set(numbers)


@dataclass(frozen=True)
class KeepLast:
    """Keeps the last `count` checkpoints."""

    count: int

    def __post_init__(self) -> None:
        check_int("KeepLast", self.count, 3)

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """As in `Keep`."""
        return set(numbers[-self.count :])


@dataclass(frozen=True)
class KeepLogSpaced:
    """Keeps at most `count` checkpoints, with the first and the last, dense at the start.

    It drops the checkpoint whose neighbours have the smallest ratio.
    """

    count: int

    def __post_init__(self) -> None:
        check_int("KeepLogSpaced", self.count, 3)

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """As in `Keep`."""
        kept = list(numbers)
        while len(kept) > self.count:
            ratios = [after / max(before, 1) for before, after in zip(kept, kept[2:], strict=False)]
            del kept[ratios.index(min(ratios)) + 1]
        return set(kept)


@dataclass(frozen=True)
class AnyKeep:
    """Keeps a checkpoint that any of the rules keeps.

    Attributes:
        rules: Such as `(KeepLast(5), KeepLogSpaced(20))`.
    """

    rules: Sequence[Keep]

    def __post_init__(self) -> None:
        _check_rules("AnyKeep", self.rules, "kept", "such as (KeepLast(5), KeepLogSpaced(20))")

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """As in `Keep`."""
        return set().union(*(rule.kept(numbers) for rule in self.rules))


@dataclass(frozen=True)
class SavePolicy:
    """When checkpoints are saved, and which of them are kept.

    Attributes:
        when: One of `EverySteps`, `LogSpaced`, `EveryMinutes`, `AnyWhen`, or an object like them.
        keep: One of `KeepAll`, `KeepLast`, `KeepLogSpaced`, `AnyKeep`, or an object like them.
    """

    when: When
    keep: Keep = field(default_factory=KeepAll)

    def __post_init__(self) -> None:
        """Checks the rules.

        Raises:
            TypeError: A rule lacks its method.
        """
        if not hasattr(self.when, "due"):
            raise TypeError(three_part("SavePolicy's when", self.when, "such as EverySteps(1000)"))
        if not hasattr(self.keep, "kept"):
            raise TypeError(three_part("SavePolicy's keep", self.keep, "such as KeepLast(20)"))


def _check_rules(name: str, rules: object, method: str, expected: str) -> None:
    """Raises an error unless these are rules with this method, at least one."""
    if not isinstance(rules, Sequence) or not all(hasattr(rule, method) for rule in rules):
        raise TypeError(three_part(name, rules, expected))
    check_that(rules, name, rules, expected)
