"""What a rule consists of. Each part prints as the text that `grammar.parse` reads.

Values are recorded as float32, so a number in a rule means the nearest float32: a
learning rate recorded as 0.1 is `== 0.1`.
"""

from __future__ import annotations

import fnmatch
import operator
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
STEPS: Final = "steps"
_AUTOMATIC: Final = "/auto"  # what collectors add to the tags of what they record by themselves
_WILD: Final = frozenset("*?[")


@dataclass(frozen=True)
class Pattern:
    """Which tags, or which runs, are meant.

    Attributes:
        text: A name, a part of one, or a pattern as of `fnmatch`.
        exact: Whether `text` is a whole name, taken literally (it stood in quotation marks).
    """

    text: str
    exact: bool = False

    def matches_tag(self, tag: str) -> bool:
        """Whether a tag is meant.

        In quotation marks: the tag itself, nothing else. With one of `* ? [`: a pattern for
        the whole tag, where `*` also matches `/`. Otherwise the tag itself, or its last part
        or parts, where a trailing `/auto` does not count: `loss` means `loss`, `loss/auto`
        and `eval/loss`, but neither `loss/x` nor `total_loss`.
        """
        if tag == self.text:
            return True
        if self.exact:
            return False
        if _WILD.intersection(self.text):
            return fnmatch.fnmatchcase(tag, self.text)
        short = tag.removesuffix(_AUTOMATIC)
        return any(name == self.text or name.endswith(f"/{self.text}") for name in (tag, short))

    def matches_run(self, run: str) -> bool:
        """Whether a run is meant; as for `--runs`, a pattern is for the whole name."""
        return run == self.text or (not self.exact and fnmatch.fnmatchcase(run, self.text))

    def __str__(self) -> str:
        if not self.exact:
            return self.text
        return '"' + self.text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True)
class Span:
    """A length of time or a number of steps.

    Attributes:
        amount: How much; positive and finite, whole for steps.
        unit: `s`, `m`, `h`, `d` or `steps`.
    """

    amount: float
    unit: str

    @property
    def seconds(self) -> float | None:
        """How many seconds; None for steps."""
        return None if self.unit == STEPS else self.amount * SECONDS[self.unit]

    def covers(self, seconds: float, steps: int) -> bool:
        """Whether a distance in time and steps is at least this."""
        mine = self.seconds
        return steps >= self.amount if mine is None else seconds >= mine

    def __str__(self) -> str:
        return f"{shown(self.amount)}{' ' if self.unit == STEPS else ''}{self.unit}"


@dataclass(frozen=True)
class Compare:
    """A value compared with a number."""

    tag: Pattern
    operator: str
    number: float

    def __str__(self) -> str:
        return f"{self.tag} {self.operator} {shown(self.number)}"


@dataclass(frozen=True)
class IsNan:
    """A value that is not a number."""

    tag: Pattern

    def __str__(self) -> str:
        return f"{self.tag} is nan"


@dataclass(frozen=True)
class NotFinite:
    """A value that is NaN or infinite."""

    tag: Pattern

    def __str__(self) -> str:
        return f"{self.tag} is not finite"


@dataclass(frozen=True)
class Change:
    """A value that is far from the highest, or the lowest, of those shortly before.

    Attributes:
        tag: The value.
        rises: Whether it rises from the lowest; else it drops from the highest.
        amount: By how much; positive.
        relative: Whether `amount` is a percentage of the size of that highest or lowest.
        within: How long before.
    """

    tag: Pattern
    rises: bool
    amount: float
    relative: bool
    within: Span

    def __str__(self) -> str:
        verb, percent = "rises" if self.rises else "drops", "%" if self.relative else ""
        return f"{self.tag} {verb} {shown(self.amount)}{percent} within {self.within}"


@dataclass(frozen=True)
class Silence:
    """Nothing new for a time, while the run has not ended.

    Attributes:
        tag: Values of this tag; None for anything at all.
        span: For how long; a time, not steps.
    """

    tag: Pattern | None
    span: Span

    def __str__(self) -> str:
        return f"{'' if self.tag is None else f'{self.tag} '}no data for {self.span}"


@dataclass(frozen=True)
class AllOf:
    """Several conditions that hold together; at least two."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(_nested(part, (AllOf, AnyOf)) for part in self.parts)


@dataclass(frozen=True)
class AnyOf:
    """Several conditions of which one holds; at least two."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " or ".join(_nested(part, (AnyOf,)) for part in self.parts)


Leaf = Compare | IsNan | NotFinite | Change
Condition = Leaf | AllOf | AnyOf


@dataclass(frozen=True)
class Rule:
    """What an alert is raised for.

    Attributes:
        condition: What has to hold.
        lasting: For how long, without a break; None for once.
        run: In which runs; None for all.
        name: What it is called; None if it is known by its text.
    """

    condition: Condition | Silence
    lasting: Span | None = None
    run: Pattern | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """The rule without its name."""
        run = "" if self.run is None else f"run:{self.run} "
        return f"{run}{self.condition}{'' if self.lasting is None else f' for {self.lasting}'}"

    @property
    def title(self) -> str:
        """Its name, or else its text."""
        return self.text if self.name is None else self.name

    def matches_run(self, run: str) -> bool:
        """Whether it concerns a run."""
        return self.run is None or self.run.matches_run(run)

    def __str__(self) -> str:
        return self.text if self.name is None else f"{self.name}: {self.text}"


def leaves(condition: Condition) -> Iterator[Leaf]:
    """Yields the comparisons of a condition, from left to right."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from leaves(part)
    else:
        yield condition


def patterns(condition: Condition | Silence) -> list[Pattern]:
    """Returns the different tags or patterns that a condition speaks of, in order."""
    if isinstance(condition, Silence):
        return [] if condition.tag is None else [condition.tag]
    return list(dict.fromkeys(leaf.tag for leaf in leaves(condition)))


def float32(number: float) -> float:
    """Returns the nearest float32.

    Raises:
        OverflowError: It is beyond what float32 holds.
    """
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def shown(number: float) -> str:
    """Returns the shortest text that is read as this number again."""
    return repr(float(number)).removesuffix(".0")


def _nested(part: Condition, kinds: tuple[type, ...]) -> str:
    return f"({part})" if isinstance(part, kinds) else str(part)
