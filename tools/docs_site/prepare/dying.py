"""An embedding table that dies: from step 301 on, most items are not found in the catalogue.

They all become row 0, and the weight decay of the optimizer lets the other rows fade.
"""

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.common.initializer import Normal
from mindspore.dataset import GeneratorDataset

from rec_summary import Advanced, RecModel, RecommenderMetrics, SummaryCollector

USERS, ITEMS, BATCH, STEPS = 500, 800, 256, 900

mindspore.set_seed(1)
mindspore.set_context(mode=mindspore.GRAPH_MODE)


class TwoTowers(nn.Cell):
    """Multiplies the vectors of a user and an item."""

    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(USERS, 8, embedding_table=Normal(0.5))
        self.item = nn.Embedding(ITEMS, 8, embedding_table=Normal(0.5))
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, user, item, click):
        """Returns the loss, the score and the label."""
        odds = (self.user(user) * self.item(item)).sum(-1)
        return self.loss(odds, click), ops.sigmoid(odds), click


def rows():
    """Yields batches of users, items and clicks."""
    random = np.random.default_rng(1)
    tastes, kinds = random.normal(size=(USERS, 3)), random.normal(size=(ITEMS, 3))
    for step in range(1, STEPS + 1):
        user = random.integers(0, USERS, BATCH).astype(np.int32)
        item = (1 + (ITEMS - 1) * random.random(BATCH) ** 2).astype(np.int32)
        odds = (tastes[user] * kinds[item]).sum(-1)
        click = (random.random(BATCH) < 1 / (1 + np.exp(-odds))).astype(np.float32)
        if step > 300:
            item[random.random(BATCH) < 0.95] = 0
        yield user, item, click


network = TwoTowers()
optimizer = nn.AdamWeightDecay(network.trainable_params(), 0.02, weight_decay=0.3)
model = RecModel(network, optimizer=optimizer, keep_outputs=True)
metrics = RecommenderMetrics(
    predictions=1,
    labels=2,
    ids={"user": "user", "item": "item"},
    unknown_ids={"item": 0},
    last=(25_600,),
    report_steps=100,
    detail=True,
    advanced=Advanced(detail_every=1),
)
model.train(
    1,
    GeneratorDataset(rows, ["user", "item", "click"], shuffle=False),
    callbacks=[SummaryCollector("records/tuesday", recommender=metrics)],
    dataset_sink_mode=False,
)
