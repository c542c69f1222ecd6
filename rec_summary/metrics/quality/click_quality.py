"""The quality of scored clicks in one state: sums over the examples, and the order of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rec_summary.arrays import Flags, Floats
from rec_summary.errors import three_part
from rec_summary.metrics.quality.clicks import Clicks, clean
from rec_summary.metrics.quality.log_loss import LogLoss, loss_sums
from rec_summary.metrics.quality.score_cells import Keys
from rec_summary.metrics.quality.score_order import OrderBatch, ScoreOrder
from rec_summary.metrics.state import Batch, Scalable

_CELLS: Final = 2  # of the order, for each bin


class QualitySums(NamedTuple):
    """What `ClickQuality.count` adds: sums over examples, made once for several states.

    Attributes:
        loss: The sums of the log loss.
        order: The scores with their keys.
    """

    loss: tuple[int, ...]
    order: OrderBatch


@dataclass(frozen=True)
class QualityBatch(Batch):
    """Examples of which `ClickQuality.count` counts parts.

    Attributes:
        losses: The weighted log loss of each example.
        scores: The weighted score of each example.
        labels: Whether there was a click.
        marks: The scores with their keys, as in `OrderBatch`.
        weights: The weights; None if each is 1.
    """

    losses: Floats
    scores: Floats
    labels: Flags
    marks: Keys
    weights: Floats | None

    def split(self, starts: Sequence[int]) -> list[QualitySums]:
        """Returns the sums over parts of the examples, all of them added up at once.

        Args:
            starts: Where each part begins, the first one at 0; none is empty.
        """
        sums = loss_sums(self.losses, self.scores, self.labels, self.weights, starts)
        order, ends = OrderBatch(self.marks, self.weights), [*starts[1:], self.size]
        orders = (order.cut(slice(*part)) for part in zip(starts, ends, strict=True))
        return list(map(QualitySums, sums, orders))


class ClickQuality(Scalable):
    """A `LogLoss` and a `ScoreOrder` of the same examples; a mergeable state.

    Attributes:
        loss: The sums of the log loss.
        order: The order of the scores.
        negative_rate: The share of non-clicks that training has, above 0 and at most 1.
        precisions: The precisions of which there are thresholds, above 0 and at most 1.
    """

    _settings = ("negative_rate", "precisions")
    _parts = ("loss", "order")

    def __init__(
        self, bins: int = 1024, negative_rate: float = 1.0, precisions: Sequence[float] = ()
    ) -> None:
        """Starts empty.

        Args:
            bins: Half the number of cells of the score, at least 32.
            negative_rate: As the attribute.
            precisions: As the attribute.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        if not 0 < negative_rate <= 1:
            raise ValueError(three_part("negative_rate", negative_rate, "a number in (0, 1]"))
        if not all(0 < precision <= 1 for precision in precisions):
            raise ValueError(three_part("precisions", precisions, "numbers in (0, 1]"))
        self.negative_rate = float(negative_rate)
        self.precisions = tuple(map(float, precisions))
        self.loss = LogLoss()
        self.order = ScoreOrder(_CELLS * bins)

    def update(self, scores: Any, labels: Any, weights: Any = None, odds: Any = None) -> None:
        """Counts a batch; `clicks.clean` describes the arguments.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        batch = clean(scores, labels, weights, odds)
        self.loss.count(batch)
        self.order.count(self.order.prepare(batch))

    def prepare(self, batch: Clicks) -> QualityBatch:
        """Returns a batch, parts of which any state with the same settings can `count`.

        Args:
            batch: One example or more, none of them refused.
        """
        return QualityBatch(*self.loss.terms(batch), batch.labels, *self.order.prepare(batch))

    def count(self, part: QualitySums) -> None:
        """Counts a part of a prepared batch."""
        self.loss.add(part.loss)
        self.order.count(part.order)

    def effective_numbers(self) -> tuple[float, float]:
        """Returns the effective numbers of non-clicks and of clicks (Kish 1965).

        A mean of as many examples of equal weight has the same standard error.
        """
        totals = float(self.order.negatives.sum()), float(self.order.positives.sum())
        others, clicks = (
            total * total / square if square > 0 else 0.0
            for total, square in zip(totals, self.loss.squares, strict=True)
        )
        return others, clicks
