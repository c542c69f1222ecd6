"""The unbounded source: endless batches, which a MindSpore dataset can be made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .features import Batch, Impressions, TaskBatch, Vocabulary, encode


class ClickStream:
    """An endless iterable of full batches. It has no length, as a real stream has none.

    Each iteration starts the stream again. MindSpore may iterate once only to learn the types
    and shapes, and the training must not lose those rows.
    """

    def __init__(
        self,
        chunks: Callable[[], Iterator[Impressions]],
        vocabulary: Vocabulary,
        batch_size: int,
        encode: Callable[[Impressions, Vocabulary], Any] = encode,
        broken_from: int | None = None,
    ) -> None:
        """Cuts what `chunks()` yields, pieces of any length in time order, into batches.

        In the batches from number `broken_from` on, counted from 1, half of the labels are flipped,
        at random: were all of them, the model would have learned it after some hundred steps.
        """
        self._encode = encode
        self._broken_from = math.inf if broken_from is None else broken_from
        self.vocabulary = vocabulary
        self.batch_size = batch_size
        self._chunks = chunks

    def __iter__(self) -> Iterator[Any]:
        number = 0
        rest: Batch | TaskBatch | None = None  # rows that did not fill a batch
        for chunk in self._chunks():
            columns = self._encode(chunk, self.vocabulary)
            if rest is not None:
                columns = rest.followed_by(columns)
            rows = len(columns.click)
            full = rows - rows % self.batch_size
            for start in range(0, full, self.batch_size):
                number += 1
                batch = columns.rows(start, start + self.batch_size)
                yield _with_flips(batch, number) if number >= self._broken_from else batch
            rest = columns.rows(full, rows)


def _with_flips(batch: Batch | TaskBatch, number: int) -> Batch | TaskBatch:
    flipped = np.random.default_rng(number).random(len(batch.click)) < 0.5
    # All labels that there are.
    labels = {name: getattr(batch, name) for name in ("click", "loved") if hasattr(batch, name)}
    return batch._replace(
        **{name: np.where(flipped, 1 - label, label) for name, label in labels.items()}
    )
