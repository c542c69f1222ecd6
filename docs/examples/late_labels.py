"""A stream in which clicks come later than impressions, and metrics that are right all the same.

An impression is trained at once, as a negative. If it is clicked later, it is trained again, as a
positive: the negative was a fake one, and weights in the loss correct it. The metrics of such a
stream are wrong, because each click is also in it as a negative. So the stream has a third kind of
examples: impressions of an hour ago, whose labels are settled. They are judged and not trained.

Ktena et al. 2019, "Addressing Delayed Feedback for Continuous Training with Neural Networks in CTR
prediction", https://doi.org/10.1145/3298689.3347002
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import mindspore
import numpy as np
from clicks import arguments, stop_after
from mindspore import Tensor, nn, ops
from mindspore.dataset import GeneratorDataset

import rec_summary
from rec_summary import RecModel, RecommenderMetrics, SummaryCollector, Task

SHOWN, WIDTH = 128, 8  # impressions between two batches, and their features
SETTLED = 3600.0  # seconds after which no clicks are waited for
COLUMNS = ("features", "click", "trained", "event_time", "label_time")


class DelayedClicks(nn.Cell):
    """Logistic regression; returns the loss, click rates, labels, and what is judged."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Dense(WIDTH, 1)

    def construct(
        self,
        features: Tensor,
        click: Tensor,
        trained: Tensor,
        event_time: Tensor,
        label_time: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the loss of what is trained; and click rates and labels, [B]."""
        rate = ops.clip(ops.sigmoid(self.score(features)[:, 0]), 1e-6, 1 - 1e-6)
        # An impression is in the stream 1 + rate times, once of them as a negative.
        given = ops.stop_gradient(rate)
        weights = trained * (1 + given) * ops.where(click > 0, ops.ones_like(given), 1 - given)
        losses = -click * ops.log(rate) - (1 - click) * ops.log(1 - rate)
        return (weights * losses).sum() / trained.sum(), rate, click


def stream() -> Iterator[tuple[np.ndarray, ...]]:
    """Yields batches as they are at this moment, without an end."""
    random = np.random.default_rng(1)
    taste = random.normal(size=WIDTH)
    while True:
        now = time.time()
        features = random.normal(size=(3, SHOWN, WIDTH))
        clicked = random.random((3, SHOWN)) < 1 / (1 + np.exp(1.5 - features @ taste))
        delay = np.minimum(random.exponential(600.0, (3, SHOWN)), SETTLED)
        none, every = np.zeros(SHOWN), np.ones(SHOWN)
        # What is shown now; what was shown before and is clicked now (rows without a click are
        # padding); what was shown an hour ago.
        clicks = (none, clicked[1], clicked[2])
        trained = (every, clicked[1], none)
        events = (now + none, now - delay[1], now - SETTLED + none)
        known = (now + none, now + none, np.where(clicked[2], now - SETTLED + delay[2], now))
        yield (
            features.reshape(-1, WIDTH).astype(np.float32),
            np.concatenate(clicks).astype(np.float32),
            np.concatenate(trained).astype(np.float32),
            np.concatenate(events),
            np.concatenate(known),
        )


def is_settled(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Any:
    """Returns which examples of a batch are judged: its last third."""
    return np.arange(3 * SHOWN) >= 2 * SHOWN


def main() -> None:
    """Trains online until `--steps`, and prints both calibrations."""
    options = arguments(__doc__, "records/late_labels", 1000)
    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    network = DelayedClicks()
    optimizer = nn.Adam(network.trainable_params(), 0.02)
    model = RecModel(network, optimizer=optimizer, keep_outputs=True)
    collector = SummaryCollector(
        options.records,
        collect_freq=10,
        recommender=RecommenderMetrics(
            tasks={
                "stream": Task(predictions=1, labels=2, mask=lambda inputs, outputs: inputs[2]),
                "settled": Task(predictions=1, labels=2, mask=is_settled),
            },
            event_times="event_time",
            label_times="label_time",
            last=(20_000,),
            report_steps=100,
        ),
    )
    model.online_train(
        GeneratorDataset(stream, list(COLUMNS), shuffle=False),
        callbacks=[collector, stop_after(options.steps)],
        dataset_sink_mode=False,
    )
    scalars = rec_summary.load(options.records).scalars()
    for task in ("stream", "settled"):
        calibrations = scalars[scalars["tag"] == f"recommender/{task}/calibration/last_20000"]
        print(f"{task}: predicted clicks / observed clicks = {calibrations['value'].iloc[-1]:.2f}")
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
