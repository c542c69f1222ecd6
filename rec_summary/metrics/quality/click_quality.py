"""The quality of scored clicks in one state: a score histogram and the log loss."""

from __future__ import annotations

from typing import Any, NamedTuple

from rec_summary.metrics.exact_sum import Parts
from rec_summary.metrics.quality.clicks import Clicks, Labels, clean
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.score_histogram import BinnedScores, ScoreHistogram
from rec_summary.metrics.state import Scalable, register


class QualityBatch(NamedTuple):
    """A batch prepared for `ClickQuality.count`, once for several states.

    Attributes:
        binned: The scores in their bins.
        losses: The log loss of each example.
        labels: Whether there was a click.
    """

    binned: BinnedScores
    losses: Parts
    labels: Labels

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.labels)

    def cut(self, at: slice) -> QualityBatch:
        """Returns some of the examples."""
        return QualityBatch(self.binned.cut(at), self.losses.cut(at), self.labels[at])


@register
class ClickQuality(Scalable):
    """A `ScoreHistogram` and a `LogLoss` of the same examples; a mergeable state.

    Attributes:
        scores: The scores by bin.
        loss: The sums of the log loss.
    """

    _parts = ("scores", "loss")

    def __init__(self, bins: int = 1024) -> None:
        """Starts empty.

        Args:
            bins: The number of bins of the score, a power of two, 64 to 65,536.

        Raises:
            TypeError, ValueError: `bins` is anything else.
        """
        self.scores = ScoreHistogram(bins)
        self.loss = LogLoss()

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; `clicks.clean` describes the arguments.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        batch = clean(scores, labels, weights)
        self.scores.count(batch)
        self.loss.count(batch)

    def prepare(self, batch: Clicks) -> QualityBatch:
        """Returns a batch for `count` of this state and of others with the same settings.

        Args:
            batch: One example or more, none of them refused.
        """
        return QualityBatch(self.scores.binned(batch), self.loss.losses(batch), batch.labels)

    def count(self, batch: QualityBatch) -> None:
        """Counts a prepared batch."""
        self.scores.count_binned(batch.binned)
        self.loss.count_losses(batch.losses, batch.labels, batch.binned.weights)
