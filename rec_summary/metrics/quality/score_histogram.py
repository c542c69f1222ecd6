"""The scores of clicks and of non-clicks, counted in fixed bins.

From these counts `score_quality` reads AUC, precision and recall, calibration and its error: for
endless streams and many ranks, where exact ranking would need every score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.metrics.quality.clicks import REASONS, Clicks, clean, on_weight_grid, take_refused
from rec_summary.metrics.quality.score_bins import FINEST, score_bins
from rec_summary.metrics.state import (
    Array,
    Floats,
    checked_factor,
    register,
    same_settings,
    take_count,
    take_weights,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class Binned(NamedTuple):
    """A batch for `ScoreHistogram.count_binned`; each array of shape [examples].

    Attributes:
        bins: The bin of each score.
        places: The same, and behind all bins the same bins again, for clicks.
        terms: What each score adds to the sums of scores.
        weights: None where every example counts once.
    """

    bins: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    terms: Floats
    weights: Floats | None

    def cut(self, at: slice) -> Binned:
        """Returns some of the examples."""
        weights = None if self.weights is None else self.weights[at]
        return Binned(self.bins[at], self.places[at], self.terms[at], weights)


@register
class ScoreHistogram:
    """Weights and scores of positives and negatives by bin of the predicted probability.

    Everything is a float64 that is a multiple of a fixed power of two, so that sums are exact and
    merging in any order gives the same bits: weights up to a sum of 2**33 in a bin (2**53 when
    they are whole), sums of scores up to 2**29 examples in a bin. Beyond, they are
    equal to within the rounding of float64.

    Attributes:
        bins: How many; see `score_bins`.
        positives: The weight of clicks by bin, shape (bins,).
        negatives: The weight of non-clicks by bin, shape (bins,).
        score_sums: The weighted sum of scores by bin, shape (bins,).
        refused: How many examples were refused, by reason in the order of `clicks.REASONS`.
    """

    def __init__(self, bins: int = 1024) -> None:
        """Starts empty.

        Args:
            bins: A power of two, 64 to 65,536.

        Raises:
            ValueError: `bins` is anything else.
        """
        self._layout = score_bins(bins)
        self.bins = self._layout.bins
        self.positives = np.zeros(self.bins)
        self.negatives = np.zeros(self.bins)
        self.score_sums = np.zeros(self.bins)
        self.refused = np.zeros(len(REASONS), np.int64)

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; see `clicks.clean` for what the arguments may be and what is refused.

        Raises:
            TypeError: Something does not hold real numbers.
            ValueError: The sizes differ.
        """
        self.count(clean(scores, labels, weights))

    def count(self, batch: Clicks) -> None:
        """Counts a batch that was checked already."""
        self.count_binned(self.binned(batch))
        self.refused += batch.refused

    def binned(self, batch: Clicks) -> Binned:
        """Returns a batch for `count_binned` of any histogram with as many bins."""
        index = self._layout.index(batch.scores)
        if batch.weights is None:
            terms = np.rint(batch.scores * (1 / FINEST))
            terms *= FINEST
        else:
            units = self._layout.units[index]
            terms = np.rint(batch.scores * batch.weights / units) * units
        return Binned(index, index + batch.labels * self.bins, terms, batch.weights)

    def count_binned(self, batch: Binned) -> None:
        """Counts a batch whose bins are known, and of which nothing was refused."""
        # Bins of negatives, then of positives: one pass over the batch counts both.
        both = np.bincount(batch.places, batch.weights, 2 * self.bins)
        self.negatives += both[: self.bins]
        self.positives += both[self.bins :]
        self.score_sums += np.bincount(batch.bins, batch.terms, self.bins)

    @property
    def edges(self) -> Array:
        """The lower edge of each bin, which belongs to it, and last 1; shape (bins + 1,)."""
        return self._layout.edges

    def merge(self, other: Self) -> None:
        """Adds what `other` has counted.

        Raises:
            ValueError: It has another number of bins.
        """
        same_settings("bins", self.bins, other.bins)
        self.positives += other.positives
        self.negatives += other.negatives
        self.score_sums += other.score_sums
        self.refused += other.refused

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`, rounded to what still adds exactly."""
        checked_factor(factor)
        units = self._layout.units
        self.positives = on_weight_grid(self.positives * factor)
        self.negatives = on_weight_grid(self.negatives * factor)
        self.score_sums = np.rint(self.score_sums * factor / units) * units

    def copy(self) -> Self:
        """Returns a histogram of its own with the same counts."""
        other = type(self)(self.bins)
        other.merge(self)
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns ``bins`` and the four arrays."""
        return {
            "bins": np.array(self.bins, np.int64),
            "positives": self.positives.copy(),
            "negatives": self.negatives.copy(),
            "score_sums": self.score_sums.copy(),
            "refused": self.refused.copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the histogram that `arrays` describes.

        Raises:
            ValueError: They describe none.
        """
        state = cls(take_count(arrays, "bins"))
        shape = (state.bins,)
        state.positives = take_weights(arrays, "positives", shape)
        state.negatives = take_weights(arrays, "negatives", shape)
        state.score_sums = take_weights(arrays, "score_sums", shape)
        state.refused = take_refused(arrays)
        return state
