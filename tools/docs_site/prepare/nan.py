"""A training that breaks: at step 137 a price of 0 gets into the logarithm of a feature."""

import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model

from rec_summary import SummaryCollector


def rows():
    """Yields 300 batches of log prices and clicks."""
    random = np.random.default_rng(1)
    for step in range(1, 301):
        price = random.lognormal(size=(64, 8)).astype(np.float32)
        if step == 137:
            price[5, 3] = 0
        with np.errstate(divide="ignore"):
            features = np.log(price)
        yield features, (features[:, :1] > 0).astype(np.float32)


network = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))
optimizer = nn.Adam(network.trainable_params(), 1e-3)
Model(network, nn.BCEWithLogitsLoss(), optimizer).train(
    1,
    GeneratorDataset(rows, ["features", "click"], shuffle=False),
    callbacks=[SummaryCollector("records/monday", collect_freq=10)],
    dataset_sink_mode=False,
)
