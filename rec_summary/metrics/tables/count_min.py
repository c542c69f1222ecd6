"""How often each of very many ids occurs, and which occur most, in a fixed size.

A count-min sketch for each prefix of the ids, four bits longer from level to level. The counts
are plain sums, so that merging is exact in any order, which it is not for the sketches that keep
a list of candidates (Misra-Gries, space-saving). The most frequent ids are found by going down
from the short prefixes to the long ones, as in a tree.

Cormode and Muthukrishnan, An improved data stream summary: the count-min sketch and its
applications, 2005.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.metrics.hashing import mix

_BITS: Final = 4  # that a prefix is longer than the one above it
DEPTH: Final = 4


def levels(size: int | None) -> int:
    """Returns how many levels the ids below `size` need; None stands for 2**63."""
    bits = 63 if size is None else max((size - 1).bit_length(), 1)
    return -(-bits // _BITS)


def new_counters(size: int | None, width: int) -> npt.NDArray[np.int64]:
    """Returns the counters of an empty sketch, (levels, `DEPTH`, width).

    Args:
        size: The ids are below it; None stands for 2**63.
        width: Counters in a row, a power of two up to 2**16.
    """
    return np.zeros((levels(size), DEPTH, width), np.int64)


def add(
    counters: npt.NDArray[np.int64], ids: npt.NDArray[Any], counts: npt.NDArray[np.int64]
) -> None:
    """Adds occurrences of ids.

    Args:
        counters: The sketch, changed in place.
        ids: Different ids, (n,).
        counts: How often each occurred, (n,).
    """
    for level, rows in enumerate(counters):
        places = _places(_prefixes(ids, level, len(counters)), level, rows)
        # The sums are below 2**53, hence exact in the float64 of bincount.
        sums = np.bincount(places.ravel(), np.tile(counts, DEPTH), rows.size)
        rows += sums.astype(np.int64).reshape(rows.shape)


def estimates(
    counters: npt.NDArray[np.int64], prefixes: npt.NDArray[Any], level: int = -1
) -> npt.NDArray[np.int64]:
    """Returns how often ids of these prefixes occurred, at most, (n,).

    Never too small. With probability ``1 - exp(-DEPTH)``, 98 %, for each, it is too large by no
    more than `excess` of all that was counted.

    Args:
        counters: The sketch.
        prefixes: Prefixes of the ids, (n,); the ids themselves on the last level.
        level: Which level.
    """
    level %= len(counters)
    rows = counters[level]
    found: npt.NDArray[np.int64] = rows.ravel()[_places(prefixes, level, rows)].min(axis=0)
    return found


def excess(width: int) -> float:
    """Returns by which share of all occurrences an estimate may be too large."""
    return math.e / width


def most_frequent(
    counters: npt.NDArray[np.int64], size: int | None, beam: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the ids that occur most, and the estimates of how often.

    Every id is found whose share of all occurrences is above ``1 / beam + excess(width)``, with the
    probability of an estimate on each level.

    Args:
        counters: The sketch.
        size: The ids are below it; None stands for 2**63.
        beam: How many prefixes are followed on each level.
    """
    prefixes = np.zeros(1, np.int64)
    found = np.zeros(1, np.int64)
    last = 2**63 - 1 if size is None else size - 1
    for level in range(len(counters)):
        wider = (prefixes[:, None] << _BITS) | np.arange(2**_BITS)
        prefixes = wider.ravel()
        if level == 0 and size is None:
            prefixes = prefixes[prefixes < 8]  # 63 bits are 16 levels less one bit
        prefixes = prefixes[prefixes <= last >> (_BITS * (len(counters) - 1 - level))]
        found = estimates(counters, prefixes, level)
        keep = np.lexsort((prefixes, -found))[:beam]
        keep = keep[found[keep] > 0]
        prefixes, found = prefixes[keep], found[keep]
    return prefixes, found


def _prefixes(ids: npt.NDArray[Any], level: int, count: int) -> npt.NDArray[Any]:
    """Returns the prefixes of ids on a level, of `count` levels."""
    return ids >> (_BITS * (count - 1 - level))


def _places(
    prefixes: npt.NDArray[Any], level: int, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.intp]:
    """Returns the counters of prefixes on a level, (`DEPTH`, n), each row of bits of one hash."""
    width = rows.shape[1]
    bits = width.bit_length() - 1
    hashed = mix(prefixes, level)
    shifts = np.arange(DEPTH, dtype=np.uint64)[:, None] * np.uint64(bits)
    column = ((hashed >> shifts) & np.uint64(width - 1)).astype(np.intp)
    return column + width * np.arange(DEPTH)[:, None]
