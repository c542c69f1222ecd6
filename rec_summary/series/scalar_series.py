"""Scalar series in bounded memory: the last value, the extremes, and a sparkline."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, Columns, Floats, Integers
from rec_summary.series.options import Selection
from rec_summary.series.report import Report
from rec_summary.series.values import finished

_MOST_BUCKETS: Final = 128  # even; a screen has fewer columns for a sparkline
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_NO_INTEGERS: Final[Integers] = np.zeros(0, np.int64)
_NO_FLOATS: Final[Floats] = np.zeros(0, np.float64)


class BucketMeans:
    """The means of a series in buckets of equally many values.

    When there are too many buckets, neighbours are joined, so memory is bounded.
    """

    def __init__(self) -> None:
        """Begins without values."""
        self._size = 1  # values of a bucket
        self._count = 0
        self._sums: Floats = np.zeros(0)
        self._finite: Floats = np.zeros(0)  # finite values of each bucket

    def extend(self, values: Floats) -> None:
        """Adds values, of shape [n]."""
        count = self._count + len(values)
        size = self._size
        while size * _MOST_BUCKETS < count:
            size *= 2
        self._join(size // self._size)
        buckets = np.arange(self._count, count) // size
        finite = np.isfinite(values)
        length = -(-count // size)
        sums, numbers = _by_bucket(buckets[finite], values[finite], length)
        sums[: len(self._sums)] += self._sums
        numbers[: len(self._finite)] += self._finite
        self._sums, self._finite = sums, numbers
        self._size, self._count = size, count

    def means(self, most: int = _MOST_BUCKETS) -> Floats:
        """Returns at most `most` means of finite values; NaN where a bucket has none."""
        means = _divided(self._sums, self._finite)
        if len(means) <= most:
            return means
        # Bucket i of the result begins at mean i * len(means) // most.
        edges = np.arange(1, most) * len(means) // most
        buckets = np.searchsorted(edges, np.arange(len(means)), side="right")
        finite = np.isfinite(means)
        return _divided(*_by_bucket(buckets[finite], means[finite], most))

    def _join(self, neighbours: int) -> None:
        starts = np.arange(0, len(self._sums), neighbours)
        if neighbours > 1 and len(starts):
            self._sums = np.add.reduceat(self._sums, starts)
            self._finite = np.add.reduceat(self._finite, starts)


def _by_bucket(buckets: Integers, values: Floats, length: int) -> tuple[Floats, Floats]:
    """Returns the sum of the values and how many there are, for each bucket."""
    sums = np.bincount(buckets, values, length)
    return sums.astype(np.float64), np.bincount(buckets, minlength=length).astype(np.float64)


def _divided(sums: Floats, numbers: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return sums / numbers


@dataclass
class ScalarSeries:
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
        values = columns.values
        self.count += len(values)
        self.step, self.wall_time = int(columns.steps[-1]), float(columns.wall_times[-1])
        self.last = float(values[-1])
        self.means.extend(values)
        finite = values[np.isfinite(values)]
        self.not_finite += len(values) - len(finite)
        if len(finite):
            least, greatest = float(finite.min()), float(finite.max())
            self.least = least if self.least is None else min(self.least, least)
            self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

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


def finished_scalars(
    run: Run,
    selection: Selection,
    report: Report,
    advance: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[tuple[int, Columns]]:
    """Yields ranks and scalars as `series.values.finished`, in columns of many values."""
    found = finished(run, (SCALAR,), selection, report, advance)
    for rank, batches in itertools.groupby(found, key=operator.itemgetter(0)):
        for columns in gathered(batch.scalars() for _, batch in batches):
            yield rank, columns


def concatenated(parts: Sequence[Columns]) -> Columns:
    """Returns columns as one, with each tag once."""
    numbers: dict[str, int] = {}
    codes = [_NO_INTEGERS]
    for part in parts:
        known = [numbers.setdefault(tag, len(numbers)) for tag in part.tags]
        codes.append(np.array(known, np.int64)[part.codes])
    return Columns(
        tuple(numbers),
        np.concatenate(codes),
        np.concatenate([_NO_INTEGERS, *(part.steps for part in parts)]),
        np.concatenate([_NO_FLOATS, *(part.wall_times for part in parts)]),
        np.concatenate([_NO_FLOATS, *(part.values for part in parts)]),
    )


def gathered(parts: Iterable[Columns], rows: int = 16_384) -> Iterator[Columns]:
    """Yields the same values in columns of about `rows` values or more, except the last."""
    held: list[Columns] = []
    count = 0
    for part in parts:
        if not len(part.codes):
            continue
        held.append(part)
        count += len(part.codes)
        if count >= rows:
            yield concatenated(held)
            held, count = [], 0
    if held:
        yield concatenated(held)


def by_tag(columns: Columns) -> Iterator[tuple[str, Columns]]:
    """Yields each tag and its values, in their order."""
    count = len(columns.tags)
    codes = columns.codes.astype(np.int16) if count < 1 << 15 else columns.codes  # sorts faster
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(count + 1))
    for tag, (start, end) in zip(columns.tags, itertools.pairwise(bounds.tolist()), strict=True):
        if start < end:
            yield tag, rows_of(columns, order[start:end])


def rows_of(columns: Columns, rows: slice | npt.NDArray[Any]) -> Columns:
    """Returns some rows of columns."""
    tags, codes, steps, wall_times, values = columns
    return Columns(tags, codes[rows], steps[rows], wall_times[rows], values[rows])
