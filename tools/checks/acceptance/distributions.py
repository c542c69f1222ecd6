"""The Distributions dashboard: percentiles of what Histograms shows."""

from __future__ import annotations

from typing import Any, Final

from tools.checks.acceptance import histograms
from tools.checks.acceptance.comparison import Items, close
from tools.checks.acceptance.histograms import Distribution
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "distributions"
MOST_POINTS: Final = 501
"""Of a series, see `histograms`."""


def expected(records: Records) -> Items:
    """Yields distributions by run, tag and step."""
    yield from histograms.expected(records)


def shown(server: TensorBoardServer) -> Items:
    """Yields wall times and percentiles by run, tag and step."""
    for run, tags in server.get("plugin/distributions/tags").items():
        for tag in tags:
            answer = server.get("plugin/distributions/distributions", run=run, tag=tag)
            for wall_time, step, percentiles in answer:
                yield (run, tag, step), (wall_time, [value for _, value in percentiles])


def same(expected: Distribution, shown: Any) -> bool:
    """Whether percentiles go from the least value to the greatest."""
    wall_time, values = shown
    if wall_time != expected.wall_time:
        return False
    if expected.bounds is None:
        return not any(values)
    ends = (values[0], values[-1])
    return all(map(close, expected.bounds, ends)) and values == sorted(values)
