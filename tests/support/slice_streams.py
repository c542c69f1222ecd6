"""Streams of an online model with slices, and their sums as a run records them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rec_summary.series.slices import SliceHistory

COLUMNS = {"country": 8, "language": 6, "device": 3, "hour": 24, "genre": 20}
COUNTRIES = ("ES", "DE", "FR", "IT", "US", "GB", "PL", "SE")
_SHARES = (0.04, 0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06)
CELLS = 32

Batch = dict[str, np.ndarray]


@dataclass
class Stream:
    """A stream: the batches, what breaks, and the model that learns from it.

    Attributes:
        seed: Of all random numbers.
        reports: How many reports there are.
        steps: Steps of a report.
        size: Examples of a batch.
        drift: How far the truth moves in a step.
        rate: The rate of learning.
        mends: Changes a batch: it gets the step, the columns, the labels of both heads, and the
            generator.
    """

    seed: int
    reports: int = 40
    steps: int = 50
    size: int = 256
    drift: float = 0.002
    rate: float = 0.02
    shares: Callable[[int], np.ndarray] | None = None
    mends: Callable[[int, Batch, np.random.Generator], None] = lambda *_: None
    columns: dict[str, int] = field(default_factory=lambda: dict(COLUMNS))

    def histories(self) -> list[SliceHistory]:
        rng = np.random.default_rng(self.seed)
        names = list(self.columns)
        offsets = np.cumsum([0, *self.columns.values()])
        width = int(offsets[-1]) + 4  # and three numbers and an intercept
        truth = rng.normal(0, 0.4, (2, width))
        truth[:, -1] = (-1.5, -1.0)
        learnt, squares = np.zeros((2, width)), np.full((2, width), 1e-3)
        sums = {
            (task, column): np.zeros((self.reports, max(count, 1), 11))
            for task in ("ctr", "cvr")
            for column, count in (*self.columns.items(), ("", 1))
        }
        for step in range(self.reports * self.steps):
            shares = np.array(_SHARES) if self.shares is None else self.shares(step)
            batch = self._batch(rng, names, shares)
            ids = np.stack([batch[name] for name in names], 1) + offsets[:-1]
            inputs = np.zeros((self.size, width))
            np.put_along_axis(inputs, ids, 1.0, 1)
            inputs[:, -4:-1], inputs[:, -1] = rng.normal(0, 1, (self.size, 3)), 1
            truth += rng.normal(0, self.drift, truth.shape)
            odds = inputs @ truth.T
            chances = 1 / (1 + np.exp(-odds))
            labels = (rng.random(chances.shape) < chances).astype(float)
            batch |= {"ctr": labels[:, 0], "cvr": labels[:, 1]}
            self.mends(step, batch, rng)
            scores = 1 / (1 + np.exp(-(inputs @ learnt.T)))
            report = step // self.steps
            mask = np.ones((self.size, 2), bool)
            mask[:, 1] = labels[:, 0] > 0
            for head, task in enumerate(("ctr", "cvr")):
                chosen = mask[:, head]
                own = _sums_of(scores[chosen, head], batch[task][chosen])
                sums[task, ""][report, 0] += own.sum(0)
                for name in names:
                    np.add.at(sums[task, name][report], batch[name][chosen], own)
                error = (scores[chosen, head] - batch[task][chosen]) @ inputs[chosen] / self.size
                squares[head] += error**2
                learnt[head] -= self.rate * error / np.sqrt(squares[head]) * 2
        return [
            SliceHistory(
                task,
                column,
                True,
                np.arange(1, self.reports + 1) * self.steps,
                1.7e9 + np.arange(self.reports) * 60.0,
                _values(column, table.shape[1]),
                table,
                np.zeros(0, np.int64),
                np.zeros((0, table.shape[1], 2, CELLS)),
            )
            for (task, column), table in sums.items()
        ]

    def _batch(self, rng, names, shares):
        batch = {}
        for name in names:
            count = self.columns[name]
            chances = shares if name == "country" else 1 / np.arange(1, count + 1)
            batch[name] = rng.choice(count, self.size, p=chances / chances.sum())
        if "language" in batch:  # Spanish is spoken in Spain, and by some elsewhere
            is_spain = batch["country"] == 0
            batch["language"] = np.where(
                is_spain,
                0,
                np.where(rng.random(self.size) < 0.03, 0, np.maximum(batch["language"], 1)),
            )
        return batch


def _values(column, count):
    if not column:
        return [""]
    if column == "country":
        return list(COUNTRIES)
    return [f"{column[0]}{number}" for number in range(count)]


def _sums_of(scores, labels):
    scores = np.clip(scores, 1e-7, 1 - 1e-7)
    losses = -np.where(labels > 0, np.log(scores), np.log1p(-scores))
    ones = np.ones(len(scores))
    return np.stack(
        [
            ones,
            ones,
            labels,
            scores,
            losses,
            ones,
            labels,
            losses,
            losses**2,
            losses * labels,
            (scores - labels) ** 2,
        ],
        1,
    )
