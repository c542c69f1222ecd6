"""What is expected against what is shown, in both directions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

Items = Iterable[tuple[tuple[Any, ...], Any]]
"""Pairs of a key, such as run, tag and step, and what is to be seen there."""

_FIRST: Final = 4
_LONGEST: Final = 300


class Dashboard(Protocol):
    """What the module of a dashboard offers."""

    NAME: str

    def expected(self, records: Records) -> Items:
        """Yields what is to be shown of the records."""

    def shown(self, server: TensorBoardServer) -> Items:
        """Yields what TensorBoard shows."""


@dataclass(frozen=True)
class Comparison:
    """The result for one dashboard.

    Attributes:
        name: The dashboard.
        expected: How many values are to be shown.
        shown: How many are shown.
        differences: What is missing, what is other than recorded, what was not recorded.
    """

    name: str
    expected: int
    shown: int
    differences: tuple[str, ...]


def compare(dashboard: Any, records: Records, server: TensorBoardServer) -> Comparison:
    """Compares what one dashboard shows with the records.

    A dashboard with `MOST_POINTS` shows a sample of a longer series, and its last point: which
    points these are is TensorBoard's choice, how many there are is not.
    """
    same: Callable[[Any, Any], bool] = getattr(dashboard, "same", equal)
    wanted, found = _grouped(dashboard.expected(records)), _grouped(dashboard.shown(server))
    if (most := getattr(dashboard, "MOST_POINTS", None)) is not None:
        wanted = _sampled(wanted, found, most)
    differences = []
    for key, values in wanted.items():
        answers = found.get(key, [])
        if not answers:
            differences.append(f"missing: {_text(key)} = {_text(values[0])}")
        elif len(answers) != len(values):
            differences.append(f"{len(answers)} in place of {len(values)} values: {_text(key)}")
        elif not all(same(*pair) for pair in zip(values, answers, strict=True)):
            differences.append(f"{_text(key)}: {_text(answers)} in place of {_text(values)}")
    for key in found:
        if key not in wanted:
            differences.append(f"not recorded: {_text(key)} = {_text(found[key][0])}")
    return Comparison(
        dashboard.NAME,
        sum(map(len, wanted.values())),
        sum(map(len, found.values())),
        tuple(differences),
    )


def table(comparisons: Iterable[Comparison]) -> str:
    """Returns the results as text: a line for each dashboard, and its first differences."""
    lines = [f"{'dashboard':<16}{'expected':>10}{'shown':>10}{'wrong':>8}"]
    for each in comparisons:
        wrong = len(each.differences)
        lines.append(f"{each.name:<16}{each.expected:>10,}{each.shown:>10,}{wrong:>8,}")
        lines.extend(f"    {difference}" for difference in each.differences[:_FIRST])
        if wrong > _FIRST:
            lines.append(f"    and {wrong - _FIRST:,} more")
    return "\n".join(lines)


def equal(expected: Any, shown: Any) -> bool:
    """Whether two values are equal; NaN is equal to itself."""
    if isinstance(expected, tuple | list) and isinstance(shown, tuple | list):
        return len(expected) == len(shown) and all(map(equal, expected, shown))
    if isinstance(expected, float) and isinstance(shown, float) and math.isnan(expected):
        return math.isnan(shown)
    return bool(expected == shown)


def close(expected: float, shown: float) -> bool:
    """Whether two numbers are equal but for what is lost in 32 bits."""
    return expected == shown or math.isclose(expected, shown, rel_tol=1e-6, abs_tol=1e-37)


def _grouped(items: Items) -> dict[tuple[Any, ...], list[Any]]:
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for key, value in items:
        groups.setdefault(key, []).append(value)
    return groups


def _sampled(
    wanted: dict[tuple[Any, ...], list[Any]], found: dict[tuple[Any, ...], list[Any]], most: int
) -> dict[tuple[Any, ...], list[Any]]:
    """Leaves out points that are not shown because their series has more than `most`."""
    series: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for key in sorted(wanted, key=lambda each: each[-1]):
        series.setdefault(key[:-1], []).append(key)
    left_out = set()
    for *keys, last in series.values():
        shown = sum(key in found for key in keys) + 1
        if last in found and shown == most < len(keys) + 1:
            left_out |= {key for key in keys if key not in found}
    return {key: values for key, values in wanted.items() if key not in left_out}


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
