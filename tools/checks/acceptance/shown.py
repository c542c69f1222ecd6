"""What a running TensorBoard shows, asked over HTTP: for each dashboard, keys and values."""

from __future__ import annotations

import html
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from google.protobuf import text_format
from tensorboard.compat.proto.graph_pb2 import GraphDef

from tools.tensorboard_pages.server import TensorBoardServer

from .expected import CURVE, Picture, distribution

Shown = Iterator[tuple[tuple[Any, ...], Any]]
_THREADS: Final = 8
_MESH_PARTS: Final = {1: ("VERTEX", "<f4"), 2: ("FACE", "<i4"), 3: ("COLOR", "<u1")}


def _all(ask: Callable[..., Any], series: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Yields each series with its answer; one takes TensorBoard 40 ms, most of it waiting."""
    names = list(series)
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from zip(names, pool.map(lambda name: ask(*name), names), strict=True)


def _points(server: TensorBoardServer, plugin: str, answer: str) -> Iterator[tuple[str, str, Any]]:
    """Yields run, tag and each point of a plugin."""

    def ask(run: str, tag: str) -> Any:
        points = server.get(f"plugin/{plugin}/{answer}", run=run, tag=tag) or ()
        return points[run] if isinstance(points, dict) else points

    tags = server.get(f"plugin/{plugin}/tags")
    for series, points in _all(ask, ((run, tag) for run in tags for tag in tags[run])):
        yield from ((*series, point) for point in points)


def _sums(data: bytes, dtype: str) -> tuple[int, float, float]:
    """Returns how many numbers there are, and two sums that stand for them and their order."""
    numbers = np.frombuffer(data, dtype).astype(np.float64)
    weighted = (numbers * np.linspace(0, 1, numbers.size)).sum()
    return numbers.size, round(float(numbers.sum()), 3), round(float(weighted), 3)


def _tagged(plugin: str, answer: str, parse: Callable[..., Any]) -> Callable[..., Shown]:
    """Returns what asks for each run and tag of a plugin; `parse` makes a step and a value."""

    def shown(server: TensorBoardServer) -> Shown:
        for run, tag, point in _points(server, plugin, answer):
            step, value = parse(point)
            yield (run, tag, step), value

    return shown


def _curve(curve: Any) -> tuple[int, Any]:
    rows = np.array([curve[name] for name in CURVE], np.float32).tolist()
    return curve["step"], (curve["wall_time"], rows)


def _words(point: Any) -> tuple[int, Any]:
    """A text: its words in order, without the markup."""
    text = html.unescape(re.sub(r"<[^>]*>", " ", point["text"]))
    return point["step"], [point["wall_time"], " ".join(text.split())]


def _images(server: TensorBoardServer) -> Shown:
    def ask(run: str, tag: str, point: Any) -> bytes:
        query = dict(urllib.parse.parse_qsl(point["query"]))
        return server.fetch_query("plugin/images/individualImage", **query)

    for (run, tag, point), data in _all(ask, _points(server, "images", "images")):
        yield (run, tag, point["step"]), Picture(point["wall_time"], data)


def _time_series(server: TensorBoardServer) -> Shown:
    def ask(plugin: str, tag: str, **more: Any) -> list[tuple[str, Any]]:
        request = json.dumps([{"plugin": plugin, "tag": tag, **more}])
        [answer] = server.get("plugin/timeseries/timeSeries", requests=request)
        return [
            (run, point) for run in answer["runToSeries"] for point in answer["runToSeries"][run]
        ]

    def picture(run: str, tag: str, point: Any) -> bytes:
        return server.fetch_query("plugin/timeseries/imageData", imageId=point["imageId"])

    tags = server.get("plugin/timeseries/tags")
    scalars, histograms = (tags[name]["runTagInfo"] for name in ("scalars", "histograms"))
    names = sorted({tag for of_run in scalars.values() for tag in of_run})
    for (_, tag), points in _all(ask, (("scalars", tag) for tag in names)):  # of all runs at once
        for run, point in points:
            yield ("scalars", run, tag, point["step"]), (point["wallTime"], float(point["value"]))
    series = ((run, tag) for run in histograms for tag in histograms[run])
    for (run, tag), points in _all(lambda run, tag: ask("histograms", tag, run=run), series):
        for _, point in points:
            buckets = [(bin["min"], bin["max"], bin["count"]) for bin in point["bins"]]
            shown = distribution(point["wallTime"], buckets)
            yield ("histograms", run, tag, point["step"]), shown
    images = tags["images"]["tagRunSampledInfo"]
    series = ((run, tag) for tag in images for run in images[tag])
    answers = _all(lambda run, tag: ask("images", tag, run=run, sample=0), series)
    pictures = ((*name, point) for name, points in answers for _, point in points)
    for (run, tag, point), data in _all(picture, pictures):
        yield ("images", run, tag, point["step"]), Picture(point["wallTime"], data)


def _runs(server: TensorBoardServer) -> Shown:
    yield from (((run,), "a run") for run in server.get("runs"))


def _graphs(server: TensorBoardServer) -> Shown:
    for run, info in server.get("plugin/graphs/info").items():
        tags = [tag for tag, kinds in info["tags"].items() if kinds["op_graph"]]
        for tag in ([""] if info["run_graph"] else []) + tags:
            query = {"run": run, "tag": tag} if tag else {"run": run}
            text = server.fetch_query("plugin/graphs/graph", **query).decode()
            graph = text_format.Parse(text, GraphDef())
            yield (run, tag), sorted(text_format.MessageToString(n, True) for n in graph.node)


def _hparams(server: TensorBoardServer) -> Shown:
    for run, group in server.sessions().items():
        states = {session["status"] for session in group["sessions"]}
        yield (run, "status"), sorted(states)
        yield from (((run, name), value) for name, value in group["hparams"].items())
        for metric in group["metricValues"]:
            name = metric["name"]
            value = [float(metric["value"]), metric["trainingStep"], metric["wallTimeSecs"]]
            yield (run, "metric", name["group"], name["tag"]), value


def _meshes(server: TensorBoardServer) -> Shown:
    def ask(run: str, tag: str, point: Any) -> bytes:
        part, _ = _MESH_PARTS[point["content_type"]]
        query = {"run": run, "tag": tag, "step": str(point["step"]), "sample": "0"}
        return server.fetch_query("plugin/mesh/data", content_type=part, **query)

    for (run, tag, point), data in _all(ask, _points(server, "mesh", "meshes")):
        part, dtype = _MESH_PARTS[point["content_type"]]
        yield (run, tag, point["step"], part), [point["wall_time"], *_sums(data, dtype)]


def _custom_scalars(server: TensorBoardServer) -> Shown:
    layout, runs = server.get("plugin/custom_scalars/layout") or {}, server.get("runs")
    for category in layout.get("category", ()):
        for chart in category["chart"]:
            lines = chart.get("multiline", {}).get("tag", [])
            for band in chart.get("margin", {}).get("series", ()):
                lines += [re.escape(band[line]) + "$" for line in ("lower", "value", "upper")]
            for pattern in lines:
                has_data = False
                for run in runs:
                    answer = server.get("plugin/custom_scalars/scalars", run=run, tag=pattern)
                    for tag, events in answer["tag_to_events"].items():
                        has_data = True
                        _, step, value = events[-1]
                        yield (chart["title"], run, tag), [len(events), step, float(value)]
                if not has_data:
                    yield (chart["title"], pattern), "no data"


def _projector(server: TensorBoardServer) -> Shown:
    """Tables that can be drawn, of records."""
    plugin = "plugin/projector"
    for run in server.get(f"{plugin}/runs"):
        for table in server.get(f"{plugin}/info", run=run)["embeddings"]:
            shape = list(table["tensorShape"])
            if min(shape) > 1:
                query = {"run": run, "name": table["tensorName"]}
                data = server.fetch_query(f"{plugin}/tensor", **query)
                labels = server.fetch_query(f"{plugin}/metadata", **query).split()
                _, *sums = _sums(data, "<f4")
                yield (run, table["tensorName"]), [shape, len(labels), *sums]


VALUES: Final[dict[str, Callable[[TensorBoardServer], Shown]]] = {
    "scalars": _tagged("scalars", "scalars", lambda point: (point[1], (point[0], float(point[2])))),
    "histograms": _tagged(
        "histograms", "histograms", lambda point: (point[1], distribution(point[0], point[2]))
    ),
    "distributions": _tagged(
        *("distributions", "distributions"),
        lambda point: (point[1], (point[0], [value for _, value in point[2]])),
    ),
    "images": _images,
    "time_series": _time_series,
    "pr_curves": _tagged("pr_curves", "pr_curves", _curve),
}
"""Dashboards that are compared with the records."""

MAPPED: Final[dict[str, Callable[[TensorBoardServer], Shown]]] = {
    "runs": _runs,
    "text": _tagged("text", "text", _words),
    "graphs": _graphs,
    "hparams": _hparams,
    "mesh": _meshes,
    "custom_scalars": _custom_scalars,
    "projector": _projector,
}
"""Dashboards that are compared with dashboards.json, or with the other loader's."""
