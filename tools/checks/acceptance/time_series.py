"""The Time Series dashboard, and Distributions: what others show as well, asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools.checks.acceptance import histograms, images, scalars
from tools.checks.acceptance.comparison import Items, equal
from tools.checks.acceptance.histograms import Distribution
from tools.checks.acceptance.images import Picture
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "time series"


def expected(records: Records) -> Items:
    """Yields what the three dashboards show, by plugin, run, tag and step."""
    for dashboard in (scalars, histograms, images):
        for key, value in dashboard.expected(records):
            yield (dashboard.NAME, *key), value


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the interface of Time Series."""
    tags = server.get("plugin/timeseries/tags")
    for tag in sorted({tag for names in tags["scalars"]["runTagInfo"].values() for tag in names}):
        for run, each in _series(server, plugin="scalars", tag=tag):
            key = ("scalars", run, tag, each["step"])
            yield key, (each["wallTime"], float(each["value"]))
    for run, names in tags["histograms"]["runTagInfo"].items():
        for tag in names:
            for _, each in _series(server, plugin="histograms", tag=tag, run=run):
                buckets = [(bin["min"], bin["max"], bin["count"]) for bin in each["bins"]]
                key = ("histograms", run, tag, each["step"])
                yield key, histograms.distribution(each["wallTime"], buckets)
    for tag, runs in tags["images"]["tagRunSampledInfo"].items():
        for run in runs:
            for _, each in _series(server, plugin="images", tag=tag, run=run, sample=0):
                data = server.fetch_query("plugin/timeseries/imageData", imageId=each["imageId"])
                yield ("images", run, tag, each["step"]), Picture(each["wallTime"], data)


def same(expected: Any, shown: Any) -> bool:
    """Whether two values are the same, as the dashboard says that they come from."""
    if isinstance(expected, Distribution):
        return histograms.same(expected, shown)
    return images.same(expected, shown) if isinstance(expected, Picture) else equal(expected, shown)


def _series(server: TensorBoardServer, **request: str | int) -> Iterator[tuple[str, Any]]:
    """Yields runs and points; a scalar's are asked for of all runs at once."""
    [answer] = server.get("plugin/timeseries/timeSeries", requests=json.dumps([request]))
    for run, points in answer["runToSeries"].items():
        yield from ((run, point) for point in points)
