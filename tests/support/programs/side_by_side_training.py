"""A seeded training with everything that a collector can collect, run once for each collector.

python side_by_side_training.py {theirs|ours} FOLDER
"""

from __future__ import annotations

import sys

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

from tests.support.waiting import next_second

CUSTOM = {"team": "ads", "trial": 7, "dropout": 0.25}
COLLECT_FREQ, TENSOR_FREQ, EPOCHS, BATCHES, BATCH = 3, 4, 2, 5, 4


class Network(nn.Cell):
    """Images (N, 3, 6, 6) to one logit, with one summary operator of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3 * 6 * 6, 4)
        self.head = nn.Dense(4, 1)
        self.scalar = ops.ScalarSummary()
        self.image = ops.ImageSummary()
        self.tensor = ops.TensorSummary()
        self.histogram = ops.HistogramSummary()

    def construct(self, images: Tensor) -> Tensor:
        hidden = self.dense(images.reshape((-1, 3 * 6 * 6)))
        output = self.head(hidden)
        # operators fed by a reshape alone would be dropped by the compiler
        self.scalar("mean", output.mean() * 1.0)
        self.image("picture", images * 1.0)
        self.tensor("hidden", hidden * 1.0)
        self.histogram("outputs", output * 1.0)
        return output


def data(seed: int) -> NumpySlicesDataset:
    """Images and labels, whose rows do not depend on anything but the seed."""
    random = np.random.default_rng(seed)
    images = random.random((BATCHES * BATCH, 3, 6, 6), np.float32)
    labels = random.integers(0, 2, (BATCHES * BATCH, 1)).astype(np.float32)
    return NumpySlicesDataset((images, labels), ["image", "label"], shuffle=False).batch(BATCH)


def main(which: str, folder: str) -> None:
    """Trains and evaluates with one of the collectors."""
    if which == "theirs":
        from mindspore.train import SummaryCollector
    else:
        from rec_summary import SummaryCollector
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # the default of MindSpore 2.10 is PyNative
    mindspore.set_seed(3)
    network = Network()
    optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.05, momentum=0.9)
    model = Model(network, nn.BCEWithLogitsLoss(), optimizer, metrics={"mae"})
    collector = SummaryCollector(
        folder,
        collect_freq=COLLECT_FREQ,
        collect_specified_data={"histogram_regular": "dense|head", "collect_landscape": None},
        custom_lineage_data=CUSTOM,
        collect_tensor_freq=TENSOR_FREQ,
        export_options={"tensor_format": "npy"},
    )
    model.train(EPOCHS, data(1), callbacks=[collector], dataset_sink_mode=False)
    next_second()
    model.eval(data(2), callbacks=[collector], dataset_sink_mode=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
