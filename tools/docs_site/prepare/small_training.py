"""A small training on made clicks, for pages that compare runs."""

from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

from rec_summary import SummaryCollector


def train(
    records: str, rate: float, seed: int, batches: int, *, shuffle: bool, **collected: Any
) -> None:
    """Trains a network once on all batches; `collected` is for the collector."""
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_seed(seed)
    random = np.random.default_rng(1)
    features = random.normal(size=(64 * batches, 8)).astype(np.float32)
    odds = 2 * features[:, :1] - features[:, 1:2] * features[:, 2:3]
    clicks = (random.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(np.float32)
    network = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))
    optimizer = nn.Adam(network.trainable_params(), rate)
    model = Model(network, nn.BCEWithLogitsLoss(), optimizer)
    rows = NumpySlicesDataset((features, clicks), ["features", "click"], shuffle=shuffle)
    collector = SummaryCollector(records, **collected)
    model.train(1, rows.batch(64), callbacks=[collector], dataset_sink_mode=False)
