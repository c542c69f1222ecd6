"""A small training recorded by MindSpore's own collector; run as a program of its own.

It forks and keeps processes, so it must never run inside the tests' process.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model, SummaryCollector
from mindspore.train.metrics import MAE

from tests.support.waiting import next_second

STEPS_PER_EPOCH = 5
EPOCHS = 2
BATCH = 4


def rows(batches: int) -> GeneratorDataset:
    """Returns the data of `batches` batches: features (3,) and a target (1,)."""
    random = np.random.default_rng(0)
    features = random.normal(size=(batches * BATCH, 3)).astype(np.float32)
    targets = features.sum(axis=1, keepdims=True)
    return GeneratorDataset(
        list(zip(features, targets, strict=True)), ["x", "y"], shuffle=False
    ).batch(BATCH)


def main(directory: str) -> None:
    """Trains and evaluates once, with the records in `directory`."""
    ms.set_seed(1)
    ms.set_context(mode=ms.GRAPH_MODE)
    network = nn.Dense(3, 1)
    optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.01, momentum=0.9)
    model = Model(network, nn.MSELoss(), optimizer, metrics={"mae": MAE()})
    collector = SummaryCollector(
        directory,
        collect_freq=2,
        collect_specified_data={"collect_landscape": None},
        custom_lineage_data={"team": "ads", "trial": 7},
    )
    model.train(EPOCHS, rows(STEPS_PER_EPOCH), callbacks=[collector], dataset_sink_mode=False)
    next_second()
    evaluator = SummaryCollector(directory, collect_specified_data={"collect_landscape": None})
    model.eval(rows(3), callbacks=[evaluator], dataset_sink_mode=False)


if __name__ == "__main__":
    main(sys.argv[1])
