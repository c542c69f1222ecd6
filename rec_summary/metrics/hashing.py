"""A hash of integers, the same on every machine and in every version of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_STEP = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def mix(numbers: npt.NDArray[Any], seed: int = 0) -> npt.NDArray[np.uint64]:
    """Returns 64 well-mixed bits for each integer: the output function of SplitMix64.

    It is a bijection, so that different numbers never get the same 64 bits. Steele, Lea and
    Flood, Fast Splittable Pseudorandom Number Generators, 2014.

    Args:
        numbers: Integers of any shape; negative ones count modulo 2**64.
        seed: Another seed gives another hash.
    """
    x = numbers.astype(np.uint64)
    x += np.uint64((seed + 1) * _STEP & _MASK)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
