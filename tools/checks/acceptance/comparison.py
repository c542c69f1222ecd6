"""What is expected against what is shown, in both directions."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from PIL import Image

from .expected import Distribution, Picture

MOST_POINTS: Final = {"histograms": 51, "distributions": 501}
"""Dashboards that show a sample of a longer series, whatever they are asked for, and the last
point. Which points these are is TensorBoard's choice, how many is not."""
_FIRST: Final = 4
_LONGEST: Final = 300

Groups = dict[tuple[Any, ...], list[Any]]


@dataclass(frozen=True)
class Comparison:
    """The result for one dashboard.

    Attributes:
        name: The dashboard.
        expected: How many values must be shown.
        shown: How many are shown.
        differences: What is missing, what is different, what was not recorded.
    """

    name: str
    expected: int
    shown: int
    differences: tuple[str, ...]


def compare(name: str, expected: Iterable[Any], shown: Iterable[Any]) -> Comparison:
    """Compares pairs of keys and values."""
    wanted, answered = _grouped(expected), _grouped(shown)
    if name in MOST_POINTS:
        wanted = _sampled(wanted, answered, MOST_POINTS[name])
    differences = []
    for key, values in wanted.items():
        answers = answered.get(key, [])
        if not answers:
            differences.append(f"missing: {_text(key)} = {_text(values[0])}")
        elif len(answers) != len(values):
            differences.append(f"{len(answers)} in place of {len(values)} values: {_text(key)}")
        elif not all(map(same, values, answers)):
            differences.append(f"{_text(key)}: {_text(answers)} in place of {_text(values)}")
    differences += [
        f"not recorded: {_text(key)} = {_text(answers[0])}"
        for key, answers in answered.items()
        if key not in wanted
    ]
    numbers = (sum(map(len, groups.values())) for groups in (wanted, answered))
    return Comparison(name, *numbers, tuple(differences))


def table(comparisons: Iterable[Comparison]) -> str:
    """Returns the results as text: a line for each dashboard, and its first differences."""
    lines = [f"{'dashboard':<16}{'expected':>10}{'shown':>10}{'wrong':>8}"]
    for result in comparisons:
        wrong = len(result.differences)
        lines.append(f"{result.name:<16}{result.expected:>10,}{result.shown:>10,}{wrong:>8,}")
        lines.extend(f"    {difference}" for difference in result.differences[:_FIRST])
        if wrong > _FIRST:
            lines.append(f"    and {wrong - _FIRST:,} more")
    return "\n".join(lines)


def same(expected: Any, shown: Any) -> bool:
    """Whether two values are the same; numbers in texts may be rounded."""
    if isinstance(expected, Distribution):
        return _same_distribution(expected, shown)
    if isinstance(expected, Picture):
        return _same_picture(expected, shown)
    if isinstance(expected, tuple | list) and isinstance(shown, tuple | list):
        return len(expected) == len(shown) and all(map(same, expected, shown))
    if isinstance(expected, str) and isinstance(shown, str) and expected != shown:
        words, others = expected.split(), shown.split()
        return len(words) == len(others) > 1 and all(map(_same_word, words, others))
    if isinstance(expected, float) and isinstance(shown, float) and math.isnan(expected):
        return math.isnan(shown)
    return bool(expected == shown)


def _same_word(expected: str, shown: str) -> bool:
    """Whether two words are the same, or numbers that differ by rounding."""
    if expected == shown:
        return True
    try:
        return math.isclose(float(expected), float(shown), rel_tol=2e-5)
    except ValueError:
        return False


def _close(expected: float, shown: float) -> bool:
    return expected == shown or math.isclose(expected, shown, rel_tol=1e-6, abs_tol=1e-37)


def _same_distribution(expected: Distribution, shown: Any) -> bool:
    if isinstance(shown, tuple):  # percentiles, from the least value to the greatest
        wall_time, values = shown
        if wall_time != expected.wall_time or values != sorted(values):
            return False
        ends = (values[0], values[-1])
        return all(map(_close, expected.bounds, ends)) if expected.bounds else not any(values)
    if (expected.wall_time, expected.count) != (shown.wall_time, shown.count):
        return False
    if len(expected.bounds) != len(shown.bounds):
        return False
    if not all(map(_close, expected.bounds, shown.bounds)):
        return False
    if expected.buckets is None:
        return True
    return len(expected.buckets) == len(shown.buckets) and all(
        map(_same_bucket, expected.buckets, shown.buckets)
    )


def _same_bucket(expected: tuple[float, ...], shown: tuple[float, ...]) -> bool:
    """Whether two buckets are the same; an edge next to zero is as exact as the other one."""
    exact = 1e-6 * max(map(abs, expected[:2]))
    return expected[2] == shown[2] and all(
        abs(one - other) <= exact for one, other in zip(expected[:2], shown[:2], strict=True)
    )


def _same_picture(expected: Picture, shown: Picture) -> bool:
    """Whether the bytes are the same; for a picture that was drawn, whether it is plain."""
    if expected.wall_time != shown.wall_time or shown.data is None:
        return False
    if expected.data is not None:
        return expected.data == shown.data
    with Image.open(io.BytesIO(shown.data)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return bool((pixels == pixels[0, 0]).all()) == expected.is_plain


def _grouped(items: Iterable[tuple[tuple[Any, ...], Any]]) -> Groups:
    groups: Groups = {}
    for key, value in items:
        groups.setdefault(key, []).append(value)
    return groups


def _sampled(wanted: Groups, answered: Groups, most: int) -> Groups:
    """Leaves out points that are not shown because their series has more than `most`."""
    series: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for key in sorted(wanted, key=lambda key: key[-1]):
        series.setdefault(key[:-1], []).append(key)
    left_out = set()
    for *keys, last in series.values():
        shown = sum(key in answered for key in keys) + 1
        if last in answered and shown == most < len(keys) + 1:
            left_out |= {key for key in keys if key not in answered}
    return {key: values for key, values in wanted.items() if key not in left_out}


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
