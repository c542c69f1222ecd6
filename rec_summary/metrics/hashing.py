"""Hashes of integers, the same on every machine, in every run and in every version of numpy.

SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014). There
are two hashes, and stored states depend on both: sketches and samples of rows on `mix`, samples
of users on `mix_ids`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Integers
from rec_summary.errors import three_part

Hashes = npt.NDArray[np.uint64]

_STEP = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_FNV_START = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def mix(numbers: Array, seed: int = 0) -> Hashes:
    """Returns 64 well mixed bits for each integer; different integers get different bits.

    Args:
        numbers: Integers of any shape; negative ones count modulo 2**64.
        seed: Each seed gives another hash; it is added.
    """
    bits = numbers.astype(np.uint64)
    bits += np.uint64((seed + 1) * _STEP & _MASK)
    return _finalise(bits)


def mix_ids(ids: Array) -> Hashes:
    """Returns bits as `mix` does, by another hash: its step is combined by exclusive or."""
    bits = ids.astype(np.uint64)
    bits ^= np.uint64(_STEP)
    return _finalise(bits)


def hash_strings(strings: Array) -> Integers:
    """Returns an id of 64 bits for each string: FNV-1a of its UTF-8 bytes without zeros, mixed.

    Args:
        strings: An array of str or bytes, of any shape; an array of objects holds one of these.

    Raises:
        TypeError: The array holds anything else.
    """
    strings = without_objects(strings)
    encoded = strings
    if strings.dtype.kind == "U":  # halves of surrogate pairs are in names of files, for example
        encoded = np.char.encode(strings, "utf-8", "surrogatepass")
    width = max(encoded.dtype.itemsize, 1)
    letters = np.ascontiguousarray(encoded).reshape(-1).astype(f"S{width}").view(np.uint8)
    hashes = np.full(encoded.size, _FNV_START, np.uint64)
    for letter in letters.reshape(-1, width).T:
        used = letter > 0  # the rest is padding
        hashes[used] = (hashes[used] ^ letter[used]) * np.uint64(_FNV_PRIME)
    return _finalise(hashes).view(np.int64).reshape(encoded.shape)


def without_objects(values: Array) -> Array:
    """Returns objects as an array of str or bytes, and all other values as they are.

    Raises:
        TypeError: The objects are anything else.
    """
    if values.dtype.kind != "O":
        return values
    kinds = set(map(type, values.ravel().tolist()))
    if kinds not in ({str}, {bytes}):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(three_part("strings", f"objects of {names}", "str or bytes"))
    return values.astype("U" if str in kinds else "S")


def hashed(values: Array) -> Array:
    """Returns strings as ids by `hash_strings`, and all other values as they are."""
    return hash_strings(values) if values.dtype.kind in "USO" else values


def _finalise(bits: Hashes) -> Hashes:
    """Applies the output function of SplitMix64 in place."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
