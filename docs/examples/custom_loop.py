"""A training loop of your own in functional MindSpore, recorded with `SummaryRecord`."""

from __future__ import annotations

import mindspore
from clicks import Clicks, arguments
from mindspore import Tensor, nn
from wide_deep import WideDeep

from rec_summary import EmbeddingTable, RecommenderMetrics, SummaryRecord


def main() -> None:
    """Trains `--steps` steps, or until `rec-summary control --stop`."""
    options = arguments(__doc__, "records/custom_loop", 200)
    mindspore.set_seed(1)
    clicks = Clicks(options.data)
    scorer = WideDeep(clicks.vocabulary)
    optimizer = nn.Adam(scorer.trainable_params(), 2e-3)
    loss_of = nn.BCEWithLogitsLoss()

    def forward(user: Tensor, item: Tensor, _: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        genres, crosses, click = others
        odds = scorer(user, item, genres, crosses)
        return loss_of(odds, click), odds

    step_of = mindspore.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    with SummaryRecord(
        options.records,
        hyper_parameters={"model": "wide & deep", "data": options.data},
        recommender=RecommenderMetrics(
            predictions="odds",
            labels="click",
            logits=True,
            users="user",
            ids={"item": "item"},
            report_steps=50,
        ),
        tables={
            "item": EmbeddingTable(
                lambda rows: scorer.item_embedding(Tensor(rows)), clicks.vocabulary.items
            )
        },
    ) as record:
        stream = record.batches(clicks.batches(options.steps))  # measures the wait for data
        for step, batch in enumerate(stream, start=1):
            (loss, odds), gradients = step_of(*(Tensor(column) for column in batch))
            optimizer(gradients)
            record.observe(odds=odds, click=batch.click, user=batch.user, item=batch.item)
            record.add_value("scalar", "loss", loss)
            if step % 50 == 1:
                table = scorer.item_embedding.embedding_table
                record.add_value("histogram", "item_embedding", table)
            record.record(step)  # in PyNative mode also what summary operators put out
            if record.should_stop:
                break
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
