"""The same calls for MindSpore's `SummaryRecord` and for ours."""

import sys

import mindspore
import numpy as np
from mindspore import Tensor
from mindspore.train import lineage_pb2 as their_lineage
from mindspore.train import summary_pb2 as their_summary
from mindspore.train.anf_ir_pb2 import ModelProto as TheirModel


def drive(record_class, directory):
    """Calls that MindSpore's class and ours both take."""
    random = np.random.default_rng(0)
    with record_class(str(directory), file_prefix="mine", file_suffix="_v2") as record:
        train = their_lineage.TrainLineage()
        train.hyper_parameters.optimizer = "Adam"
        record.add_value("train_lineage", "train_lineage", train)
        evaluation = their_lineage.EvaluationLineage(metric='{"auc": 0.7}')
        record.add_value("eval_lineage", "eval_lineage", evaluation)
        custom = their_lineage.UserDefinedInfo()
        custom.user_info.add().map_str["team"] = "ads"
        record.add_value("custom_lineage_data", "custom_lineage_data", custom)
        data = their_lineage.DatasetGraph()
        data.parameter.mapStr["op_type"] = "GeneratorDataset"
        record.add_value("dataset_graph", "dataset_graph", data)
        model = TheirModel()
        model.graph.name = "net"
        record.add_value("graph", "graph", model.SerializeToString())
        landscape = their_summary.LossLandscape()
        landscape.metadata.unit = "epoch"
        record.add_value("landscape", "surface", landscape)
        for step in (1, 2):
            array = random.normal(size=(40, 5)).astype(np.float32)
            record.add_value("scalar", "loss", Tensor(array[0, 0]))
            record.add_value("tensor", "t", Tensor(array))
            record.add_value("histogram", "h", Tensor(array))
            # not uint8, which MindSpore stretches and we leave alone
            images = random.integers(0, 256, (3, 1, 5, 4)).astype(np.float32)
            record.add_value("image", "i", Tensor(images))
            assert record.record(step)
        record.set_mode("eval")
        record.add_value("scalar", "filtered", Tensor(1.0))
        record.add_value("histogram", "kept", Tensor([1.0, 2.0]))
        assert record.record(3, plugin_filter=lambda plugin: plugin != "scalar")
        assert record.record(4)


if __name__ == "__main__":
    drive(mindspore.SummaryRecord, sys.argv[1])
