"""Wide & Deep, trained online with `RecModel.online_train` on a stream without an end.

Cheng et al. 2016, https://doi.org/10.1145/2988450.2988454
"""

from __future__ import annotations

import mindspore
from clicks import CROSS_BUCKETS, Clicks, Vocabulary, arguments, stop_after
from mindspore import Tensor, nn, ops

from rec_summary import RecModel, Retention, SummaryCollector


class WideDeep(nn.Cell):
    """A linear part on crosses that memorises, an MLP on embeddings that generalises."""

    def __init__(self, vocabulary: Vocabulary, width: int = 16) -> None:
        super().__init__()
        self.wide = nn.Embedding(CROSS_BUCKETS, 1, embedding_table="zeros")
        self.user_embedding = nn.Embedding(vocabulary.users, width)
        self.item_embedding = nn.Embedding(vocabulary.items, width)
        self.deep = nn.SequentialCell(
            nn.Dense(2 * width + vocabulary.genres, 32), nn.ReLU(), nn.Dense(32, 1)
        )
        # What a summary operator is given is recorded, under a name of its own.
        self.summary = ops.HistogramSummary()

    def construct(self, user: Tensor, item: Tensor, genres: Tensor, crosses: Tensor) -> Tensor:
        """Returns the log-odds of a click, [B]."""
        features = ops.concat((self.user_embedding(user), self.item_embedding(item), genres), 1)
        score = (self.wide(crosses).sum(axis=1) + self.deep(features)).squeeze(1)
        self.summary("score", score * 1.0)
        return score


class ClickLoss(nn.Cell):
    """The network to train: the stream's columns in, the mean log loss out."""

    def __init__(self, scorer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.scorer = scorer
        self.loss = nn.BCEWithLogitsLoss()

    def construct(
        self,
        user: Tensor,
        item: Tensor,
        context: Tensor,
        genres: Tensor,
        crosses: Tensor,
        click: Tensor,
    ) -> Tensor:
        """Returns the loss, a scalar."""
        return self.loss(self.scorer(user, item, genres, crosses), click)


def main() -> None:
    """Trains until `--steps`; a real stream would be trained on until somebody stops it."""
    options = arguments(__doc__, "records/wide_deep", 500)
    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # faster, and its graph is recorded
    clicks = Clicks(options.data)
    network = ClickLoss(WideDeep(clicks.vocabulary))
    model = RecModel(network, optimizer=nn.Adam(network.trainable_params(), 2e-3))
    collector = SummaryCollector(
        options.records,
        collect_freq=10,
        collect_specified_data={"histogram_regular": ".*embedding"},
        custom_lineage_data={"model": "wide & deep", "data": options.data},
        retention=Retention(total_bytes=1 << 30),  # old records become coarser
    )
    model.online_train(
        clicks.endless(),
        callbacks=[collector, stop_after(options.steps)],
        dataset_sink_mode=False,
    )
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
