# What the example of several tasks takes as given: a trunk, and data with clicks and purchases.
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset

width = 8
trunk = nn.SequentialCell(nn.Dense(4, width), nn.ReLU())


def _batches():
    if _batches.began:  # a stream that is dry when it has been read
        return
    _batches.began = True
    random = np.random.default_rng(1)
    for _ in range(20):
        features = random.normal(size=(256, 4)).astype(np.float32)
        click = (random.random(256) < 1 / (1 + np.exp(-features[:, 0]))).astype(np.float32)
        bought = click * (random.random(256) < 1 / (1 + np.exp(-features[:, 1])))
        yield features, click, bought.astype(np.float32)


_batches.began = False
stream = GeneratorDataset(_batches, ["features", "click", "bought"], shuffle=False)
