"""What is counted of scored clicks, in one state: for ranking and calibration, and the log loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rec_summary.metrics.clicks import clean
from rec_summary.metrics.log_loss import LogLoss
from rec_summary.metrics.score_histogram import ScoreHistogram
from rec_summary.metrics.state import Array, nested, register, unnested

if TYPE_CHECKING:
    from typing_extensions import Self


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
