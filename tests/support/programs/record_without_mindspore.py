"""A loop that records every kind of value without a MindSpore Tensor."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rec_summary._pb import anf_ir_pb2, lineage_pb2, summary_pb2
from rec_summary.values.tensor import to_tensor


class Foreign:
    """A tensor of another framework: numpy can convert it, and rec_summary does not know it."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._values.astype(dtype or self._values.dtype)


class Absent(importlib.abc.MetaPathFinder):
    """Makes each import of MindSpore fail, as where it is not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name.partition(".")[0] == "mindspore":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def drive(directory: Path) -> None:
    """Records three steps and closes the record."""
    from rec_summary import SummaryRecord

    random = np.random.default_rng(0)
    with SummaryRecord(directory, export_options={"tensor_format": "npy"}) as record:
        train = lineage_pb2.TrainLineage()
        train.hyper_parameters.optimizer = "Adam"
        record.add_value("train_lineage", "train_lineage", train)
        evaluation = lineage_pb2.EvaluationLineage(metric='{"auc": 0.7}')
        record.add_value("eval_lineage", "eval_lineage", evaluation)
        custom = lineage_pb2.UserDefinedInfo()
        custom.user_info.add().map_str["team"] = "ads"
        record.add_value("custom_lineage_data", "custom_lineage_data", custom)
        data = lineage_pb2.DatasetGraph()
        data.parameter.mapStr["op_type"] = "GeneratorDataset"
        record.add_value("dataset_graph", "dataset_graph", data)
        model = anf_ir_pb2.ModelProto()
        model.graph.name = "net"
        record.add_value("graph", "graph", model)
        landscape = summary_pb2.LossLandscape()
        axis = np.linspace(-1, 1, 3, dtype=np.float32)
        x, y = np.meshgrid(axis, axis)
        for name, numbers in (("x", axis), ("y", axis), ("z", x**2 + y**2)):
            getattr(landscape.landscape, name).CopyFrom(to_tensor(numbers))
        record.add_value("landscape", "surface", landscape)
        for step in (1, 2, 3):
            array = random.normal(size=(40, 5)).astype(np.float32)
            record.add_value("scalar", "loss", 1 / step)
            record.add_value("scalar", "foreign", Foreign(step))
            record.add_value("tensor", "t", array)
            record.add_value("histogram", "h", Foreign(array))
            record.add_value("image", "i", random.integers(0, 256, (1, 8, 6, 3), np.uint8))
            assert record.record(step)
        record.set_mode("eval")
        record.set_mode("train")
        assert record.flush()
        assert record.troubles == {}


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent())
    drive(Path(sys.argv[1]))
    assert "mindspore" not in sys.modules
