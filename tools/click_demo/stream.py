"""The unbounded source: endless batches, which a MindSpore dataset can be made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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
    ) -> None:
        """Cuts what `chunks()` yields, pieces of any length in time order, into batches."""
        self._encode = encode
        self.vocabulary = vocabulary
        self.batch_size = batch_size
        self._chunks = chunks

    def __iter__(self) -> Iterator[Any]:
        waiting: Batch | TaskBatch | None = (
            None  # the rows of the last chunk that did not fill a batch
        )
        for chunk in self._chunks():
            columns = self._encode(chunk, self.vocabulary)
            if waiting is not None:
                columns = waiting.followed_by(columns)
            rows = len(columns.click)
            full = rows - rows % self.batch_size
            for start in range(0, full, self.batch_size):
                yield columns.rows(start, start + self.batch_size)
            waiting = columns.rows(full, rows)
