"""Wide & Deep with its own training step: two losses, two optimizers, and probes.

The step is the `TrainStepWrap` of MindSpore's Wide & Deep: FTRL for the wide part, Adam for the
deep part. It returns two losses and no predictions. The lines for rec_summary are marked.
"""

from __future__ import annotations

import mindspore
from clicks import Clicks, arguments, stop_after
from mindspore import ParameterTuple, Tensor, nn, ops
from wide_deep import WideDeep

from rec_summary import (
    GradientMetrics,
    GradientProbe,
    RecModel,
    RecommenderMetrics,
    SummaryCollector,
    probe,
)


class Losses(nn.Cell):
    """Returns the loss of the wide part, and that of the deep part, which is regularised."""

    def __init__(self, scorer: WideDeep, l2: float = 1e-5) -> None:
        super().__init__(auto_prefix=False)
        self.scorer = scorer
        self.l2 = l2
        self.loss = nn.BCEWithLogitsLoss()
        self.half_squares = ops.L2Loss()

    def construct(
        self,
        user: Tensor,
        item: Tensor,
        context: Tensor,
        genres: Tensor,
        crosses: Tensor,
        click: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Returns two losses, scalars."""
        score = self.scorer(user, item, genres, crosses)
        probe("score", score)  # rec_summary
        probe("click", click)  # rec_summary
        log_loss = self.loss(score, click)
        penalty = self.half_squares(self.scorer.user_embedding.embedding_table)
        probe("loss/penalty", self.l2 * penalty)  # rec_summary: one number is recorded
        return log_loss, log_loss + self.l2 * penalty


class One(nn.Cell):
    """One of the losses of a network."""

    def __init__(self, network: Losses, position: int) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.position = position

    def construct(self, *columns: Tensor) -> Tensor:
        """Returns the loss, a scalar."""
        return self.network(*columns)[self.position]


class TrainStepWrap(nn.Cell):
    """Updates the wide part with FTRL, then the deep part with Adam; returns both losses."""

    def __init__(self, network: Losses) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        weights = network.trainable_params()
        wide = [weight for weight in weights if "wide" in weight.name]
        deep = [weight for weight in weights if "wide" not in weight.name]
        self.weights_w, self.weights_d = ParameterTuple(wide), ParameterTuple(deep)
        self.optimizer_w = GradientProbe(nn.FTRL(wide, learning_rate=5e-2))  # rec_summary
        self.optimizer_d = GradientProbe(nn.Adam(deep, 2e-3))  # rec_summary
        self.gradients_w = mindspore.grad(One(network, 0), None, self.weights_w)
        self.gradients_d = mindspore.grad(One(network, 1), None, self.weights_d)

    def construct(self, *columns: Tensor) -> tuple[Tensor, Tensor]:
        """Trains one batch; returns both losses, from before the update."""
        loss_w, loss_d = self.network(*columns)
        gradients_w = self.gradients_w(*columns)
        gradients_d = self.gradients_d(*columns)
        return (
            ops.depend(loss_w, self.optimizer_w(gradients_w)),
            ops.depend(loss_d, self.optimizer_d(gradients_d)),
        )


def main() -> None:
    """Trains online until `--steps`."""
    options = arguments(__doc__, "records/two_optimizers", 500)
    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # faster, and its graph is recorded
    clicks = Clicks(options.data)
    model = RecModel(TrainStepWrap(Losses(WideDeep(clicks.vocabulary))))
    collector = SummaryCollector(
        options.records,
        collect_freq=10,
        recommender=RecommenderMetrics(
            predictions="score",  # the names of probes
            labels="click",
            logits=True,
            users="user",
            report_steps=100,
        ),
        gradients=GradientMetrics(every=10, groups={"embeddings": ".*_embedding"}),
        custom_lineage_data={"model": "wide & deep", "data": options.data},
    )
    model.online_train(
        clicks.endless(),
        callbacks=[collector, stop_after(options.steps)],
        dataset_sink_mode=False,
    )
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
