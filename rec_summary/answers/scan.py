"""Finds where series left their own recent past, in standard errors.

Each report, and each row of 2, 4, 8 and more reports, is compared with the reports before it. The
standard error is that of sampling, and never below it: a model wanders, and its series are less
even than their samples. So it is multiplied by the median of the same comparisons of the series, as
far as this is larger than chance makes it, or of all series that are scanned with it. The median
does not see a change, as long as less than half of the run is compared across it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple, Protocol

import numpy as np

from rec_summary.arrays import Flags, Floats, Integers

FALSE_FINDINGS: Final = 0.01
"""How many findings there may be by chance in a run, all comparisons together."""

_PAST: Final = 8  # reports that are compared with; twice as many as are compared, if that is more
LEAST_PAST: Final = 3
_LONGEST: Final = 8  # rows of reports are at most this part of the run
_FEWEST: Final = 8  # comparisons that a median needs
_POOLED: Final = 40  # rows of one series that count as much as all other series
_MEDIAN_OF: Final = 1000  # comparisons, of many
_QUANTILE: Final = (
    0.4  # of |z|: more of a run may be compared across a change than the median bears
)
_NORMAL: Final = 0.5244  # this quantile by chance
_BACK: Final = 0.25  # of a change: what may be left of it when it is over
_TREND: Final = 0.25  # of a change: what its past may have moved in the same way
_PARTLY: Final = 2.5  # z of one report before the likeliest onset, that is then the onset
_LIKELY: Final = 6.0  # the fall of z² within the interval of an onset


class Change(NamedTuple):
    """How far series moved between two intervals; all of shape (intervals, series).

    Attributes:
        delta: After minus before; NaN where there are too few examples.
        variance: That of `delta`.
        is_bad: Whether such a change is looked for.
    """

    delta: Floats
    variance: Floats
    is_bad: Flags


ALL: Final = slice(None)


class Compare(Protocol):
    """Returns the change from reports [begin, end) to reports [start, stop) of some series."""

    def __call__(
        self,
        begin: Integers,
        end: Integers,
        start: Integers,
        stop: Integers,
        series: slice = ALL,
        /,
    ) -> Change:
        """Compares intervals, whose bounds have the shape (intervals,)."""


class Onset(NamedTuple):
    """Where a series moved, in numbers of reports.

    Attributes:
        begin: The first report of the past that is compared.
        first: The first report that moved.
        end: Behind the last report that is compared.
        low: The first report that may be the first, by the likelihood.
        high: The last one.
        z: The change in standard errors.
    """

    begin: int
    first: int
    end: int
    low: int
    high: int
    z: float


@dataclass(frozen=True, eq=False)
class Scan:
    """The comparisons of some series.

    Attributes:
        compare: Compares them.
        count: How many comparisons there are.
        span: Where changes are looked for.
        places: Of each length: the intervals, the factors of the standard errors, and z where the
            change is looked for, else 0.
    """

    compare: Compare
    count: int
    span: range
    places: list[tuple[Integers, Integers, Integers, Floats, Floats]]

    def onset(self, series: int, threshold: float) -> Onset | None:
        """Returns where a series moved first; None if it did not.

        Args:
            series: Its number.
            threshold: The least z.
        """
        columns = [(*bounds, factors[series], z[:, series]) for *bounds, factors, z in self.places]
        peak = max((z.max() for *_, z in columns), default=0.0)
        if peak < threshold:
            return None
        first, room = min(
            (int(middle[over[0]]), int((end - middle)[0]))
            for _, middle, end, _, z in columns
            if len(over := np.flatnonzero(z >= threshold))
        )
        best: tuple[float, int, int, int, float] = (0.0, 0, 0, 0, 1.0)
        for begin, middle, end, factor, z in columns:
            near = np.flatnonzero((middle >= first) & (middle <= first + room))
            if len(near):
                at = near[z[near].argmax()]
                place = (z[at], begin[at], middle[at], end[at], factor)
                best = max(best, place, key=lambda each: each[0])
        _, begin, middle, end, factor = best
        found = self._refined(series, int(begin), int(middle), int(end), float(factor))
        return found if found.first in self.span else None  # it moved before, or later

    def until(self, series: int, onset: Onset) -> int | None:
        """Returns the report at which a series was back, and has mostly stayed; or None.

        Args:
            series: Its number.
            onset: Where it moved.
        """
        reports = int(self.places[0][2][-1])
        at = np.arange(onset.first, reports - 1)
        past = np.full_like(at, onset.begin), np.full_like(at, onset.first)
        one, ends = slice(series, series + 1), np.full_like(at, reports)
        near = self.compare(*past, at, np.minimum(at + 2, reports), one).delta[:, 0]
        rest = self.compare(*past, at, ends, one).delta[:, 0]
        first = np.array([onset.first])
        moved = self.compare(
            np.array([onset.begin]), first, first, np.array([onset.end]), one
        ).delta[:, 0]
        with np.errstate(all="ignore"):
            left = np.maximum(near / moved, rest / moved)
        back = np.flatnonzero(left < _BACK)
        return int(at[back[0]]) if len(back) else None

    def _refined(self, series: int, begin: int, middle: int, end: int, factor: float) -> Onset:
        """Returns the most likely first report, and those that are nearly as likely."""
        if end - begin < 2:
            return Onset(begin, middle, end, middle, middle, 0.0)
        at = np.arange(begin + 1, end)
        begins, own = np.full_like(at, begin), slice(series, series + 1)
        change = self.compare(begins, at, at, np.full_like(at, end), own)
        z = np.nan_to_num(_z(change)[:, 0]) / factor
        z[~change.is_bad[:, 0]] = 0
        best = int(np.abs(z).argmax())
        peak, near = float(abs(z[best])), np.flatnonzero(z[best] ** 2 - z**2 <= _LIKELY)
        # The report in which it began has only some of it.
        one = self.compare(begins, at, at, at + 1, own)
        alone = _z(one)[:, 0] / factor * np.sign(z[best])
        while best and alone[best - 1] > _PARTLY and one.is_bad[best - 1, 0]:
            best -= 1
        return Onset(
            begin, int(at[best]), end, int(at[min(near[0], best)]), int(at[near[-1]]), peak
        )


def scan(
    compare: Compare,
    reports: int,
    start: int,
    span: range | None = None,
    shortest: int = 1,
    *,
    steady: bool = False,
) -> Scan:
    """Compares each row of reports of some series with those before it.

    Args:
        compare: Compares intervals.
        reports: How many reports there are.
        start: The first one behind the warm-up.
        span: Only changes at these reports are looked for; None for all.
        shortest: The fewest reports that are compared.
        steady: Whether the past must not have moved in the same way: what falls or rises by itself,
            such as the share of new users, is no finding.
    """
    places, count, length, least = [], 0, shortest, np.ones(1)
    span = range(reports) if span is None else span
    while length <= max((reports - start) // _LONGEST, shortest):
        stride = max(length // 4, 1)
        middle = np.arange(start + LEAST_PAST, reports - length + 1, stride)
        if len(middle) < (1 if length == shortest else _FEWEST):
            break
        begin = np.maximum(middle - max(_PAST, 2 * length), start)
        end = middle + length
        change = compare(begin, middle, middle, end)
        if steady:
            half = (begin + middle + 1) // 2
            before = compare(begin, half, half, middle).delta
            with np.errstate(all="ignore"):
                is_trend = before / change.delta > _TREND
            change = change._replace(is_bad=change.is_bad & ~is_trend)
        z = _z(change)
        least = np.maximum(least, _excess(z, (reports - start) / length))
        within = ((middle >= span.start) & (middle < span.stop))[:, None]
        count += int(np.count_nonzero(~np.isnan(z) & within))
        z = np.where(change.is_bad & within & ~np.isnan(z), np.abs(z) / least, 0)
        places.append((begin, middle, end, np.broadcast_to(least, z.shape[1:]), z))
        length *= 2
    return Scan(compare, count, span, places)


def threshold(comparisons: int) -> float:
    """Returns the least z that is beyond chance for so many comparisons (Bonferroni)."""
    return NormalDist().inv_cdf(1 - FALSE_FINDINGS / max(comparisons, 1) / 2)


def _z(change: Change) -> Floats:
    """Returns changes in standard errors; NaN where they are not known."""
    with np.errstate(all="ignore"):
        z: Floats = change.delta / np.sqrt(change.variance)
    return np.where(np.isfinite(z), z, np.nan)


def _excess(z: Floats, rows: float) -> Floats:
    """Returns by how much z of each series is larger than by chance, at least 1.

    The few comparisons of one series say little, and a change is among them, so they are weighed
    with the median of all series.

    Args:
        z: The comparisons, (intervals, series).
        rows: How many rows of reports there are that do not overlap.
    """
    z = z[:: len(z) // _MEDIAN_OF + 1]
    ordered = np.sort(np.abs(z), axis=0)  # NaN comes last
    sizes = np.count_nonzero(~np.isnan(z), axis=0)
    rows_of = (np.maximum(sizes - 1, 0) * _QUANTILE).astype(np.int64)
    typical = ordered[rows_of, np.arange(z.shape[1])] / _NORMAL
    judged = sizes >= _FEWEST
    pooled = float(np.median(typical[judged])) if judged.any() else 1.0
    own = np.where(judged, typical, pooled)
    weight = rows / (rows + _POOLED)
    excess: Floats = np.sqrt(weight * own**2 + (1 - weight) * pooled**2)
    return np.maximum(excess, 1.0)
