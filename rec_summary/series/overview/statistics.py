"""Statistics of series: the last value, the extremes, and means for a sparkline.

Memory is bounded: a series of any length is a few numbers and at most 128 means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rec_summary.arrays import Floats, Integers
from rec_summary.metrics.tags import SLICE_TAG
from rec_summary.series.batch import Columns, Span

HEALTH: Final = "rec_summary/"
"""The beginning of the tags of the telemetry's counters of itself; they are listed last."""

_MOST_BUCKETS: Final = 128  # even; a screen has fewer columns for a sparkline
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


class BucketMeans:
    """The means of a series in buckets of equally many values.

    When there are too many buckets, neighbours are joined, so memory is bounded.
    """

    def __init__(self) -> None:
        """Begins without values."""
        self._size = 1  # values of a bucket
        self._count = 0
        self._sums: Floats = np.zeros((2, 0))  # of each bucket, and how many values are finite

    def extend(self, values: Floats) -> None:
        """Adds values, of shape [n]."""
        count = self._count + len(values)
        size = self._size
        while size * _MOST_BUCKETS < count:
            size *= 2
        known = self._sums
        if size > self._size and known.size:
            known = np.add.reduceat(known, range(0, known.shape[1], size // self._size), axis=1)
        self._sums = _by_bucket(np.arange(self._count, count) // size, values, -(-count // size))
        self._sums[:, : known.shape[1]] += known
        self._size, self._count = size, count

    def means(self, most: int = _MOST_BUCKETS) -> Floats:
        """Returns at most `most` means of finite values; NaN where a bucket has none."""
        means = _divided(self._sums)
        if len(means) <= most:
            return means
        # Bucket i of the result begins at mean i * len(means) // most.
        edges = np.arange(1, most) * len(means) // most
        buckets = np.searchsorted(edges, np.arange(len(means)), side="right")
        return _divided(_by_bucket(buckets, means, most))


def _by_bucket(buckets: Integers, values: Floats, length: int) -> Floats:
    """Returns the sum of the finite values of each bucket, and how many there are: [2, length]."""
    finite = np.isfinite(values)
    weights = np.where(finite, values, 0.0), finite
    return np.array([np.bincount(buckets, each, length) for each in weights])


def _divided(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        means: Floats = sums[0] / sums[1]
    return means


class _Extremes:
    """Keeps the last value and the extremes of scalars; dataclasses below have the fields."""

    last: float | None
    least: float | None
    greatest: float | None
    not_finite: int

    def _extend(self, values: Floats) -> None:
        """Adds values, of which there is at least one."""
        self.last = float(values[-1])
        finite = values[np.isfinite(values)]
        self.not_finite += len(values) - len(finite)
        if len(finite):
            least, greatest = float(finite.min()), float(finite.max())
            self.least = least if self.least is None else min(self.least, least)
            self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)


@dataclass
class TagSummary(_Extremes):
    """The values of a tag in short.

    Attributes:
        tag: The tag.
        kind: `scalar`, `histogram`, `image`, `tensor` or `loss_landscape`.
        values: How many values there are.
        first_step: The lowest step.
        last_step: The highest step.
        nbytes: The size of the values.
        last: The last value, of a scalar.
        least: The least finite value, of a scalar.
        greatest: The greatest finite value, of a scalar.
        not_finite: How many values are NaN or infinite, of a scalar.
    """

    tag: str
    kind: str
    values: int
    first_step: int
    last_step: int
    nbytes: int = 0
    last: float | None = None
    least: float | None = None
    greatest: float | None = None
    not_finite: int = 0

    def add(self, span: Span) -> None:
        """Adds the number of values of a batch, and their steps."""
        self.values += span.values
        self.first_step = min(self.first_step, span.first_step)
        self.last_step = max(self.last_step, span.last_step)

    def extend(self, columns: Columns, nbytes: int) -> None:
        """Adds scalars, of which there is at least one, each of `nbytes` bytes."""
        self.nbytes += nbytes * len(columns.values)
        self._extend(columns.values)


def folded(tags: Iterable[TagSummary]) -> list[TagSummary]:
    """Returns tags, with one for all slices of a column and a metric that says how many there are.

    It has no last value.
    """
    groups: dict[tuple[str, ...], list[TagSummary]] = {}
    for each in tags:
        match = SLICE_TAG.fullmatch(each.tag)
        is_value = match is not None and match["value"] is not None
        parts = (f"{match['start']}=", match["rest"]) if match and is_value else (each.tag,)
        groups.setdefault((each.kind, *parts), []).append(each)
    return [
        _together(f"({len(of):,} values)".join(parts), of) for (_, *parts), of in groups.items()
    ]


def _together(tag: str, slices: Sequence[TagSummary]) -> TagSummary:
    first, *others = slices
    if not others:
        return first
    least = [each.least for each in slices if each.least is not None]
    greatest = [each.greatest for each in slices if each.greatest is not None]
    return TagSummary(
        tag,
        first.kind,
        sum(each.values for each in slices),
        min(each.first_step for each in slices),
        max(each.last_step for each in slices),
        sum(each.nbytes for each in slices),
        least=min(least, default=None),
        greatest=max(greatest, default=None),
        not_finite=sum(each.not_finite for each in slices),
    )


@dataclass
class ScalarSummary(_Extremes):
    """The scalars of a tag, of one run and rank.

    Attributes:
        run: The run's name.
        rank: The rank.
        tag: The tag.
        count: How many values there are.
        step: The step of the last value.
        wall_time: When the last value was recorded, in seconds since the epoch.
        last: The last value.
        least: The least finite value.
        greatest: The greatest finite value.
        not_finite: How many values are NaN or infinite.
        means: The means that a sparkline shows.
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
    means: BucketMeans = field(default_factory=BucketMeans)

    def extend(self, columns: Columns) -> None:
        """Adds values, of which there is at least one."""
        self.count += len(columns.values)
        self.step, self.wall_time = int(columns.steps[-1]), float(columns.wall_times[-1])
        self.means.extend(columns.values)
        self._extend(columns.values)

    def sparkline(self, width: int = 24) -> str:
        """Returns at most `width` characters; `×` stands for a bucket without finite values."""
        heights = relative_heights(self.means.means(width))
        return "".join(
            "×" if math.isnan(height) else _BLOCKS[max(0, math.ceil(height * len(_BLOCKS)) - 1)]
            for height in heights.tolist()
        )


def relative_heights(means: Floats) -> Floats:
    """Returns means scaled to 0 (the least) up to 1; a half if they are all the same, else NaN."""
    finite = means[np.isfinite(means)]
    if not len(finite):
        return np.full(means.shape, np.nan)
    # Halves, because the least and the greatest float are further apart than any float.
    low, span = finite.min() / 2, finite.max() / 2 - finite.min() / 2
    if not span:
        return np.where(np.isfinite(means), 0.5, np.nan)
    heights: Floats = np.where(np.isfinite(means), (means / 2 - low) / span, np.nan)
    return heights
