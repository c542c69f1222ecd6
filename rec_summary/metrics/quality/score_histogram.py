"""Predicted click probabilities in fixed bins, fine where the probabilities are small.

Sums over bins merge exactly and take a fixed size; AUC and calibration are read from them
(`score_quality`).

The bins are log-linear, the layout of HdrHistogram (Tene 2012): each octave of the score is split
into equally wide bins, 22 octaves below one half (down to 2**-23) and, mirrored, 10 octaves of
1 - score above it. With 1,024 bins each is 1.6 to 3.2 % wide relative to the smaller of score and
1 - score, for click rates of 1e-6 as well as for those near one half. Bins of equal width would put
all scores below 0.1 into a tenth of them. The number of a bin comes from the bits of a float64,
which is fast and the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import Places
from rec_summary.metrics.quality.clicks import REASONS, Clicks, clean, on_weight_grid
from rec_summary.metrics.quality.score_cells import Keys, keys_of
from rec_summary.metrics.state import Array, Floats, Scalable, check_factor, register

_BELOW, _ABOVE = 22, 10  # octaves on either side of one half
_OCTAVES = _BELOW + _ABOVE
_HALF = 1022  # the exponent bits of 0.5
_MOST = 1 << 16

FINEST = 2.0 ** -(_BELOW + 24)
"""The unit of the lowest bins: float32 scores above 2**-23 are multiples of it."""


class ScoreBins:
    """The layout of bins; `score_bins` returns a shared one.

    Attributes:
        bins: The number of bins.
        edges: The lower edge of each bin, which belongs to the bin, and then 1, (bins + 1,).
        units: A power of two for each bin; float32 scores are multiples of it, (bins,).
        level: The number of the lowest bits of a float64 that do not count for its bin.
    """

    def __init__(self, bins: int) -> None:
        each = bins // _OCTAVES
        self.bins = bins
        self.level = 53 - each.bit_length()
        self._shift = np.int64(self.level)
        self._lowest = np.int64((_HALF - _BELOW) * each)
        steps = 1.0 + np.arange(each) / each
        low = np.outer(np.ldexp(1.0, np.arange(-_BELOW - 1, -1)), steps).reshape(-1)
        high = np.outer(np.ldexp(1.0, np.arange(-_ABOVE - 1, -1)), steps).reshape(-1)
        exponents = np.append(np.repeat(np.arange(-_BELOW - 1, -1), each), [-1] * len(high))
        self.units = np.ldexp(1.0, exponents - 23)
        low[0] = 0.0
        self.edges = np.concatenate([low, 1.0 - np.append(high[1:], 0.5)[::-1], [1.0]])

    def index(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Returns the bin of each score by its key, mirrored as bins are."""
        found = keys.view(np.int64) >> self._shift
        found -= self._lowest
        return np.clip(found, 0, self.bins - 1, out=found)


@lru_cache(maxsize=8)
def _cached(bins: int) -> ScoreBins:
    return ScoreBins(bins)


def score_bins(bins: int) -> ScoreBins:
    """Returns the layout with `bins` bins, a power of two of 64 to 65,536.

    Raises:
        TypeError, ValueError: `bins` is anything else.
    """
    bins = check_int("bins", bins, 2 * _OCTAVES, _MOST)
    if bins & (bins - 1):
        raise ValueError(three_part("bins", bins, f"a power of two, 64 to {_MOST}"))
    return _cached(bins)


class HistogramSums(NamedTuple):
    """Sums over examples by bin.

    Attributes:
        weights: The weights of non-clicks and of clicks, shape (2, bins).
        scores: The weighted sums of scores, shape (bins,).
    """

    weights: Floats
    scores: Floats


