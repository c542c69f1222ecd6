"""The exponent of Zipf's law, from the counts of the most frequent items."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_LEAST_COUNT: Final = 10  # below, noise decides the ranks
_LEAST_RANKS: Final = 10
_LARGEST: Final = 16.0
_ROUNDS: Final = 50


def zipf_exponent(counts: npt.NDArray[Any]) -> float:
    """Returns the s for which the count of rank r goes with ``r**-s``.

    The maximum likelihood estimate of Zipf's law cut off at the last rank: that s for which the
    mean of log r is what is observed. Counts below 10 are left out, because noise decides their
    ranks; for the same reason the estimate for equal frequencies lies a little above 0. Clauset,
    Shalizi and Newman, Power-law distributions in empirical data, 2009.

    Args:
        counts: Counts in descending order, (k,).

    Returns:
        The exponent, from 0 to 16; NaN when fewer than 10 counts are left.
    """
    counts = counts[counts >= _LEAST_COUNT].astype(float)
    if counts.size < _LEAST_RANKS:
        return float("nan")
    logs = np.log(np.arange(1, counts.size + 1))
    observed = float((counts * logs).sum() / counts.sum())
    low, high = 0.0, _LARGEST
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        weights = np.exp(-middle * logs)
        if (weights * logs).sum() / weights.sum() > observed:
            low = middle
        else:
            high = middle
    return low
