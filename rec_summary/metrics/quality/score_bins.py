"""Fixed bins for predicted click probabilities, fine where the probabilities are small.

The bins are log-linear, the layout of HdrHistogram (Tene 2012): each octave of the score is cut
into equally wide bins, 22 octaves below one half (down to 2**-23) and, mirrored, 10 octaves
of 1 - score above it. With 1,024 bins each is 1.6 to 3.2 % wide relative to the smaller of score
and 1 - score, for click rates of 1e-6 as for those of a half; bins of equal width would put all
scores below 0.1 into a tenth of them. The number of a bin is read off the bits of a
float64: fast, and the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.state import Floats, positive_int

_BELOW, _ABOVE = 22, 10  # octaves on either side of one half
_OCTAVES = _BELOW + _ABOVE
_HALF = 1022  # the exponent bits of 0.5
_MOST = 1 << 16

FINEST = 2.0 ** -(_BELOW + 24)
"""The unit of the lowest bins: float32 scores above 2**-23 are multiples of it."""


class ScoreBins:
    """Which score falls into which of `bins` bins; ask `score_bins` for one.

    Attributes:
        bins: How many.
        edges: The lower edge of each bin, which belongs to it, and last 1; shape (bins + 1,).
        units: Of which power of two the float32 scores in each bin are multiples; shape (bins,).
    """

    def __init__(self, bins: int) -> None:
        each = bins // _OCTAVES
        self.bins = bins
        self._shift = np.int64(53 - each.bit_length())
        self._lowest = np.int64((_HALF - _BELOW) * each)
        self._highest = np.int64((_HALF - _ABOVE) * each)
        steps = 1.0 + np.arange(each) / each
        low = np.outer(np.ldexp(1.0, np.arange(-_BELOW - 1, -1)), steps).reshape(-1)
        high = np.outer(np.ldexp(1.0, np.arange(-_ABOVE - 1, -1)), steps).reshape(-1)
        exponents = np.append(np.repeat(np.arange(-_BELOW - 1, -1), each), [-1] * len(high))
        self.units = np.ldexp(1.0, exponents - 23)
        low[0] = 0.0
        self.edges = np.concatenate([low, 1.0 - np.append(high[1:], 0.5)[::-1], [1.0]])

    def index(self, scores: Floats) -> npt.NDArray[np.int64]:
        """Returns the bin of each score, which must be in [0, 1]."""
        above = scores >= 0.5
        mirrored = bool(above.any())
        small = np.where(above, 1.0 - scores, scores) if mirrored else scores
        keys = np.ascontiguousarray(small).view(np.int64)
        if not mirrored:
            return np.maximum((keys >> self._shift) - self._lowest, 0)
        # Minus one: a mirrored bin has its upper edge, so that in the score it has its lower.
        keys = (keys - above) >> self._shift
        below_bins = np.maximum(keys - self._lowest, 0)
        above_bins = self.bins - 1 - np.maximum(keys - self._highest, 0)
        return np.where(above, above_bins, below_bins)


@lru_cache(maxsize=8)
def _cached(bins: int) -> ScoreBins:
    return ScoreBins(bins)


def score_bins(bins: int) -> ScoreBins:
    """Returns the layout with `bins` bins, a power of two of 64 to 65,536.

    Raises:
        ValueError: `bins` is anything else.
    """
    bins = positive_int("bins", bins, 2 * _OCTAVES)
    if bins & (bins - 1) or bins > _MOST:
        raise ValueError(three_part("bins", bins, f"a power of two, 64 to {_MOST}"))
    return _cached(bins)
