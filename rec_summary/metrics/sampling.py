"""Random samples of ids at a stated rate, and what they tell about all of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.metrics.hashing import mix

# Drawn once for all, because drawing costs as much as all the rest; 32 bits each.
_DRAWS: Final = (mix(np.arange(2**16)) >> np.uint64(32)).astype(np.int64)


class Sampler:
    """Takes one of `one_in` ids, with replacement, the same ones in each run.

    They are drawn, because every n-th would always be of the same feature where batches were
    flattened.
    """

    def __init__(self, one_in: int) -> None:
        self._one_in = one_in
        self._owed = 0  # ids of earlier batches that were too few for another sample
        self._drawn = 0

    def sample(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns a sample of the ids of a batch, (n,)."""
        if self._one_in == 1:
            return ids
        number, self._owed = divmod(self._owed + ids.size, self._one_in)
        if not ids.size:
            return ids
        if number > _DRAWS.size:
            draws = (mix(np.arange(number)) >> np.uint64(32)).astype(np.int64)
        else:
            if self._drawn + number > _DRAWS.size:
                self._drawn = 0
            draws = _DRAWS[self._drawn : self._drawn + number]
            self._drawn += number
        # Up to 2**31 ids in a batch.
        found: npt.NDArray[Any] = ids[(draws * ids.size) >> 32]
        return found


def wilson(counts: npt.NDArray[Any], total: int, z: float) -> npt.NDArray[np.float64]:
    """Returns the bounds of shares that were sampled, by Wilson's score interval.

    Wilson, Probable inference, the law of succession, and statistical inference, 1927.

    Args:
        counts: How many of the sample, (k,).
        total: The size of the sample.
        z: How many standard errors away the bounds are; negative for the lower ones.
    """
    if not total:
        return np.zeros(counts.shape)
    share = counts / total
    centre = share + z * z / (2 * total)
    spread = z * np.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    found: npt.NDArray[np.float64] = np.clip((centre + spread) / (1 + z * z / total), 0.0, 1.0)
    return found
