"""The tags that trainings of common sizes record by default: few enough to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import Tensor, nn, ops
from mindspore.dataset import GeneratorDataset

from rec_summary import (
    GradientMetrics,
    RecModel,
    RecommenderMetrics,
    SummaryCollector,
    Task,
)
from tests.support.nets import Journal
from tests.support.training_records import events

TABLES, ROWS, WIDTH, BATCH = 26, 12, 4, 256
STEPS = 40
SLICES = 5


class Wide(nn.Cell):
    """A click from the sum of rows of many tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.CellList([nn.Embedding(ROWS, WIDTH) for _ in range(TABLES)])
        self.head = nn.Dense(WIDTH, 1)
        self.loss = nn.BCELoss()

    def construct(self, fields: Tensor, click: Tensor, bought: Tensor):
        rows = 0
        for place in range(TABLES):
            rows = rows + self.tables[place](fields[:, place])
        score = ops.sigmoid(self.head(rows))
        return self.loss(score, click), score, click


class TwoHeads(nn.Cell):
    """A click, and a purchase after it, from the rows of two tables."""

    def __init__(self) -> None:
        super().__init__()
        self.user_embedding = nn.Embedding(ROWS, WIDTH)
        self.item_embedding = nn.Embedding(ROWS, WIDTH)
        self.head = nn.Dense(WIDTH, 2)
        self.loss = nn.BCELoss()

    def construct(self, fields: Tensor, click: Tensor, bought: Tensor):
        rows = self.user_embedding(fields[:, 0]) + self.item_embedding(fields[:, 1])
        score = ops.sigmoid(self.head(rows))
        clicked, buys = score[:, :1], score[:, 1:]
        loss = self.loss(clicked, click) + self.loss(clicked * buys, bought)
        return loss, clicked, click, buys, bought


def batches():
    """Yields batches of ids, clicks, and purchases, which are some of the clicks."""
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        fields = np.minimum(random.geometric(0.3, (BATCH, TABLES)), ROWS).astype(np.int32) - 1
        click = random.random((BATCH, 1)) < 0.5
        bought = click & (random.random((BATCH, 1)) < 0.5)
        yield fields, click.astype(np.float32), bought.astype(np.float32)


def tags_of_training(folder: Path, network: nn.Cell, **options) -> set[str]:
    """Returns all tags of the records of a training."""
    model = RecModel(network, optimizer=nn.Adam(network.trainable_params()), keep_outputs=True)
    collector = SummaryCollector(folder, **options)
    stream = GeneratorDataset(batches, ["fields", "click", "bought"], shuffle=False)
    model.online_train(stream, callbacks=[collector, Journal(stop_after=STEPS)])
    assert not collector.troubles
    return {value.tag for event in events(folder) for value in event.summary.value}


def test_one_head_with_26_tables_has_at_most_60_tags(tmp_path) -> None:
    metrics = RecommenderMetrics(
        predictions=1,
        labels=2,
        users=("fields", 0),
        ids={f"tables.{place}": ("fields", place) for place in range(TABLES)},
        report_steps=10,
    )
    tags = tags_of_training(tmp_path, Wide(), recommender=metrics)
    assert len(tags) <= 60, sorted(tags)


def test_two_heads_with_five_slice_columns_have_at_most_200_tags(tmp_path) -> None:
    metrics = RecommenderMetrics(
        tasks={
            "click": Task(predictions=1, labels=2, users=("fields", 0)),
            "purchase": Task(predictions=3, labels=4, mask=2, users=("fields", 0)),
        },
        slices={f"slice_{place}": ("fields", place) for place in range(SLICES)},
        ids={"user_embedding": ("fields", 0), "item_embedding": ("fields", 1)},
        features={"item": ("fields", 1)},
        report_steps=10,
    )
    gradients = GradientMetrics(every=10, groups={"tables": ".*_embedding", "head": "head"})
    tags = tags_of_training(tmp_path, TwoHeads(), recommender=metrics, gradients=gradients)
    assert len(tags) <= 200, sorted(tags)
