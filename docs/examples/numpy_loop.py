"""A matrix factorisation in NumPy, recorded with `SummaryRecord`: no framework is needed.

Koren et al. 2009, https://doi.org/10.1109/MC.2009.263
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from clicks import Clicks, Vocabulary, arguments

from rec_summary import EmbeddingTable, RecommenderMetrics, SummaryRecord

Array = npt.NDArray[np.generic]


class MatrixFactorisation:
    """The log-odds of a click: the product of two rows, and a bias for the film."""

    def __init__(self, vocabulary: Vocabulary, width: int = 8, rate: float = 0.1) -> None:
        random = np.random.default_rng(1)
        self.users = random.normal(0, 0.1, (vocabulary.users, width))
        self.items = random.normal(0, 0.1, (vocabulary.items, width))
        self.biases = np.zeros(vocabulary.items)
        self.rate = rate

    def train(self, user: Array, item: Array, click: Array) -> tuple[Array, float]:
        """Does a step; returns the log-odds, [B], and the loss, both of before the update."""
        users, items = self.users[user], self.items[item]
        odds = (users * items).sum(1) + self.biases[item]
        error = 1 / (1 + np.exp(-odds)) - click
        np.subtract.at(self.users, user, self.rate * error[:, None] * items)
        np.subtract.at(self.items, item, self.rate * error[:, None] * users)
        np.subtract.at(self.biases, item, self.rate * error)
        return odds, float((np.logaddexp(0, odds) - click * odds).mean())


def main() -> None:
    """Trains `--steps` steps, or until `rec-summary control --stop`."""
    options = arguments(__doc__, "records/numpy_loop", 500)
    clicks = Clicks(options.data)
    model = MatrixFactorisation(clicks.vocabulary)
    with SummaryRecord(
        options.records,
        hyper_parameters={"model": "matrix factorisation", "rate": model.rate},
        recommender=RecommenderMetrics(
            predictions="odds",
            labels="click",
            logits=True,
            users="user",
            ids={"user": "user", "item": "item"},
            slices={"age_group": "age_group"},
            report_steps=100,
        ),
        tables={
            "user": EmbeddingTable(lambda rows: model.users[rows], clicks.vocabulary.users),
            "item": EmbeddingTable(lambda rows: model.items[rows], clicks.vocabulary.items),
        },
    ) as record:
        stream = record.batches(clicks.batches(options.steps))  # measures the wait for data
        for step, batch in enumerate(stream, start=1):
            odds, loss = model.train(batch.user, batch.item, batch.click)
            record.observe(
                odds=odds,
                click=batch.click,
                user=batch.user,
                item=batch.item,
                age_group=batch.context[:, 0],
            )
            record.add_value("scalar", "loss", loss)
            record.record(step)
            if record.should_stop:
                break
    print(f"recorded: {options.records}")


if __name__ == "__main__":
    main()
