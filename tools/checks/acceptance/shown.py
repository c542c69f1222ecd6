"""What a running TensorBoard shows, asked over HTTP: for each dashboard, keys and values."""

from __future__ import annotations

import html
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from google.protobuf import text_format
from tensorboard.compat.proto.graph_pb2 import GraphDef

from tools.tensorboard_pages.server import TensorBoardServer

from .expected import CURVE, Picture, distribution

Shown = Iterator[tuple[tuple[Any, ...], Any]]
_MESH_PARTS: Final = {1: ("VERTEX", "<f4"), 2: ("FACE", "<i4"), 3: ("COLOR", "<u1")}


def _tagged(plugin: str, answer: str, point: Callable[..., Any]) -> Callable[..., Shown]:
    """Returns what asks for each run and tag of a plugin; `point` makes a step and a value."""

    def shown(server: TensorBoardServer) -> Shown:
        for run, tags in server.get(f"plugin/{plugin}/tags").items():
            for tag in tags:
                found = server.get(f"plugin/{plugin}/{answer}", run=run, tag=tag) or ()
                for each in found[run] if isinstance(found, dict) else found:
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
    for run, tags in server.get("plugin/images/tags").items():
        for tag in tags:
            for each in server.get("plugin/images/images", run=run, tag=tag, sample="0"):
                query = dict(urllib.parse.parse_qsl(each["query"]))
                data = server.fetch_query("plugin/images/individualImage", **query)
                yield (run, tag, each["step"]), Picture(each["wall_time"], data)


def _time_series(server: TensorBoardServer) -> Shown:
    def series(**request: Any) -> Iterator[tuple[str, Any]]:
        [answer] = server.get("plugin/timeseries/timeSeries", requests=json.dumps([request]))
        for run, points in answer["runToSeries"].items():
            yield from ((run, point) for point in points)

    tags = server.get("plugin/timeseries/tags")
    for tag in sorted({tag for names in tags["scalars"]["runTagInfo"].values() for tag in names}):
        for run, each in series(plugin="scalars", tag=tag):  # of all runs at once
            yield ("scalars", run, tag, each["step"]), (each["wallTime"], float(each["value"]))
    for run, names in tags["histograms"]["runTagInfo"].items():
        for tag in names:
            for _, each in series(plugin="histograms", tag=tag, run=run):
                buckets = [(bin["min"], bin["max"], bin["count"]) for bin in each["bins"]]
                found = distribution(each["wallTime"], buckets)
                yield ("histograms", run, tag, each["step"]), found
    for tag, runs in tags["images"]["tagRunSampledInfo"].items():
        for run in runs:
            for _, each in series(plugin="images", tag=tag, run=run, sample=0):
                data = server.fetch_query("plugin/timeseries/imageData", imageId=each["imageId"])
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
    for run, tags in server.get("plugin/mesh/tags").items():
        for tag in tags:
            for each in server.get("plugin/mesh/meshes", run=run, tag=tag):
                part, dtype = _MESH_PARTS[each["content_type"]]
                place = {"run": run, "tag": tag, "step": str(each["step"]), "sample": "0"}
                data = server.fetch_query("plugin/mesh/data", content_type=part, **place)
                numbers = np.frombuffer(data, dtype).astype(np.float64)
                # Two sums stand for all numbers and their order.
                sums = (numbers.sum(), (numbers * np.linspace(0, 1, numbers.size)).sum())
                found = [each["wall_time"], numbers.size, *(round(float(x), 3) for x in sums)]
                yield (run, tag, each["step"], part), found


def _custom_scalars(server: TensorBoardServer) -> Shown:
    layout, runs = server.get("plugin/custom_scalars/layout") or {}, server.get("runs")
    for category in layout.get("category", ()):
        for chart in category["chart"]:
            for pattern in chart["multiline"]["tag"]:
                found = False
                for run in runs:
                    answer = server.get("plugin/custom_scalars/scalars", run=run, tag=pattern)
                    for tag, events in answer["tag_to_events"].items():
                        found = True
                        _, step, value = events[-1]
                        yield (chart["title"], run, tag), [len(events), step, float(value)]
                if not found:
                    yield (chart["title"], pattern), "no data"


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
}
"""Dashboards that are compared with dashboards.json, or with the other loader's."""
