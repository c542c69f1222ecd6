"""Scalars as they are shown at a glance: the last value, the extremes, a line of the course."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_POINTS: Final = 128  # even; of the course no more are kept than a screen has columns for
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


@dataclass
class Course:
    """The course of a series in bounded memory: means of stretches that grow with it.

    Attributes:
        means: The mean of the finite values of each complete stretch; NaN if there are none.
    """

    means: list[float] = field(default_factory=list)
    _stretch: int = 1
    _sum: float = 0.0
    _finite: int = 0
    _held: int = 0

    def add(self, value: float) -> None:
        """Takes the next value."""
        if math.isfinite(value):
            self._sum += value
            self._finite += 1
        self._held += 1
        if self._held < self._stretch:
            return
        self.means.append(self._mean())
        self._sum, self._finite, self._held = 0.0, 0, 0
        if len(self.means) == _POINTS:
            pairs = zip(self.means[::2], self.means[1::2], strict=True)
            self.means = [_mean_of(pair) for pair in pairs]
            self._stretch *= 2

    def points(self) -> list[float]:
        """Returns the means, that of the stretch at hand included."""
        return [*self.means, self._mean()] if self._held else list(self.means)

    def _mean(self) -> float:
        return self._sum / self._finite if self._finite else math.nan


@dataclass
class Series:
    """The scalars of a tag, of one run and rank.

    Attributes:
        run: The run's name.
        rank: The rank.
        tag: The tag.
        count: How many values there were.
        step: The last one's step.
        wall_time: Its time, in seconds since the epoch.
        last: The last value.
        least: The least finite value.
        greatest: The greatest finite value.
        not_finite: How many values are NaN or infinite.
        course: What a line of it shows.
    """

    run: str
    rank: int
    tag: str
    count: int = 0
    step: int = 0
    wall_time: float = 0.0
    last: float = math.nan
    least: float | None = None
    greatest: float | None = None
    not_finite: int = 0
    course: Course = field(default_factory=Course)

    def add(self, step: int, wall_time: float, value: float) -> None:
        """Takes the next value."""
        self.count += 1
        self.step, self.wall_time, self.last = step, wall_time, value
        self.course.add(value)
        if not math.isfinite(value):
            self.not_finite += 1
            return
        self.least = value if self.least is None else min(self.least, value)
        self.greatest = value if self.greatest is None else max(self.greatest, value)

    def sparkline(self, width: int = 24) -> str:
        """Returns the course as characters, at most `width`; `×` where nothing is finite."""
        points = shortened(self.course.points(), width)
        finite = [point for point in points if math.isfinite(point)]
        if not finite:
            return "×" * len(points)
        low, high = min(finite), max(finite)
        span = high - low
        if not math.isfinite(span):  # the least and the greatest float apart
            low, high, points = low / 2, high / 2, [point / 2 for point in points]
            span = high - low
        top = len(_BLOCKS) - 1
        return "".join(
            "×"
            if not math.isfinite(point)
            else _BLOCKS[min(top, int((point - low) / span * (top + 1)))]
            if span > 0
            else _BLOCKS[top // 2]
            for point in points
        )


def shortened(points: Sequence[float], width: int) -> list[float]:
    """Returns at most `width` means of neighbouring points."""
    if len(points) <= width:
        return list(points)
    edges = [index * len(points) // width for index in range(width + 1)]
    return [_mean_of(points[start:end]) for start, end in itertools.pairwise(edges)]


def _mean_of(points: Sequence[float]) -> float:
    finite = [point / len(points) for point in points if math.isfinite(point)]
    return sum(finite) * len(points) / len(finite) if finite else math.nan
