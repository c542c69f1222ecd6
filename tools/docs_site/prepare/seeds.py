"""Six runs: two learning rates with three seeds each."""

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

from rec_summary import SummaryCollector

mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
random = np.random.default_rng(1)
features = random.normal(size=(64 * 100, 8)).astype(np.float32)
odds = 2 * features[:, :1] - features[:, 1:2] * features[:, 2:3]
clicks = (random.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(np.float32)

for rate in (0.003, 0.03):
    for seed in (1, 2, 3):
        mindspore.set_seed(seed)
        network = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))
        optimizer = nn.Adam(network.trainable_params(), rate)
        model = Model(network, nn.BCEWithLogitsLoss(), optimizer)
        rows = NumpySlicesDataset((features, clicks), ["features", "click"]).batch(64)
        collector = SummaryCollector(
            f"records/rate-{rate:g}-seed-{seed}",
            collect_freq=2,
            custom_lineage_data={"seed": seed, "group": f"rate {rate:g}"},
        )
        model.train(1, rows, callbacks=[collector], dataset_sink_mode=False)
