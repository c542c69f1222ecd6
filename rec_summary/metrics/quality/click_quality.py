"""The quality of scored clicks in one state: a score histogram, the log loss, and the order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rec_summary.metrics.exact_sum import Parts
from rec_summary.metrics.quality.clicks import Clicks, Labels, clean
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.score_histogram import BinnedScores, ScoreHistogram
from rec_summary.metrics.quality.score_order import OrderBatch, ScoreOrder
from rec_summary.metrics.state import Arrays, Scalable, nested, register, unnested

if TYPE_CHECKING:
    from typing_extensions import Self

_CELLS: Final = 2  # of the order, for each bin


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

    def cut(self, at: slice) -> QualityBatch:
        """Returns some of the examples."""
        parts = self.binned.cut(at), self.losses.cut(at), self.order.cut(at)
        return QualityBatch(*parts, self.labels[at])


@register
class ClickQuality(Scalable):
    """A `ScoreHistogram`, a `LogLoss` and a `ScoreOrder` of the same examples; a mergeable state.

    Attributes:
        scores: The scores by bin.
        loss: The sums of the log loss.
        order: The order of the scores, in twice as many cells as there are bins.
    """

    _parts = ("scores", "loss", "order")

    def __init__(self, bins: int = 1024) -> None:
        """Starts empty.

        Args:
            bins: The number of bins of the score, a power of two, 64 to 65,536.

        Raises:
            TypeError, ValueError: `bins` is anything else.
        """
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

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state of these arrays; those of earlier versions are without an order.

        Raises:
            ValueError: The arrays do not describe such a state.
        """
        if not unnested("order", arrays):
            scores = ScoreHistogram.from_arrays(unnested("scores", arrays))
            order = ScoreOrder.from_histogram(scores, _CELLS * scores.bins)
            arrays = {**arrays, **nested("order", order.arrays())}
        return super().from_arrays(arrays)
