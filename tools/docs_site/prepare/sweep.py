"""Twenty runs with learning rates from 1e-4 to 10."""

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

from rec_summary import SummaryCollector

mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
random = np.random.default_rng(1)
features = random.normal(size=(64 * 40, 8)).astype(np.float32)
odds = 2 * features[:, :1] - features[:, 1:2] * features[:, 2:3]
clicks = (random.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(np.float32)

for number, rate in enumerate(np.geomspace(1e-4, 10, 20)):
    mindspore.set_seed(1)
    network = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))
    optimizer = nn.Adam(network.trainable_params(), float(rate))
    model = Model(network, nn.BCEWithLogitsLoss(), optimizer, metrics={"log_loss": nn.Loss()})
    loss = nn.BCEWithLogitsLoss()
    rows = NumpySlicesDataset((features, clicks), ["features", "click"], shuffle=False).batch(64)
    collector = SummaryCollector(f"records/rate-{number:02}", collect_freq=20)
    model.train(1, rows, callbacks=[collector], dataset_sink_mode=False)
