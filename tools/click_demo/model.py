"""Wide & Deep for clicks: a linear part that memorises, an MLP that generalises.

Cheng et al. 2016, Wide & Deep Learning for Recommender Systems,
https://doi.org/10.1145/2988450.2988454
"""

from __future__ import annotations

from itertools import pairwise

from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Normal

from .features import CROSS_BUCKETS, Vocabulary

ID_WIDTH, CONTEXT_WIDTH, GENRE_WIDTH = 16, 4, 8
HIDDEN = (64, 32)
WIDE_LEARNING_RATE = 1e-3  # it has a weight for each cross, most of them rarely seen
DEEP_LEARNING_RATE = 2e-3


class WideDeep(nn.Cell):
    """Scores a batch: inputs are the columns of `features.Batch` but the label."""

    def __init__(self, vocabulary: Vocabulary, heads: int = 1) -> None:
        super().__init__()
        self.heads = heads
        context_rows, fields = sum(vocabulary.context_sizes), len(vocabulary.context_sizes)
        self.wide_user = _table(vocabulary.users, heads, "zeros")
        self.wide_item = _table(vocabulary.items, heads, "zeros")
        self.wide_context = _table(context_rows, heads, "zeros")
        self.wide_cross = _table(CROSS_BUCKETS, heads, "zeros")
        self.user_embedding = _table(vocabulary.users, ID_WIDTH, Normal(0.05))
        self.item_embedding = _table(vocabulary.items, ID_WIDTH, Normal(0.05))
        self.context_embedding = _table(context_rows, CONTEXT_WIDTH, Normal(0.05))
        self.genre_embedding = nn.Dense(vocabulary.genres, GENRE_WIDTH, has_bias=False)
        widths = (2 * ID_WIDTH + fields * CONTEXT_WIDTH + GENRE_WIDTH, *HIDDEN)
        self.mlp = nn.SequentialCell(
            *(
                layer
                for fan_in, fan_out in pairwise(widths)
                for layer in (nn.Dense(fan_in, fan_out), nn.ReLU())
            ),
            nn.Dense(widths[-1], heads),
        )

    def construct(
        self, user: Tensor, item: Tensor, context: Tensor, genres: Tensor, crosses: Tensor
    ) -> Tensor:
        """Returns the log-odds of a click, one for each row; of more heads, (B, heads)."""
        wide = (
            self.wide_user(user)
            + self.wide_item(item)
            + self.wide_context(context).sum(axis=1)
            + self.wide_cross(crosses).sum(axis=1)
        )
        features = (
            self.user_embedding(user),
            self.item_embedding(item),
            ops.flatten(self.context_embedding(context)),
            self.genre_embedding(genres),
        )
        deep = self.mlp(ops.concat(features, axis=1))
        return (wide + deep).squeeze(1) if self.heads == 1 else wide + deep


class ClickLoss(nn.Cell):
    """The network to train: mean log loss of a batch, in nats."""

    def __init__(self, scorer: WideDeep) -> None:
        super().__init__(auto_prefix=False)
        self.scorer = scorer
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, *batch: Tensor) -> Tensor:
        """Returns the loss, a scalar, of the columns of `features.Batch`."""
        return self.loss(self.scorer(*batch[:-1]), batch[-1])


class ClickEvaluation(ClickLoss):
    """The network to evaluate with: loss, probability of a click, and label."""

    def construct(self, *batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the loss (a scalar), the probabilities and the labels (one a row)."""
        log_odds, click = self.scorer(*batch[:-1]), batch[-1]
        return self.loss(log_odds, click), ops.sigmoid(log_odds), click


class TaskLoss(nn.Cell):
    """The network to train with two heads: a click, and the highest rating of what was clicked."""

    def __init__(self, scorer: WideDeep) -> None:
        super().__init__(auto_prefix=False)
        self.scorer = scorer
        self.loss = nn.BCEWithLogitsLoss(reduction="none")

    def parts(self, *batch: Tensor) -> tuple[Tensor, ...]:
        """Returns the loss (a scalar) and the log-odds of both heads."""
        *columns, click, loved, _, _ = batch
        log_odds = self.scorer(*columns)
        click_odds, loved_odds = log_odds[:, 0], log_odds[:, 1]
        # Only what was clicked has a rating to learn from.
        loved_loss = (self.loss(loved_odds, loved) * click).sum() / ops.maximum(click.sum(), 1.0)
        return self.loss(click_odds, click).mean() + loved_loss, click_odds, loved_odds

    def construct(self, *batch: Tensor) -> Tensor:
        """Returns the loss, a scalar, of the columns of `features.TaskBatch`."""
        return self.parts(*batch)[0]


class TaskEvaluation(TaskLoss):
    """The network to evaluate with: loss, and probability and label of each head."""

    def construct(self, *batch: Tensor) -> tuple[Tensor, ...]:
        """Returns the loss (a scalar), and the probabilities and labels (one a row)."""
        loss, click_odds, loved_odds = self.parts(*batch)
        click, loved = batch[-4:-2]
        return loss, ops.sigmoid(click_odds), click, ops.sigmoid(loved_odds), loved


def adam(scorer: WideDeep) -> nn.Adam:
    """One optimizer with two groups: the wide part learns faster than the deep one."""
    wide = [p for p in scorer.trainable_params() if p.name.startswith("wide_")]
    deep = [p for p in scorer.trainable_params() if not p.name.startswith("wide_")]
    return nn.Adam(
        [{"params": wide, "lr": WIDE_LEARNING_RATE}, {"params": deep, "lr": DEEP_LEARNING_RATE}],
        learning_rate=DEEP_LEARNING_RATE,
    )


def _table(rows: int, width: int, init: str | Normal) -> nn.Embedding:
    return nn.Embedding(rows, width, embedding_table=init)
