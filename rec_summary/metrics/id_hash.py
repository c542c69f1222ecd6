"""A fixed hash of ids, the same on every rank and in every run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rec_summary.metrics.state import Array

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mixed(ids: Array, seed: int = 0) -> npt.NDArray[np.uint64]:
    """Returns 64 well mixed bits of each integer, different ones for different integers.

    The finaliser of SplitMix64 (Steele et al. 2014, "Fast Splittable Pseudorandom Number
    Generators"), after the seed has been mixed in.

    Args:
        ids: Integers of any shape and dtype.
        seed: Another one gives another hash.
    """
    bits = ids.astype(np.uint64)
    bits ^= np.uint64((seed + 1) * _GOLDEN & _MASK)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
