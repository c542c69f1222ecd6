"""A run with a value of every kind."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rec_summary._pb import anf_ir_pb2, lineage_pb2, summary_pb2
from rec_summary.values.recommender import encode_columns, encode_table
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


def _png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def _landscape() -> summary_pb2.LossLandscape:
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


def _graph() -> anf_ir_pb2.GraphProto:
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


def _pipeline() -> lineage_pb2.DatasetGraph:
    """A source and a batch."""
    result = lineage_pb2.DatasetGraph()
    result.parameter.mapStr["op_type"] = "Batch"
    result.parameter.mapInt["batch_size"] = 4
    result.children.add().parameter.mapStr["op_type"] = "GeneratorDataset"
    return result


def _decoded(data: bytes) -> Any:
    return summary_pb2.Summary.Value.FromString(data)


_COLUMNS = (
    ("curve", "pr_curve", np.arange(30).reshape(6, 5)[:, ::-1]),
    ("reliability", "reliability", [[0.125, 0.5], [0.25, 0.75], [100, 4000]]),
    ("frequent", "top_ids", [[7, 3], [1500, 20], [1400, 20], [1600, 20]]),
)


_TABLE = (("country", "examples", "auc"), ("DE", "1,200", "0.75"), ("a | b", "100", ""))


def every_kind(run: Path, *, landscapes: bool = True) -> None:
    """Records a value of every kind; pictures of landscapes take their time."""
    value = summary_pb2.Summary.Value
    image = summary_pb2.Summary.Image(height=4, width=4, colorspace=3, encoded_image=_png())
    matrix = to_tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    write_segment(
        run,
        summary_pb2.Event(wall_time=START, step=0, graph_def=_graph()),
        *(event(step, scalar("loss", 1 / step)) for step in (1, 2, 3)),
        event(1, histo("weight", np.linspace(-1, 2, 100))),
        event(1, value(tag="picture", image=image), value(tag="matrix", tensor=matrix)),
        event(
            1,
            *(_decoded(encode_columns(*each)) for each in _COLUMNS),
            _decoded(encode_table("slices", _TABLE)),
        ),
        *([event(1, value(tag="landscape", loss_landscape=_landscape()))] if landscapes else []),
        lineage(START + 1, dataset_graph=_pipeline()),
        lineage(START + 2, user_defined_info=custom({"team": "ads"})),
        lineage(START + 9, train_lineage=train()),
    )
