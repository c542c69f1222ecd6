"""Two towers for retrieval, trained offline with `Model.train`: each film clicked against
the others of its batch.

Yi et al. 2019, https://doi.org/10.1145/3298689.3346996
"""

from __future__ import annotations

import mindspore
from clicks import Clicks, Vocabulary, arguments
from mindspore import Tensor, nn, ops
from mindspore.train import Model

from rec_summary import SummaryCollector

TEMPERATURE = 0.1


class TwoTower(nn.Cell):
    """One tower for users, one for films; the score is the cosine between them."""

    def __init__(self, vocabulary: Vocabulary, width: int = 16) -> None:
        super().__init__()
        self.user_embedding = nn.Embedding(vocabulary.users, width)
        self.item_embedding = nn.Embedding(vocabulary.items, width)
        self.user_tower = nn.SequentialCell(nn.Dense(width, 32), nn.ReLU(), nn.Dense(32, width))
        self.item_tower = nn.SequentialCell(
            nn.Dense(width + vocabulary.genres, 32), nn.ReLU(), nn.Dense(32, width)
        )
        self.scalar = ops.ScalarSummary()

    def construct(
        self,
        user: Tensor,
        item: Tensor,
        context: Tensor,
        genres: Tensor,
        crosses: Tensor,
        click: Tensor,
    ) -> Tensor:
        """Returns the softmax loss over the batch, of the rows that were clicked."""
        users = _unit(self.user_tower(self.user_embedding(user)))
        films = _unit(self.item_tower(ops.concat((self.item_embedding(item), genres), 1)))
        scores = ops.matmul(users, films.T) / TEMPERATURE  # [B, B]; the diagonal is what was seen
        own = ops.diagonal(scores)
        self.scalar("own_score", (own * click).sum() / click.sum())
        return ((ops.logsumexp(scores, 1) - own) * click).sum() / click.sum()


def _unit(vectors: Tensor) -> Tensor:
    return vectors / ops.sqrt((vectors**2).sum(axis=1, keepdims=True) + 1e-12)


def main() -> None:
    """Trains one epoch of `--steps` batches, with a falling learning rate."""
    options = arguments(__doc__, "records/two_tower", 500)
    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # faster, and its graph is recorded
    clicks = Clicks(options.data, batch_size=128)
    network = TwoTower(clicks.vocabulary)
    rates = nn.cosine_decay_lr(1e-4, 5e-3, options.steps, 1, options.steps)
    model = Model(network, optimizer=nn.Adam(network.trainable_params(), rates))
    collector = SummaryCollector(
        options.records,
        collect_freq=5,
        collect_specified_data={"histogram_regular": ".*_embedding"},
        custom_lineage_data={"model": "two towers", "temperature": TEMPERATURE},
    )
    model.train(1, clicks.some(options.steps), callbacks=[collector], dataset_sink_mode=False)
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
