"""The quality of scored clicks in one state: a score histogram, the log loss, and the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import Parts
from rec_summary.metrics.quality.clicks import Clicks, Labels, clean
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.score_histogram import BinnedScores, ScoreHistogram
from rec_summary.metrics.quality.score_order import OrderBatch, ScoreOrder
from rec_summary.metrics.state import Array, Scalable, Stored, nested, register

_CELLS: Final = 2  # of the order, for each bin
_RATE: Final = "negative_rate"
_PRECISIONS: Final = "precisions"


class QualityBatch(NamedTuple):
    """A batch prepared for `ClickQuality.count`, once for several states.

    Attributes:
        binned: The scores in their bins.
        losses: The log loss of each example.
        order: The scores with their keys.
        labels: Whether there was a click.
    """

    binned: BinnedScores
    losses: Parts
    order: OrderBatch
    labels: Labels

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.labels)

    def cut(self, at: Any) -> QualityBatch:
        """Returns some of the examples: a slice, or their places."""
        parts = self.binned.cut(at), self.losses.cut(at), self.order.cut(at)
        return QualityBatch(*parts, self.labels[at])


@register
class ClickQuality(Scalable):
    """A `ScoreHistogram`, a `LogLoss` and a `ScoreOrder` of the same examples; a mergeable state.

    Attributes:
        scores: The scores by bin.
        loss: The sums of the log loss.
        order: The order of the scores, in twice as many cells as there are bins.
        negative_rate: The share of non-clicks that training has, above 0 and at most 1.
        precisions: The precisions of which there are thresholds, above 0 and at most 1.
    """

    _settings = (_RATE, _PRECISIONS)
    _parts = ("scores", "loss", "order")

    def __init__(
        self, bins: int = 1024, negative_rate: float = 1.0, precisions: Sequence[float] = ()
    ) -> None:
        """Starts empty.

        Args:
            bins: The number of bins of the score, a power of two, 64 to 65,536.
            negative_rate: As the attribute.
            precisions: As the attribute.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        if not 0 < negative_rate <= 1:
            raise ValueError(three_part("negative_rate", negative_rate, "a number in (0, 1]"))
        if not all(0 < each <= 1 for each in precisions):
            raise ValueError(three_part("precisions", precisions, "numbers in (0, 1]"))
        self.negative_rate = float(negative_rate)
        self.precisions = tuple(float(each) for each in precisions)
        self.scores = ScoreHistogram(bins)
        self.loss = LogLoss()
        self.order = ScoreOrder(_CELLS * bins)

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; `clicks.clean` describes the arguments.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        batch = clean(scores, labels, weights)
        self.scores.count(batch)
        self.loss.count(batch)
        self.order.count(self.order.prepare(batch))

    def prepare(self, batch: Clicks) -> QualityBatch:
        """Returns a batch for `count` of this state and of others with the same settings.

        Args:
            batch: One example or more, none of them refused.
        """
        losses, order = self.loss.losses(batch), self.order.prepare(batch)
        return QualityBatch(self.scores.binned(batch), losses, order, batch.labels)

    def count(self, batch: QualityBatch) -> None:
        """Counts a prepared batch."""
        self.scores.count_binned(batch.binned)
        self.loss.count_losses(batch.losses, batch.labels, batch.binned.weights)
        self.order.count(batch.order)

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays of the parts, ``negative_rate`` if it is not 1, and ``precisions``."""
        found = super().arrays()
        if self.negative_rate == 1.0:
            del found[_RATE]
        if not self.precisions:
            del found[_PRECISIONS]
        return found

    @classmethod
    def _restored(cls, arrays: Stored) -> ClickQuality:
        if not arrays.part("order"):  # of an earlier version
            scores = ScoreHistogram.from_arrays(arrays.part("scores"))
            order = ScoreOrder.from_histogram(scores, _CELLS * scores.bins)
            arrays.update(nested("order", order.arrays()))
        rate = float(arrays.take(_RATE, np.float64)) if _RATE in arrays else 1.0
        precisions = (
            arrays.take(_PRECISIONS, np.float64, (None,)).tolist() if _PRECISIONS in arrays else ()
        )
        state = cls(negative_rate=rate, precisions=precisions)
        state._take_contents(arrays)
        return state
