"""Hashes of integers, the same on every machine, in every run and in every version of numpy.

SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014). The seed
is mixed in in two ways, and stored states depend on both: sketches and samples of rows on `mix`,
samples of users on `mix_ids`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

_STEP = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def mix(numbers: npt.NDArray[Any], seed: int = 0) -> Hashes:
    """Returns 64 well mixed bits for each integer; different integers get different bits.

    Args:
        numbers: Integers of any shape; negative ones count modulo 2**64.
        seed: Each seed gives another hash; it is added.
    """
    bits = numbers.astype(np.uint64)
    bits += np.uint64((seed + 1) * _STEP & _MASK)
    return _finalise(bits)


def mix_ids(ids: npt.NDArray[Any], seed: int = 0) -> Hashes:
    """Returns bits as `mix` does, by another hash: the seed is combined by exclusive or."""
    bits = ids.astype(np.uint64)
    bits ^= np.uint64((seed + 1) * _STEP & _MASK)
    return _finalise(bits)


def _finalise(bits: Hashes) -> Hashes:
    """Applies the output function of SplitMix64 in place."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
