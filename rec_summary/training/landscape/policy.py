"""When a run without an end keeps a checkpoint, and which checkpoints stay.

    collect_specified_data={
        "collect_landscape": {"policy": SavePolicy(LogSpaced(5), KeepLogSpaced(20))}
    }

Each rule is a small object that decides from numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rec_summary.errors import three_part


class When(Protocol):
    """Decides whether a checkpoint is kept now."""

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """Whether a checkpoint is due.

        Args:
            number: The step or epoch that has just ended.
            last: The number of the last checkpoint; None before the first.
            seconds: How long ago that was, or how long the run has lasted.
        """


class Keep(Protocol):
    """Decides which checkpoints stay."""

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """Returns those of the numbers, which are ascending, that stay; the last one always."""


@dataclass(frozen=True)
class EverySteps:
    """A checkpoint after every `steps` steps (or epochs), and after the first."""

    steps: int

    def __post_init__(self) -> None:
        _check("EverySteps", self.steps)

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """As in `When`."""
        return last is None or number - last >= self.steps


@dataclass(frozen=True)
class LogSpaced:
    """Checkpoints at even distances of the logarithm: dense early, when much happens.

    Attributes:
        per_decade: How many from a step to ten times that step.
    """

    per_decade: int = 5

    def __post_init__(self) -> None:
        _check("LogSpaced", self.per_decade)

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """As in `When`."""
        if last is None:
            return True
        # Whole numbers lie further apart than the rule asks for, at first.
        return number > last and number >= max(last, 1) * 10 ** (1 / self.per_decade) - 1e-9


@dataclass(frozen=True)
class EveryMinutes:
    """A checkpoint every so many minutes of wall time, and after the first step."""

    minutes: float

    def __post_init__(self) -> None:
        ok = isinstance(self.minutes, int | float) and not isinstance(self.minutes, bool)
        if not ok or not 0 < self.minutes < math.inf:
            raise ValueError(three_part("EveryMinutes", self.minutes, "a number above 0"))

    def due(self, number: int, last: int | None, seconds: float) -> bool:
        """As in `When`."""
        return last is None or seconds >= 60 * self.minutes


@dataclass(frozen=True)
class KeepAll:
    """Every checkpoint stays."""

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """As in `Keep`."""
        return set(numbers)


@dataclass(frozen=True)
class KeepLast:
    """The last `count` checkpoints stay."""

    count: int

    def __post_init__(self) -> None:
        _check("KeepLast", self.count, 3)

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """As in `Keep`."""
        return set(numbers[-self.count :])


@dataclass(frozen=True)
class KeepLogSpaced:
    """At most `count` checkpoints stay, from the first to the last, dense early.

    The one goes whose neighbours are closest to each other by their ratio.
    """

    count: int

    def __post_init__(self) -> None:
        _check("KeepLogSpaced", self.count, 3)

    def kept(self, numbers: Sequence[int]) -> set[int]:
        """As in `Keep`."""
        left = list(numbers)
        while len(left) > self.count:
            ratios = [
                left[index + 1] / max(left[index - 1], 1) for index in range(1, len(left) - 1)
            ]
            del left[ratios.index(min(ratios)) + 1]
        return set(left)


@dataclass(frozen=True)
class SavePolicy:
    """When checkpoints are kept, and which of them stay.

    Attributes:
        when: One of `EverySteps`, `LogSpaced`, `EveryMinutes`, or an object like them.
        keep: One of `KeepAll`, `KeepLast`, `KeepLogSpaced`, or an object like them.
    """

    when: When
    keep: Keep = field(default_factory=KeepAll)

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            TypeError: One is no such object.
        """
        if not hasattr(self.when, "due"):
            raise TypeError(three_part("SavePolicy's when", self.when, "such as EverySteps(1000)"))
        if not hasattr(self.keep, "kept"):
            raise TypeError(three_part("SavePolicy's keep", self.keep, "such as KeepLast(20)"))


def _check(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(three_part(name, value, f"an int of at least {least}"))
