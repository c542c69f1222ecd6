"""The Histograms dashboard: bounds and counts of every bucket; of tensors, of them all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tools.checks.acceptance import series
from tools.checks.acceptance.comparison import Items, close
from tools.checks.acceptance.records import Records, Value
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "histograms"
MOST_POINTS: Final = 51
"""Of a series; more is sampled, whatever is asked for. Time Series is asked for all of them."""


@dataclass(frozen=True)
class Distribution:
    """How values are distributed.

    Attributes:
        wall_time: Seconds since the epoch.
        count: How many finite values there are.
        bounds: The least and the greatest one, if there are any.
        buckets: Left edge, right edge and count; None if nobody has recorded them.
    """

    wall_time: float
    count: float
    bounds: tuple[float, float] | None
    buckets: tuple[tuple[float, float, float], ...] | None


def expected(records: Records) -> Items:
    """Yields distributions by run, tag and step."""
    for point in series.points(records, "histograms"):
        recorded = _of_tensor if point.value.kind == "tensor" else _of_histogram
        yield point.key, recorded(point.value)


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface."""
    for run, tags in server.get("plugin/histograms/tags").items():
        for tag in tags:
            for wall_time, step, buckets in server.histograms(run, tag):
                yield (run, tag, step), distribution(wall_time, buckets)


def distribution(wall_time: float, buckets: Any) -> Distribution:
    """Returns what TensorBoard answers, in order."""
    edges = tuple((float(left), float(right), float(count)) for left, right, count in buckets)
    filled = [edge for edge in edges if edge[2]]
    bounds = (filled[0][0], filled[-1][1]) if filled else None
    return Distribution(wall_time, sum(count for *_, count in edges), bounds, tuple(filled))


def same(expected: Distribution, shown: Distribution) -> bool:
    """Whether two distributions are the same; edges were recorded in 32 bits."""
    if (expected.wall_time, expected.count) != (shown.wall_time, shown.count):
        return False
    if expected.bounds is None or shown.bounds is None:
        return expected.bounds is shown.bounds
    if not all(map(close, expected.bounds, shown.bounds)):
        return False
    if expected.buckets is None or shown.buckets is None:
        return True
    return len(expected.buckets) == len(shown.buckets) and all(
        map(_alike, expected.buckets, shown.buckets)
    )


def _alike(expected: tuple[float, float, float], shown: tuple[float, float, float]) -> bool:
    """Whether two buckets are the same; an edge next to zero is as exact as the other one."""
    exact = 1e-6 * max(map(abs, expected[:2]))
    return expected[2] == shown[2] and all(
        abs(one - other) <= exact for one, other in zip(expected[:2], shown[:2], strict=True)
    )


def _of_histogram(value: Value) -> Distribution:
    histogram = value.message.histogram
    edges = [[b.left, b.left + b.width, float(b.count)] for b in histogram.buckets if b.count]
    if edges:
        # The outermost values are known better than by the edges of their buckets.
        edges[0][0], edges[-1][1] = histogram.min, histogram.max
    count = sum(count for *_, count in edges)
    bounds = (edges[0][0], edges[-1][1]) if edges else None
    buckets = tuple((left, right, count) for left, right, count in edges)
    return Distribution(value.wall_time, count, bounds, buckets)


def _of_tensor(value: Value) -> Distribution:
    numbers = series.array(value.message.tensor)
    assert numbers is not None  # or it would have no points
    finite = numbers.astype(np.float64)
    finite = finite[np.isfinite(finite)]
    bounds = (float(finite.min()), float(finite.max())) if finite.size else None
    assert bounds is None or not any(map(math.isnan, bounds))
    return Distribution(value.wall_time, float(finite.size), bounds, None)
