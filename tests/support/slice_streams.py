"""Streams of an online model with two heads and five columns, as a run would see them.

`ctr` is a click, `cvr` a purchase after a click. A logistic model learns from each batch after it
has scored it (AdaGrad), while the truth drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rec_summary.metrics.slices.sums import CELLS, FIELDS
from rec_summary.series.runs.slices import SliceHistory

COLUMNS = {"country": 8, "language": 6, "device": 3, "hour": 24, "genre": 20}
COUNTRIES = ("ES", "DE", "FR", "IT", "US", "GB", "PL", "SE")
SHARES = (0.04, 0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06)
TASKS = ("ctr", "cvr")
_NUMBERS = 3

Batch = dict[str, np.ndarray]
Mend = Callable[[int, Batch, np.random.Generator], None]


@dataclass
class Stream:
    """A stream.

    Attributes:
        seed: Of all random numbers.
        mend: Changes a batch before the model sees it: gets the step, the columns by name (also
            `ctr`, `cvr` and `numbers`), and the generator.
        shares: The shares of the countries at a step.
        reports: How many reports there are.
        steps: Steps of a report.
        size: Examples of a batch.
        drift: How far the truth moves in a step.
        rate: The rate of learning.
    """

    seed: int
    mend: Mend = lambda *_: None
    shares: Callable[[int], tuple[float, ...]] = lambda _: SHARES
    reports: int = 40
    steps: int = 50
    size: int = 256
    drift: float = 0.002
    rate: float = 0.04

    def batches(self) -> Iterator[Batch]:
        """Yields the columns of each step, with the scores of both heads, (examples, 2)."""
        rng = np.random.default_rng(self.seed)
        offsets = np.cumsum([0, *COLUMNS.values()])
        width = int(offsets[-1]) + _NUMBERS + 1
        truth = rng.normal(0, 0.4, (2, width))
        truth[:, -1] = (-1.5, -1.0)
        learnt, squares = np.zeros((2, width)), np.full((2, width), 1e-3)
        inputs = np.zeros((self.size, width))
        for step in range(1, self.reports * self.steps + 1):
            batch = self._batch(rng, np.array(self.shares(step)))
            batch["numbers"] = rng.normal(0, 1, (self.size, _NUMBERS))
            self._fill(inputs, batch, offsets)
            truth += rng.normal(0, self.drift, truth.shape)
            labels = rng.random((self.size, 2)) < _sigmoid(inputs @ truth.T)
            batch |= {"ctr": labels[:, 0] * 1.0, "cvr": labels[:, 1] * 1.0}
            batch["clicked"] = batch["ctr"].copy()
            self.mend(step, batch, rng)
            self._fill(inputs, batch, offsets)
            batch["scores"] = _sigmoid(inputs @ learnt.T)
            yield batch
            for head, task in enumerate(TASKS):
                chosen = slice(None) if head == 0 else batch["clicked"] > 0
                error = (batch["scores"][chosen, head] - batch[task][chosen]) @ inputs[chosen]
                error /= self.size
                squares[head] += error**2
                learnt[head] -= self.rate * error / np.sqrt(squares[head])

    def histories(self) -> list[SliceHistory]:
        """Returns the sums that a run records of the stream, without orders."""
        keys = [(task, column) for task in TASKS for column in ("", *COLUMNS)]
        tables = {
            key: np.zeros((self.reports, COLUMNS.get(key[1], 1), len(FIELDS))) for key in keys
        }
        for number, batch in enumerate(self.batches()):
            for head, task in enumerate(TASKS):
                chosen = slice(None) if head == 0 else batch["clicked"] > 0
                own = sums_of(batch["scores"][chosen, head], batch[task][chosen])
                report = number // self.steps
                tables[task, ""][report, 0] += own.sum(0)
                for column, count in COLUMNS.items():
                    is_value = batch[column][chosen] == np.arange(count)[:, None]
                    tables[task, column][report] += is_value.astype(float) @ own
        return [history_of(*key, table, self.steps) for key, table in tables.items()]

    def _batch(self, rng: np.random.Generator, shares: np.ndarray) -> Batch:
        batch = {}
        for name, count in COLUMNS.items():
            chances = shares if name == "country" else 1 / np.arange(1, count + 1)
            batch[name] = rng.choice(count, self.size, p=chances / chances.sum())
        # The first language is that of the first country, and of some elsewhere.
        is_spoken = (batch["country"] == 0) | (rng.random(self.size) < 0.03)
        batch["language"] = np.where(is_spoken, 0, np.maximum(batch["language"], 1))
        return batch

    def _fill(self, inputs: np.ndarray, batch: Batch, offsets: np.ndarray) -> None:
        inputs[:] = 0
        ids = np.stack([batch[name] for name in COLUMNS], 1) + offsets[:-1]
        np.put_along_axis(inputs, ids, 1.0, 1)
        inputs[:, -_NUMBERS - 1 : -1], inputs[:, -1] = np.nan_to_num(batch["numbers"]), 1


def values_of(column: str) -> list[str]:
    """Returns the names of the values of a column."""
    if column == "country":
        return [*COUNTRIES]
    return [f"{column[0]}{number}" for number in range(COLUMNS[column])] if column else [""]


def sums_of(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns what each example adds to the sums, (examples, fields)."""
    scores = np.clip(scores, 1e-7, 1 - 1e-7)
    losses = -np.where(labels > 0, np.log(scores), np.log1p(-scores))
    ones = np.ones(len(scores))
    squares = ones, labels, losses, losses**2, losses * labels, (scores - labels) ** 2
    sums = np.stack([ones, ones, labels, scores, losses, *squares], 1)
    return np.pad(sums, ((0, 0), (0, len(FIELDS) - sums.shape[1])))  # without served scores


def history_of(task: str, column: str, table: np.ndarray, steps: int) -> SliceHistory:
    """Returns the history of a table of sums, (reports, values, fields)."""
    numbers = np.arange(1, len(table) + 1)
    values = values_of(column)
    orders = np.zeros((0, len(values), 2, CELLS))
    places = numbers * steps, 1.7e9 + numbers * 60.0
    return SliceHistory(task, column, True, *places, values, table, np.zeros(0, np.int64), orders)


def _sigmoid(odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-odds))
