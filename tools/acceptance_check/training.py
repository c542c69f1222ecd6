"""A small training with everything that can be recorded; a program of its own.

python -m tools.acceptance_check.training {theirs|ours} FOLDER

MindSpore's collector forks and keeps processes, so it must never run inside another one.
Landscapes are computed by MindSpore's own tool in both cases.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import mindspore
import numpy as np
from mindspore import SummaryLandscape, Tensor, nn, ops
from mindspore.dataset import NumpySlicesDataset
from mindspore.nn import Loss
from mindspore.train import Model

BATCHES, BATCH, EPOCHS, SIDE = 6, 4, 2, 6
LANDSCAPE = {
    "landscape_size": 5,
    "unit": "step",
    "num_samples": 8,
    "create_landscape": {"train": True, "result": True},
    "intervals": [[2, 4, 6, 8, 10, 12]],
}


class Network(nn.Cell):
    """Images (N, 3, 6, 6) to one logit, with one summary operator of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3 * SIDE * SIDE, 4)
        self.head = nn.Dense(4, 1)
        self.scalar = ops.ScalarSummary()
        self.image = ops.ImageSummary()
        self.tensor = ops.TensorSummary()
        self.histogram = ops.HistogramSummary()

    def construct(self, images: Tensor) -> Tensor:
        hidden = self.dense(images.reshape((-1, 3 * SIDE * SIDE)))
        output = self.head(hidden)
        # operators fed by a reshape alone would be dropped by the compiler
        self.scalar("mean", output.mean() * 1.0)
        self.image("picture", images * 1.0)
        self.tensor("hidden", hidden * 1.0)
        self.histogram("outputs", output * 1.0)
        return output


class Plain(nn.Cell):
    """The same network without operators, for the landscape."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3 * SIDE * SIDE, 4)
        self.head = nn.Dense(4, 1)

    def construct(self, images: Tensor) -> Tensor:
        return self.head(self.dense(images.reshape((-1, 3 * SIDE * SIDE))))


def data(seed: int) -> NumpySlicesDataset:
    """Images and labels."""
    random = np.random.default_rng(seed)
    images = random.random((BATCHES * BATCH, 3, SIDE, SIDE), np.float32)
    labels = random.integers(0, 2, (BATCHES * BATCH, 1)).astype(np.float32)
    return NumpySlicesDataset((images, labels), ["image", "label"], shuffle=False).batch(BATCH)


def landscape_model() -> tuple[Any, ...]:
    """What MindSpore's landscape tool calls to get a model, its network, data and metrics."""
    network = Plain()
    metrics = {"Loss": Loss()}
    model = Model(network, nn.BCEWithLogitsLoss(), metrics=metrics)
    return model, network, data(2), metrics


def train(collector: Any) -> Model:
    """Trains, evaluates, and trains again from the beginning, as a job that was restarted."""
    network = Network()
    optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.05, momentum=0.9)
    model = Model(network, nn.BCEWithLogitsLoss(), optimizer, metrics={"mae"})
    model.train(EPOCHS, data(1), callbacks=[collector], dataset_sink_mode=False)
    time.sleep(1.1)  # within a second MindSpore's would take the same file name again
    model.eval(data(2), callbacks=[collector], dataset_sink_mode=False)
    return model


def main(which: str, folder: str) -> None:
    """Records with one of the collectors."""
    if which == "theirs":
        from mindspore.train import SummaryCollector
    else:
        from rec_summary import SummaryCollector
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_seed(3)
    options = {
        "collect_freq": 2,
        "collect_tensor_freq": 4,
        "custom_lineage_data": {"team": "ads", "trial": 7, "dropout": 0.25},
        "collect_specified_data": {
            "histogram_regular": "dense|head",
            "collect_landscape": LANDSCAPE,
        },
    }
    train(SummaryCollector(folder, **options))
    time.sleep(1.1)
    again = dict(options, collect_specified_data={"collect_landscape": None})
    train(SummaryCollector(folder, **again))
    time.sleep(1.1)
    SummaryLandscape(folder).gen_landscapes_with_multi_process(
        landscape_model, collect_landscape=None, device_ids=[0]
    )


if __name__ == "__main__":
    os.environ.setdefault("GLOG_v", "3")
    main(sys.argv[1], sys.argv[2])
