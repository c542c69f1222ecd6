"""The Custom Scalars dashboard: its charts have the scalars that belong there, and data."""

from __future__ import annotations

from collections.abc import Iterator

from tools.checks.acceptance import scalars, series
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "custom scalars"


def expected(records: Records) -> Items:
    """Yields wall times and numbers by chart, run, tag and step."""
    points = series.points(records, "scalars")
    metrics = {
        point.tag.removeprefix("eval/")
        for point in points
        if point.tag.startswith("eval/") or point.run.endswith("/eval")
    }
    for point in points:
        for chart in _charts(point.tag, metrics):
            yield (chart, *point.key), (point.value.wall_time, scalars.number(point))


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface; a chart without data yields itself."""
    layout = server.get("plugin/custom_scalars/layout") or {}
    runs = server.get("runs")
    for category in layout.get("category", ()):
        for chart in category["chart"]:
            for pattern in chart["multiline"]["tag"]:
                found = list(_points(server, runs, pattern))
                yield from (((chart["title"], *key), value) for key, value in found)
                if not found:
                    yield (chart["title"], pattern), "no data"


def _points(server: TensorBoardServer, runs: list[str], pattern: str) -> Items:
    for run in runs:
        answer = server.get("plugin/custom_scalars/scalars", run=run, tag=pattern)
        for tag, events in answer["tag_to_events"].items():
            for wall_time, step, value in events:
                yield (run, tag, step), (wall_time, float(value))


def _charts(tag: str, metrics: set[str]) -> Iterator[str]:
    """Yields the charts that a scalar belongs to."""
    last = tag.removesuffix("/auto").rpartition("/")[2]
    if "loss" in last.lower() and not tag.startswith("eval/"):
        yield "Loss"
    if tag.startswith("learning_rate") or last in ("learning_rate", "lr"):
        yield "Learning rate"
    if tag.startswith(("recommender/auc/", "recommender/gauc/")):
        yield "AUC"
    if tag.startswith("recommender/calibration/"):
        yield "Calibration"
    if tag.removeprefix("eval/") in metrics:
        yield f"Evaluation: {tag.removeprefix('eval/')}"
    if "/" in tag and last in series.NON_FINITE:
        yield "Values that are not finite"
    if tag.startswith("rec_summary/"):
        yield "Telemetry"
