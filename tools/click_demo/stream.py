"""The unbounded source: endless batches, which a MindSpore dataset can be made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from . import breaks
from .features import YOUNG, Batch, Impressions, TaskBatch, Vocabulary, encode


def plain(vocabulary: Vocabulary) -> Callable[[Impressions], Batch]:
    """Returns what encodes impressions, without anything that changes with time."""
    return partial(encode, vocabulary=vocabulary)


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
        encoder: Callable[[Vocabulary], Callable[[Impressions], Any]] = plain,
        broken_from: int | None = None,
        broken: str = "labels",
    ) -> None:
        """Cuts what `chunks()` yields, pieces of any length in time order, into batches.

        The batches from number `broken_from` on, counted from 1, are broken as `BREAKS` says.
        """
        self._encoder = encoder
        self._broken = BREAKS[broken][1]
        self._broken_from = math.inf if broken_from is None else broken_from
        self.vocabulary = vocabulary
        self.batch_size = batch_size
        self._chunks = chunks

    def __iter__(self) -> Iterator[Any]:
        number, encode = 0, self._encoder(self.vocabulary)
        rest: Batch | TaskBatch | None = None  # rows that did not fill a batch
        for chunk in self._chunks():
            columns = encode(chunk)
            if rest is not None:
                columns = rest.followed_by(columns)
            rows = len(columns.click)
            full = rows - rows % self.batch_size
            for start in range(0, full, self.batch_size):
                number += 1
                batch = columns.rows(start, start + self.batch_size)
                if number >= self._broken_from:
                    batch = self._broken(np.random.default_rng(number), batch)
                yield batch
            rest = columns.rows(full, rows)


def _labels(batch: Any) -> dict[str, Any]:
    """Returns all labels that there are, by name."""
    return {name: getattr(batch, name) for name in ("click", "loved") if hasattr(batch, name)}


def _of_young(batch: Any) -> Any:
    return batch.context[:, 0] == YOUNG


def _with_flips(random: np.random.Generator, batch: Any) -> Any:
    # Were all labels flipped, the model would have learned it after some hundred steps.
    where = random.random(len(batch.click)) < 0.5
    return batch._replace(
        **{name: np.where(where, 1 - label, label) for name, label in _labels(batch).items()}
    )


def _with_permuted(random: np.random.Generator, batch: Any) -> Any:
    labels = _labels(batch)
    permuted = breaks.permuted(random, [*labels.values()], _of_young(batch))
    return batch._replace(**dict(zip(labels, permuted, strict=True)))


def _with_lost(random: np.random.Generator, batch: Any) -> Any:
    click = breaks.replaced(random, batch.click, 0, _of_young(batch), 0.7)
    return batch._replace(**{name: label * click for name, label in _labels(batch).items()})


def _without_feature(random: np.random.Generator, batch: Any) -> Any:
    context, every = batch.context.copy(), np.ones(len(batch.click), bool)
    context[:, 0] = breaks.replaced(random, context[:, 0], 0, every, 0.6)
    return batch._replace(context=context)


BREAKS: Final[dict[str, tuple[str, Callable[[np.random.Generator, Any], Any]]]] = {
    "labels": ("half of the labels are flipped", _with_flips),
    "slice": ("the labels of people of 18 to 24 are permuted", _with_permuted),
    "lost": ("70 % of the clicks of people of 18 to 24 are lost", _with_lost),
    "feature": ("60 % of the people are taken for younger than 18", _without_feature),
}
"""What may break, by name: in words, and a function of a batch that the model then gets."""
