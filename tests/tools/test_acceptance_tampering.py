"""The acceptance check finds what is wrong: one run for each thing that was tampered with."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.graph_pb2 import GraphDef

from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import RecordReader
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support.every_kind import every_kind
from tools.checks.acceptance import recorded
from tools.checks.acceptance.check import DASHBOARDS, KEEP_ALL, in_event_files, look, stored
from tools.checks.acceptance.comparison import Comparison
from tools.checks.acceptance.expected import Items, expected
from tools.checks.acceptance.shown import MAPPED
from tools.tensorboard_pages.server import TensorBoardServer

Tamper = Callable[[Event], None]
UNTOUCHED = "untouched"


def on(tag: str, change: Callable[[Any], object]) -> Tamper:
    """Returns what changes the values of a tag."""

    def tamper(event: Event) -> None:
        for value in event.summary.value:
            if value.tag == tag:
                change(value)

    return tamper


def lose(tag: str) -> Tamper:
    """Returns what takes the values of a tag away."""

    def tamper(event: Event) -> None:
        kept = [value for value in event.summary.value if value.tag != tag]
        del event.summary.value[:]
        event.summary.value.extend(kept)

    return tamper


def add(event: Event) -> None:
    """Adds a scalar wherever there is one."""
    if any(value.tag == "loss" for value in event.summary.value):
        stray = event.summary.value.add(tag="stray", simple_value=1)
        stray.metadata.plugin_data.plugin_name = "scalars"


def later(event: Event) -> None:
    """Changes the time of the scalars."""
    if any(value.tag == "loss" for value in event.summary.value):
        event.wall_time += 1


def on_graph(change: Callable[[Any], object]) -> Tamper:
    """Returns what changes the operator ReLU of the computation graph."""

    def tamper(event: Event) -> None:
        if event.HasField("graph_def"):
            graph = GraphDef.FromString(event.graph_def)
            [node] = [node for node in graph.node if node.op == "ReLU"]
            change(node)
            event.graph_def = graph.SerializeToString()

    return tamper


def words(old: bytes, new: bytes) -> Callable[[Any], None]:
    """Returns what changes a text, or bytes, inside a value; both are equally long."""

    def change(value: Any) -> None:
        assert len(old) == len(new)
        changed = value.SerializeToString().replace(old, new)
        assert changed != value.SerializeToString()
        value.ParseFromString(changed)

    return change


def empty_chart(value: Any) -> None:
    """Gives a chart another title, because those of all runs are merged, and no data."""
    words(b"Loss", b"Lost")(value)
    words(b"[lL]oss", b"[lL]ost")(value)


def set_scalar(value: Any) -> None:
    value.simple_value += 0.5


def set_bucket(value: Any) -> None:
    value.histo.bucket[0] += 1


def set_edge(value: Any) -> None:
    value.histo.bucket_limit[0] += 0.01


def set_picture(value: Any) -> None:
    value.image.encoded_image_string += b"\0"


def more(place: int, amount: float) -> Callable[[Any], None]:
    """Returns what changes a number of a tensor."""

    def change(value: Any) -> None:
        numbers = np.frombuffer(value.tensor.tensor_content, "<f4").copy()
        numbers[place] += amount
        value.tensor.tensor_content = numbers.tobytes()

    return change


TAMPERED: dict[str, tuple[str, Tamper]] = {
    "scalar_changed": ("scalars", on("loss", set_scalar)),
    "scalar_changed_there": ("time_series", on("loss", set_scalar)),
    "scalar_lost": ("scalars", lose("loss")),
    "scalar_added": ("scalars", add),
    "metric_lost": ("hparams", lose("loss")),
    "time_changed": ("scalars", later),
    "bucket_changed": ("histograms", on("weight", set_bucket)),
    "edge_changed": ("histograms", on("weight", set_edge)),
    "histogram_lost": ("distributions", lose("weight")),
    "picture_changed": ("images", on("picture", set_picture)),
    "heat_map_lost": ("images", lose("matrix/heat_map")),
    "cell_changed": ("text", on("lineage", words(b"DeepFM", b"DeepFN"))),
    "shape_changed": ("text", on("matrix/statistics", words(b"3 \xc3\x97 4", b"3 \xc3\x97 5"))),
    "text_lost": ("text", lose("landscape/facts")),
    "operator_changed": ("graphs", on_graph(lambda node: setattr(node, "op", "Sigmoid"))),
    "edge_lost": ("graphs", on_graph(lambda node: node.ClearField("input"))),
    "data_set_changed": ("graphs", on("dataset_graph", words(b"Batch", b"Botch"))),
    "parameter_changed": ("hparams", on("_hparams_/session_start_info", words(b"Adam", b"Atom"))),
    "vertex_moved": (
        "mesh",
        on("landscape/surface_VERTEX", more(4, 0.01)),
    ),
    "mesh_lost": ("mesh", lose("landscape/surface_FACE")),
    "curve_changed": ("pr_curves", on("curve", more(0, 1))),
    "curve_lost": ("pr_curves", lose("curve")),
    "rate_changed": ("text", on("reliability/points", words(b"0.25", b"0.26"))),
    "reliability_lost": ("images", lose("reliability")),
    "id_changed": ("text", on("frequent", words(b"id 7", b"id 8"))),
    "chart_lost": ("custom_scalars", lose("loss")),
}

WITH_LANDSCAPE = (UNTOUCHED, "vertex_moved", "mesh_lost", "text_lost")
EMPTY_CHART = "a chart without data"


def tamper_with(logdir: Path, change: Tamper) -> None:
    """Changes the event file in a directory."""
    [path] = logdir.glob("*tfevents*")
    changed, before = b"", path.read_bytes()
    with RecordReader(path) as reader:
        for record in reader:
            each = Event.FromString(record.payload)
            change(each)
            changed += frame(each.SerializeToString(deterministic=True))
    assert changed != before, "nothing was changed"
    path.chmod(0o600)
    path.write_bytes(changed)


def must_be_shown(source: Path) -> Items:
    """Returns what must be shown of runs that are like `everything` in the fixed records."""
    items = expected(recorded.read(source)) | {name: [] for name in MAPPED}
    runs = [path.name for path in source.iterdir()]
    for name, known in stored().items():
        for key, value in known:
            for run in runs if "everything" in key else []:
                if run in WITH_LANDSCAPE or not any("landscape" in str(part) for part in key):
                    changed = tuple(run if part == "everything" else part for part in key)
                    items[name].append((changed, value))
    return items


@pytest.fixture(scope="module")
def by_loader(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Comparison]]:
    """What the check finds in a directory of tampered runs, by loader and dashboard."""
    base = tmp_path_factory.mktemp("acceptance")
    for name in (UNTOUCHED, EMPTY_CHART, *TAMPERED):
        every_kind(base / "records" / name, landscapes=name in WITH_LANDSCAPE)
    export_tensorboard(base / "records", base / "logs")
    for name, (_, change) in TAMPERED.items():
        tamper_with(base / "logs" / name, change)
    tamper_with(base / "logs" / EMPTY_CHART, on("custom_scalars__config__", empty_chart))
    items = in_event_files(must_be_shown(base / "records"))
    logs = base / "logs"
    rust = TensorBoardServer(logs, base / "rust", load_fast=True, arguments=(KEEP_ALL,))
    python = TensorBoardServer(logs, base / "python", load_fast=False, arguments=(KEEP_ALL,))
    # What differs is compared again after a rest: both at once, so that they rest together.
    with rust, python, ThreadPoolExecutor() as pool:
        compared = pool.map(partial(look, items), (rust, python))
        found = dict(zip(("rust", "python"), compared, strict=True))
    for comparisons in found.values():
        assert len(comparisons) == len(in_event_files(DASHBOARDS))
    return {loader: {each.name: each for each in found[loader]} for loader in found}


@pytest.fixture(params=["rust", "python"])
def found(
    request: pytest.FixtureRequest, by_loader: dict[str, dict[str, Comparison]]
) -> dict[str, Comparison]:
    """What the check finds with a loader, by dashboard."""
    return by_loader[request.param]


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_tampered_with_is_found(found: dict[str, Comparison], name: str) -> None:
    dashboard, _ = TAMPERED[name]
    assert [each for each in found[dashboard].differences if f"'{name}'" in each]


def test_a_chart_without_data_is_found(found: dict[str, Comparison]) -> None:
    differences = found["custom_scalars"].differences
    assert any("Lost" in words and "no data" in words for words in differences)


def test_nothing_else_is_found(found: dict[str, Comparison]) -> None:
    for each in found.values():
        assert not [words for words in each.differences if UNTOUCHED in words], each.name
