"""A factorisation machine with one table for all columns, and the metrics of its clicks.

Each column of ids has its own part of the table; an offset says where that part begins.

Rendle 2010, https://doi.org/10.1109/ICDM.2010.127
"""

from __future__ import annotations

from typing import Any

import mindspore
from clicks import Clicks, Vocabulary, arguments, stop_after
from mindspore import Tensor, nn, ops

from rec_summary import RecModel, RecommenderMetrics, SummaryCollector


class FactorisationMachine(nn.Cell):
    """Returns the loss, the click probabilities, the labels, and the rows that it looked up."""

    def __init__(self, vocabulary: Vocabulary, width: int = 8) -> None:
        super().__init__()
        users, items = vocabulary.users, vocabulary.items
        # The five columns of `context` have offsets already: they share the last part.
        self.offsets = Tensor([0, users] + [users + items] * len(vocabulary.context_sizes))
        rows = users + items + sum(vocabulary.context_sizes)
        self.embedding = nn.Embedding(rows, width)
        self.linear = nn.Embedding(rows, 1, embedding_table="zeros")
        self.loss = nn.BCEWithLogitsLoss()

    def construct(
        self,
        user: Tensor,
        item: Tensor,
        context: Tensor,
        genres: Tensor,
        crosses: Tensor,
        click: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the loss, probabilities and labels, [B], and rows of the table, [B, columns]."""
        rows = ops.concat((user.expand_dims(1), item.expand_dims(1), context), 1) + self.offsets
        vectors = self.embedding(rows)  # [B, columns, width]
        together, apart = vectors.sum(axis=1) ** 2, (vectors**2).sum(axis=1)
        odds = self.linear(rows).sum(axis=(1, 2)) + 0.5 * (together - apart).sum(axis=1)
        return self.loss(odds, click), ops.sigmoid(odds), click, rows


def looked_up(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Any:
    """Returns the rows of a batch. The network adds the offsets, so they are in one place."""
    return outputs[3]


def main() -> None:
    """Trains online until `--steps`."""
    options = arguments(__doc__, "records/one_table", 500)
    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # faster, and its graph is recorded
    clicks = Clicks(options.data)
    network = FactorisationMachine(clicks.vocabulary)
    optimizer = nn.Adam(network.trainable_params(), 5e-3)
    model = RecModel(network, optimizer=optimizer, keep_outputs=True)
    collector = SummaryCollector(
        options.records,
        collect_freq=10,
        recommender=RecommenderMetrics(
            predictions=1,
            labels=2,
            users="user",
            ids={"embedding": looked_up},  # of all columns: a table is counted as a whole
            features={"item": "item", "age_group": ("context", 0)},  # a column's own ids
            report_steps=100,
            detail=True,  # all metrics of the table
        ),
        custom_lineage_data={"model": "factorisation machine", "data": options.data},
    )
    model.online_train(
        clicks.endless(),
        callbacks=[collector, stop_after(options.steps)],
        dataset_sink_mode=False,
    )
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
