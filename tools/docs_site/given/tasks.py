# What the example of several tasks takes as given: a trunk, and data with clicks and purchases.
import numpy as np
from docs_site.ended import ended
from mindspore import nn

width = 8
trunk = nn.SequentialCell(nn.Dense(4, width), nn.ReLU())


def _batches():
    random = np.random.default_rng(1)
    for _ in range(20):
        features = random.normal(size=(256, 4)).astype(np.float32)
        click = (random.random(256) < 1 / (1 + np.exp(-features[:, 0]))).astype(np.float32)
        bought = click * (random.random(256) < 1 / (1 + np.exp(-features[:, 1])))
        yield features, click, bought.astype(np.float32)


stream = ended(_batches(), ["features", "click", "bought"])
