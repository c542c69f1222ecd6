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


def _all(ask: Callable[..., Any], places: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Yields each place with its answer; an answer takes TensorBoard 40 ms, most of it waiting."""
    found = list(places)
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from zip(found, pool.map(lambda place: ask(*place), found), strict=True)


def _points(server: TensorBoardServer, plugin: str, answer: str) -> Iterator[tuple[str, str, Any]]:
    """Yields run, tag and each point of a plugin."""

    def ask(run: str, tag: str) -> Any:
        found = server.get(f"plugin/{plugin}/{answer}", run=run, tag=tag) or ()
        return found[run] if isinstance(found, dict) else found

    tags = server.get(f"plugin/{plugin}/tags")
    for place, points in _all(ask, ((run, tag) for run in tags for tag in tags[run])):
        yield from ((*place, point) for point in points)


def _tagged(plugin: str, answer: str, point: Callable[..., Any]) -> Callable[..., Shown]:
    """Returns what asks for each run and tag of a plugin; `point` makes a step and a value."""

    def shown(server: TensorBoardServer) -> Shown:
        for run, tag, each in _points(server, plugin, answer):
            step, value = point(each)
            yield (run, tag, step), value

    return shown


def _curve(each: Any) -> tuple[int, Any]:
    rows = np.array([each[name] for name in CURVE], np.float32).tolist()
    return each["step"], (each["wall_time"], rows)


def _words(each: Any) -> tuple[int, Any]:
    """A text: its words in order, without the markup."""
    text = html.unescape(re.sub(r"<[^>]*>", " ", each["text"]))
    return each["step"], [each["wall_time"], " ".join(text.split())]


def _images(server: TensorBoardServer) -> Shown:
    def ask(run: str, tag: str, each: Any) -> bytes:
        query = dict(urllib.parse.parse_qsl(each["query"]))
        return server.fetch_query("plugin/images/individualImage", **query)

    for (run, tag, each), data in _all(ask, _points(server, "images", "images")):
        yield (run, tag, each["step"]), Picture(each["wall_time"], data)


def _time_series(server: TensorBoardServer) -> Shown:
    def ask(plugin: str, tag: str, **more: Any) -> list[tuple[str, Any]]:
        request = json.dumps([{"plugin": plugin, "tag": tag, **more}])
        [answer] = server.get("plugin/timeseries/timeSeries", requests=request)
        return [(run, each) for run in answer["runToSeries"] for each in answer["runToSeries"][run]]

    def picture(run: str, tag: str, each: Any) -> bytes:
        return server.fetch_query("plugin/timeseries/imageData", imageId=each["imageId"])

    tags = server.get("plugin/timeseries/tags")
    scalars, histograms = (tags[name]["runTagInfo"] for name in ("scalars", "histograms"))
    names = sorted({tag for found in scalars.values() for tag in found})
    for (_, tag), points in _all(ask, (("scalars", tag) for tag in names)):  # of all runs at once
        for run, each in points:
            yield ("scalars", run, tag, each["step"]), (each["wallTime"], float(each["value"]))
    places = ((run, tag) for run in histograms for tag in histograms[run])
    for (run, tag), points in _all(lambda run, tag: ask("histograms", tag, run=run), places):
        for _, each in points:
            buckets = [(bin["min"], bin["max"], bin["count"]) for bin in each["bins"]]
            found = distribution(each["wallTime"], buckets)
            yield ("histograms", run, tag, each["step"]), found
    images = tags["images"]["tagRunSampledInfo"]
    places = ((run, tag) for tag in images for run in images[tag])
    asked = _all(lambda run, tag: ask("images", tag, run=run, sample=0), places)
    pictures = ((*place, each) for place, points in asked for _, each in points)
    for (run, tag, each), data in _all(picture, pictures):
        yield ("images", run, tag, each["step"]), Picture(each["wallTime"], data)


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
        for each in group["metricValues"]:
            name = each["name"]
            point = [float(each["value"]), each["trainingStep"], each["wallTimeSecs"]]
            yield (run, "metric", name["group"], name["tag"]), point


def _meshes(server: TensorBoardServer) -> Shown:
    def ask(run: str, tag: str, each: Any) -> bytes:
        part, _ = _MESH_PARTS[each["content_type"]]
        place = {"run": run, "tag": tag, "step": str(each["step"]), "sample": "0"}
        return server.fetch_query("plugin/mesh/data", content_type=part, **place)

    for (run, tag, each), data in _all(ask, _points(server, "mesh", "meshes")):
        part, dtype = _MESH_PARTS[each["content_type"]]
        numbers = np.frombuffer(data, dtype).astype(np.float64)
        # Two sums stand for all numbers and their order.
        sums = (numbers.sum(), (numbers * np.linspace(0, 1, numbers.size)).sum())
        found = [each["wall_time"], numbers.size, *(round(float(sum_), 3) for sum_ in sums)]
        yield (run, tag, each["step"], part), found


def _custom_scalars(server: TensorBoardServer) -> Shown:
    layout, runs = server.get("plugin/custom_scalars/layout") or {}, server.get("runs")
    for category in layout.get("category", ()):
        for chart in category["chart"]:
            lines = chart.get("multiline", {}).get("tag", [])
            for band in chart.get("margin", {}).get("series", ()):
                lines += [re.escape(band[each]) + "$" for each in ("lower", "value", "upper")]
            for pattern in lines:
                found = False
                for run in runs:
                    answer = server.get("plugin/custom_scalars/scalars", run=run, tag=pattern)
                    for tag, events in answer["tag_to_events"].items():
                        found = True
                        _, step, value = events[-1]
                        yield (chart["title"], run, tag), [len(events), step, float(value)]
                if not found:
                    yield (chart["title"], pattern), "no data"


def _projector(server: TensorBoardServer) -> Shown:
    """Tables that can be drawn: of the plugin that reads records, or else of TensorBoard's own."""
    names = ("rec_summary", "projector")
    plugin = next(f"plugin/{name}" for name in names if name in server.get("plugins_listing"))
    for run in server.get(f"{plugin}/runs"):
        for each in server.get(f"{plugin}/info", run=run)["embeddings"]:
            shape = list(each["tensorShape"])
            if min(shape) > 1:
                place = {"run": run, "name": each["tensorName"]}
                data = server.fetch_query(f"{plugin}/tensor", **place)
                labels = server.fetch_query(f"{plugin}/metadata", **place).split()
                numbers = np.frombuffer(data, "<f4").astype(np.float64)
                sums = (numbers.sum(), (numbers * np.linspace(0, 1, numbers.size)).sum())
                found = [shape, len(labels), *(round(float(sum_), 3) for sum_ in sums)]
                yield (run, each["tensorName"]), found


VALUES: Final[dict[str, Callable[[TensorBoardServer], Shown]]] = {
    "scalars": _tagged("scalars", "scalars", lambda each: (each[1], (each[0], float(each[2])))),
    "histograms": _tagged(
        "histograms", "histograms", lambda each: (each[1], distribution(each[0], each[2]))
    ),
    "distributions": _tagged(
        *("distributions", "distributions"),
        lambda each: (each[1], (each[0], [value for _, value in each[2]])),
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
