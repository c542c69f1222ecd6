"""A training that breaks: at step 180 three prices of a batch are in cents, and not in euros."""

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset

from rec_summary import Incident, RecModel, SummaryCollector

USERS, ITEMS, BATCH, STEPS = 500, 200, 256, 200
IN_CENTS = [17, 90, 203]

mindspore.set_seed(1)
mindspore.set_context(mode=mindspore.GRAPH_MODE)


class Clicks(nn.Cell):
    """Predicts a click from a user, an item and its price."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, 1), nn.Embedding(ITEMS, 1)
        self.price = nn.Dense(1, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, user, item, price, click):
        """Returns the loss, the score and the label."""
        odds = (self.user(user) + self.item(item) + self.price(price)).reshape((-1,))
        return self.loss(odds, click), ops.sigmoid(odds), click


def rows():
    """Yields batches of users, items, prices and clicks: what is cheap is clicked."""
    random = np.random.default_rng(1)
    for step in range(1, STEPS + 1):
        user = random.integers(0, USERS, BATCH).astype(np.int32)
        item = random.integers(0, ITEMS, BATCH).astype(np.int32)
        price = (0.5 + random.gamma(2, 2, (BATCH, 1))).round(2).astype(np.float32)
        click = (random.random(BATCH) < 1 / (1 + np.exp(price[:, 0] - 4))).astype(np.float32)
        if step == 180:
            price[IN_CENTS] = [[399], [149], [249]]
            click[IN_CENTS] = 1
        yield user, item, price, click


network = Clicks()
model = RecModel(network, optimizer=nn.SGD(network.trainable_params(), 0.05), keep_outputs=True)
model.train(
    1,
    GeneratorDataset(rows, ["user", "item", "price", "click"], shuffle=False),
    callbacks=[SummaryCollector("records/monday", incident=Incident(hashed=["user"]))],
    dataset_sink_mode=False,
)