class BinnedScores(NamedTuple):
    """A batch without refused examples; every array has shape (examples,).

    Attributes:
        size: The number of bins.
        bins: The bin of each score.
        places: The bin of each score, plus the number of bins for clicks.
        terms: The number that each score adds to the sums of scores.
        weights: The weights; None if every example counts once.
    """

    size: int
    bins: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    terms: Floats
    weights: Floats | None

    def cut(self, at: Any) -> BinnedScores:
        """Returns some of the examples: a slice, or their places."""
        weights = None if self.weights is None else self.weights[at]
        return BinnedScores(self.size, self.bins[at], self.places[at], self.terms[at], weights)

    def sums(self, groups: Places | None = None, count: int = 1) -> list[HistogramSums]:
        """Returns the sums of each group.

        Args:
            groups: The group of each example, below `count`; None if there is only one group.
            count: The number of groups.
        """
        size, bins, places, terms, weights = self
        if groups is not None:
            bins, places = groups * size + bins, groups * (2 * size) + places
        # Bins of negatives, then of positives, so that one pass over the batch counts both.
        both = np.bincount(places, weights, 2 * size * count).reshape(count, 2, size)
        scores = np.bincount(bins, terms, size * count).reshape(count, size)
        return list(map(HistogramSums, both, scores))


@register
class ScoreHistogram(Scalable):
    """Weights and scores of positives and negatives by bin of the predicted probability.

    All sums are float64 multiples of a fixed power of two. They are therefore exact, and merging in
    any order gives the same bits: weights up to a sum of 2**33 in a bin (2**53 if they are whole
    numbers), sums of scores up to 2**29 examples in a bin. Beyond that they are equal to within
    the rounding of float64.

    Attributes:
        bins: The number of bins; see `score_bins`.
        positives: The weight of clicks by bin, shape (bins,).
        negatives: The weight of non-clicks by bin, shape (bins,).
        score_sums: The weighted sum of scores by bin, shape (bins,).
        refused: The number of refused examples by reason, in the order of `clicks.REASONS`.
    """

    _settings = ("bins",)
    _sums = ("positives", "negatives", "score_sums", "refused")

    def __init__(self, bins: int = 1024) -> None:
        """Starts empty.

        Args:
            bins: A power of two, 64 to 65,536.

        Raises:
            TypeError, ValueError: `bins` is anything else.
        """
        self._layout = score_bins(bins)
        self.bins = self._layout.bins
        self.positives = np.zeros(self.bins)
        self.negatives = np.zeros(self.bins)
        self.score_sums = np.zeros(self.bins)
        self.refused = np.zeros(len(REASONS), np.int64)

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; `clicks.clean` describes the arguments.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        self.count(clean(scores, labels, weights))

    def count(self, batch: Clicks) -> None:
        """Counts a checked batch."""
        self.add(self.binned(batch).sums()[0])
        self.refused += batch.refused

    def binned(self, batch: Clicks, keys: Keys | None = None) -> BinnedScores:
        """Returns a batch for any histogram with as many bins.

        Args:
            batch: The batch.
            keys: The keys of ``batch.scores``, if they are known.
        """
        index = self._layout.index(keys_of(batch.scores) if keys is None else keys)
        if batch.weights is None:
            terms = np.rint(batch.scores * (1 / FINEST))
            terms *= FINEST
        else:
            units = self._layout.units[index]
            terms = np.rint(batch.scores * batch.weights / units) * units
        return BinnedScores(
            self.bins, index, index + batch.labels * self.bins, terms, batch.weights
        )

    def add(self, sums: HistogramSums) -> None:
        """Adds sums over examples, by bins of the same number."""
        self.negatives += sums.weights[0]
        self.positives += sums.weights[1]
        self.score_sums += sums.scores

    @property
    def level(self) -> int:
        """The number of the lowest bits of a float64 that do not count for its bin."""
        return self._layout.level

    @property
    def edges(self) -> Array:
        """The lower edge of each bin, which belongs to the bin, and then 1; shape (bins + 1,)."""
        return self._layout.edges

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`, rounded so that sums stay exact."""
        check_factor(factor)
        units = self._layout.units
        self.positives = on_weight_grid(self.positives * factor)
        self.negatives = on_weight_grid(self.negatives * factor)
        self.score_sums = np.rint(self.score_sums * factor / units) * units
