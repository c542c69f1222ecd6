"""The Scalars dashboard: every recorded scalar, and what can only be shown as one."""

from __future__ import annotations

import numpy as np

from tools.checks.acceptance import series
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Records
from tools.checks.acceptance.series import Point
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "scalars"


def expected(records: Records) -> Items:
    """Yields wall times and numbers by run, tag and step."""
    for point in series.points(records, "scalars"):
        yield point.key, (point.value.wall_time, number(point))


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface."""
    for run, tags in server.get("plugin/scalars/tags").items():
        for tag in tags:
            for wall_time, step, value in server.scalars(run, tag):
                yield (run, tag, step), (wall_time, value)


def number(point: Point) -> float:
    """Returns the number that a point is to have: a float32."""
    message = point.value.message
    if point.value.kind == "scalar_value":
        return float(message.scalar_value)
    if point.value.kind == "histogram":
        return float(np.float32(getattr(message.histogram, point.part)))
    numbers = series.array(message.tensor)
    assert numbers is not None  # or it would have no points
    found = series.non_finite(numbers)[point.part] if point.part else numbers.reshape(-1)[0]
    return float(np.float32(found))
