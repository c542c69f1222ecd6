"""A training loop of your own, recorded with `SummaryRecord`."""

from __future__ import annotations

import time

import mindspore
from clicks import Clicks, arguments
from mindspore import Tensor, nn
from wide_deep import ClickLoss, WideDeep

from rec_summary import SummaryRecord


def main() -> None:
    """Trains `--steps` steps; records each loss, and the film table every fiftieth step."""
    options = arguments(__doc__, "records/custom_loop", 200)
    mindspore.set_seed(1)
    clicks = Clicks(options.data)
    scorer = WideDeep(clicks.vocabulary)
    network = ClickLoss(scorer)
    optimizer = nn.Adam(network.trainable_params(), 2e-3)
    step_of = mindspore.value_and_grad(network, None, optimizer.parameters)

    with SummaryRecord(options.records) as record:
        for step, batch in enumerate(clicks.batches(options.steps), start=1):
            begun = time.perf_counter()
            loss, gradients = step_of(*(Tensor(column) for column in batch))
            optimizer(gradients)
            record.add_value("scalar", "loss", loss)
            record.add_value("scalar", "step_ms", 1000 * (time.perf_counter() - begun))
            if step % 50 == 1:
                record.add_value(
                    "histogram", "item_embedding", scorer.item_embedding.embedding_table
                )
            record.record(step)  # in PyNative mode also what summary operators put out
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
