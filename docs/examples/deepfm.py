"""DeepFM, trained offline: `Model.fit` with an evaluation after each epoch.

Guo et al. 2017, https://doi.org/10.24963/ijcai.2017/239
"""

from __future__ import annotations

import mindspore
from clicks import Clicks, Vocabulary, arguments
from mindspore import Tensor, nn, ops
from mindspore.train import Model

from rec_summary import SummaryCollector

EPOCHS = 2
LEARNING_RATE = 2e-3


class DeepFM(nn.Cell):
    """A factorisation machine and an MLP on the same embeddings of user, film and context."""

    def __init__(self, vocabulary: Vocabulary, width: int = 8) -> None:
        super().__init__()
        rows = vocabulary.users + vocabulary.items + sum(vocabulary.context_sizes)
        fields = 2 + len(vocabulary.context_sizes)
        # One table for all fields: an offset gives each its own rows.
        self.offsets = Tensor([0, vocabulary.users] + [vocabulary.users + vocabulary.items] * 5)
        self.linear = nn.Embedding(rows, 1, embedding_table="zeros")
        self.embedding = nn.Embedding(rows, width)
        self.mlp = nn.SequentialCell(nn.Dense(fields * width, 32), nn.ReLU(), nn.Dense(32, 1))

    def construct(self, user: Tensor, item: Tensor, context: Tensor) -> Tensor:
        """Returns the log-odds of a click, [B]."""
        ids = ops.concat((user.expand_dims(1), item.expand_dims(1), context), 1) + self.offsets
        vectors = self.embedding(ids)  # [B, fields, width]
        together, apart = vectors.sum(axis=1) ** 2, (vectors**2).sum(axis=1)
        pairs = 0.5 * (together - apart).sum(axis=1)
        deep = self.mlp(vectors.reshape((vectors.shape[0], -1)))
        return self.linear(ids).sum(axis=(1, 2)) + pairs + deep.squeeze(1)


class Train(nn.Cell):
    """The network to train: columns in, the mean log loss out."""

    def __init__(self, scorer: DeepFM) -> None:
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
        return self.loss(self.scorer(user, item, context), click)


class Evaluate(Train):
    """The network to evaluate: loss, score and label."""

    def construct(
        self,
        user: Tensor,
        item: Tensor,
        context: Tensor,
        genres: Tensor,
        crosses: Tensor,
        click: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the loss, and scores and labels, [B]."""
        score = self.scorer(user, item, context)
        return self.loss(score, click), score, click


class Accuracy(mindspore.train.Metric):
    """The part of the clicks that the sign of the score tells right."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        """Forgets all rows."""
        self._right = self._rows = 0

    def update(self, *inputs: Tensor) -> None:
        """Takes scores and labels, [B]."""
        score, click = (tensor.asnumpy() for tensor in inputs)
        self._right += int(((score > 0) == (click > 0.5)).sum())
        self._rows += len(click)

    def eval(self) -> float:
        """Returns the accuracy, from 0 to 1."""
        return self._right / max(self._rows, 1)


def main() -> None:
    """Trains for two epochs on the first batches, evaluates on those after them."""
    options = arguments(__doc__, "records/deepfm", 200)
    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # faster, and its graph is recorded
    clicks = Clicks(options.data)
    scorer = DeepFM(clicks.vocabulary)
    model = Model(
        Train(scorer),
        optimizer=nn.Adam(scorer.trainable_params(), LEARNING_RATE),
        metrics={"accuracy": Accuracy()},
        eval_network=Evaluate(scorer),
        eval_indexes=[0, 1, 2],  # loss, score, label
    )
    collector = SummaryCollector(
        options.records,
        collect_freq=10,
        custom_lineage_data={"model": "DeepFM", "data": options.data},
    )
    epoch_steps = max(options.steps // EPOCHS, 1)
    model.fit(
        EPOCHS,
        clicks.some(epoch_steps),
        clicks.some(10, skip=epoch_steps),
        callbacks=[collector],
        dataset_sink_mode=False,
    )
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
