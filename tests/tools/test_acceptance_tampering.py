"""The acceptance check finds what is wrong: one run for each thing that was tampered with."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.graph_pb2 import GraphDef

from rec_summary._pb import anf_ir_pb2, lineage_pb2, summary_pb2
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import RecordReader
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.values.recommender import (
    encode_pr_curve,
    encode_reliability,
    encode_top_ids,
)
from rec_summary.values.tensor import to_tensor
from tests.support.record_dirs import (
    START,
    custom,
    event,
    histo,
    lineage,
    scalar,
    train,
    write_segment,
)
from tools.checks.acceptance import records
from tools.checks.acceptance.check import DASHBOARDS, KEEP_ALL, look
from tools.checks.acceptance.comparison import Comparison
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
        event.summary.value.add(
            tag="stray", simple_value=1
        ).metadata.plugin_data.plugin_name = "scalars"


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


def set_vertex(value: Any) -> None:
    vertices = np.frombuffer(value.tensor.tensor_content, "<f4").copy()
    vertices[4] += 0.01
    value.tensor.tensor_content = vertices.tobytes()


def set_curve(value: Any) -> None:
    rows = np.frombuffer(value.tensor.tensor_content, "<f4").copy()
    rows[0] += 1
    value.tensor.tensor_content = rows.tobytes()


TAMPERED: dict[str, tuple[str, Tamper]] = {
    "scalar_changed": ("scalars", on("loss", set_scalar)),
    "scalar_changed_there": ("time series", on("loss", set_scalar)),
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
    "vertex_moved": ("mesh", on("landscape/surface_VERTEX", set_vertex)),
    "mesh_lost": ("mesh", lose("landscape/surface_FACE")),
    "curve_changed": ("pr curves", on("curve", set_curve)),
    "curve_lost": ("pr curves", lose("curve")),
    "rate_changed": ("text", on("reliability/points", words(b"0.25", b"0.26"))),
    "reliability_lost": ("images", lose("reliability")),
    "id_changed": ("text", on("frequent", words(b"id 7", b"id 8"))),
    "chart_lost": ("custom scalars", lose("loss")),
}

WITH_LANDSCAPE = (UNTOUCHED, "vertex_moved", "mesh_lost", "text_lost")
EMPTY_CHART = "a chart without data"


def png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def landscape() -> summary_pb2.LossLandscape:
    """A bowl with a path into it."""
    axis = np.linspace(-1, 1, 5, dtype=np.float32)
    x, y = np.meshgrid(axis, axis)
    path = np.array([-0.8, -0.4, 0.0], dtype=np.float32)
    result = summary_pb2.LossLandscape()
    for place, columns in (
        (result.landscape, (axis, axis, 1 + x**2 + y**2)),
        (result.loss_path.points, (path, path, 1 + 2 * path**2)),
        (result.convergence_point, ([0.0], [0.0], [1.0])),
    ):
        for name, numbers in zip("xyz", columns, strict=True):
            getattr(place, name).CopyFrom(to_tensor(np.asarray(numbers, dtype=np.float32)))
    result.loss_path.intervals.extend([1, 2, 3])
    result.metadata.decomposition = "PCA"
    result.metadata.unit = "step"
    result.metadata.step_per_epoch = 3
    result.metadata.seed, result.metadata.samples, result.metadata.moved = 1, 1024, 52_300
    result.metadata.explained_variance.extend([0.91, 0.0625])
    result.metadata.eigenvalues.extend([2.5, -0.125])
    return result


def graph() -> anf_ir_pb2.GraphProto:
    """Two operators, a parameter and a constant."""
    result = anf_ir_pb2.GraphProto(name="net")
    result.parameters.add(name="fc.weight")
    result.const_vals.add(key="cst1").value.int_val = 3
    product = result.node.add(name="1", op_type="MatMul", full_name="net/fc/MatMul-op1")
    product.input.add(name="fc.weight")
    product.input.add(name="cst1")
    result.node.add(name="2", op_type="ReLU", full_name="net/fc/ReLU-op2").input.add(name="1")
    result.outputs.add(name="2")
    return result


def pipeline() -> lineage_pb2.DatasetGraph:
    """A source and a batch."""
    result = lineage_pb2.DatasetGraph()
    result.parameter.mapStr["op_type"] = "Batch"
    result.parameter.mapInt["batch_size"] = 4
    result.children.add().parameter.mapStr["op_type"] = "GeneratorDataset"
    return result


def decoded(data: bytes) -> Any:
    return summary_pb2.Summary.Value.FromString(data)


def write_run(run: Path, *, landscapes: bool) -> None:
    """Records a value of every kind; pictures of landscapes take their time."""
    value = summary_pb2.Summary.Value
    image = summary_pb2.Summary.Image(height=4, width=4, colorspace=3, encoded_image=png())
    matrix = to_tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    write_segment(
        run,
        summary_pb2.Event(wall_time=START, step=0, graph_def=graph()),
        *(event(step, scalar("loss", 1 / step)) for step in (1, 2, 3)),
        event(1, histo("weight", np.linspace(-1, 2, 100))),
        event(1, value(tag="picture", image=image), value(tag="matrix", tensor=matrix)),
        event(
            1,
            decoded(encode_pr_curve("curve", np.arange(30).reshape(6, 5)[:, ::-1])),
            decoded(encode_reliability("reliability", [0.125, 0.5], [0.25, 0.75], [100, 4000])),
            decoded(encode_top_ids("frequent", [7, 3], [1500, 20], [1400, 20], [1600, 20])),
        ),
        *([event(1, value(tag="landscape", loss_landscape=landscape()))] if landscapes else []),
        lineage(START + 1, dataset_graph=pipeline()),
        lineage(START + 2, user_defined_info=custom({"team": "ads"})),
        lineage(START + 9, train_lineage=train()),
    )


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


@pytest.fixture(scope="module", params=[True, False], ids=["rust", "python"])
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Comparison]:
    """What the check finds in a directory of tampered runs, by dashboard."""
    base = tmp_path_factory.mktemp("acceptance")
    for name in (UNTOUCHED, EMPTY_CHART, *TAMPERED):
        write_run(base / "records" / name, landscapes=name in WITH_LANDSCAPE)
    export_tensorboard(base / "records", base / "logs")
    for name, (_, change) in TAMPERED.items():
        tamper_with(base / "logs" / name, change)
    tamper_with(base / "logs" / EMPTY_CHART, on("custom_scalars__config__", empty_chart))
    log = base / "log"
    with TensorBoardServer(
        base / "logs", log, load_fast=request.param, arguments=(KEEP_ALL,)
    ) as server:
        comparisons = look(records.read(base / "records"), server)
    assert len(comparisons) == len(DASHBOARDS)
    return {each.name: each for each in comparisons}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_tampered_with_is_found(found: dict[str, Comparison], name: str) -> None:
    dashboard, _ = TAMPERED[name]
    assert [each for each in found[dashboard].differences if f"'{name}'" in each]


def test_a_chart_without_data_is_found(found: dict[str, Comparison]) -> None:
    assert any(
        "Lost" in words and "no data" in words for words in found["custom scalars"].differences
    )


def test_nothing_else_is_found(found: dict[str, Comparison]) -> None:
    for each in found.values():
        assert not [words for words in each.differences if UNTOUCHED in words], each.name
