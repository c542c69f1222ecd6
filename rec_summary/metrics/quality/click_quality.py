"""What is counted of scored clicks, in one state: for ranking and calibration, and the log loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rec_summary.metrics.exact_sum import Parts
from rec_summary.metrics.quality.clicks import Clicks, Labels, clean
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.score_histogram import Binned, ScoreHistogram
from rec_summary.metrics.state import Array, nested, register, unnested

if TYPE_CHECKING:
    from typing_extensions import Self


class QualityBatch(NamedTuple):
    """A batch with all worked out that several states count of it, or of a part of it.

    Attributes:
        binned: The scores in their bins.
        losses: The log loss of each.
        labels: Whether there was a click.
    """

    binned: Binned
    losses: Parts
    labels: Labels

    @property
    def size(self) -> int:
        """How many examples there are."""
        return len(self.labels)

    def cut(self, at: slice) -> QualityBatch:
        """Returns some of the examples."""
        return QualityBatch(self.binned.cut(at), self.losses.cut(at), self.labels[at])


@register
class ClickQuality:
    """A `ScoreHistogram` and a `LogLoss` of the same examples; a mergeable state.

    Attributes:
        scores: By bin of the score.
        loss: The sums of the log loss.
    """

    def __init__(self, bins: int = 1024) -> None:
        """Starts empty.

        Args:
            bins: Of the score, a power of two, 64 to 65,536.

        Raises:
            ValueError: `bins` is anything else.
        """
        self.scores = ScoreHistogram(bins)
        self.loss = LogLoss()

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; see `clicks.clean` for what the arguments may be and what is refused.

        Raises:
            TypeError: Something does not hold real numbers.
            ValueError: The sizes differ.
        """
        batch = clean(scores, labels, weights)
        self.scores.count(batch)
        self.loss.count(batch)

    def prepare(self, batch: Clicks) -> QualityBatch:
        """Returns a batch for `count` of this state and of others with the same settings.

        Args:
            batch: One example or more, of which none was refused.
        """
        return QualityBatch(self.scores.binned(batch), self.loss.losses(batch), batch.labels)

    def count(self, batch: QualityBatch) -> None:
        """Counts a prepared batch."""
        self.scores.count_binned(batch.binned)
        self.loss.count_losses(batch.losses, batch.labels, batch.binned.weights)

    def merge(self, other: Self) -> None:
        """Adds what `other` has counted.

        Raises:
            ValueError: It has other settings.
        """
        self.scores.merge(other.scores)
        self.loss.merge(other.loss)

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`."""
        self.scores.scale(factor)
        self.loss.scale(factor)

    def copy(self) -> Self:
        """Returns a state of its own with the same counts."""
        other = type(self)(self.scores.bins)
        other.scores, other.loss = self.scores.copy(), self.loss.copy()
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays of both parts."""
        return {**nested("scores", self.scores.arrays()), **nested("loss", self.loss.arrays())}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the state that `arrays` describes.

        Raises:
            ValueError: They describe none.
        """
        scores = ScoreHistogram.from_arrays(unnested("scores", arrays))
        state = cls(scores.bins)
        state.scores, state.loss = scores, LogLoss.from_arrays(unnested("loss", arrays))
        return state
