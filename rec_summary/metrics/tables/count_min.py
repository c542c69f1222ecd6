"""Counts of very many ids in a fixed size, and the most frequent of them.

Each level is a count-min sketch of prefixes of the ids, four bits longer from level to level.
Counters are plain sums, so that merging is exact in any order. Sketches that keep a list of
candidates (Misra-Gries, space-saving) do not merge exactly. The search for the most frequent ids
descends from short prefixes to long ones, as in a tree.

Cormode and Muthukrishnan, An improved data stream summary: the count-min sketch and its
applications, 2005.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Integers
from rec_summary.metrics.hashing import mix

_BITS: Final = 4  # from the length of a prefix to that of the next level
BRANCHES: Final = 2**_BITS
DEPTH: Final = 4


def shape(size: int | None, width: int) -> tuple[int, int, int]:
    """Returns the shape of the counters of a sketch, (levels, `DEPTH`, width).

    Args:
        size: The exclusive maximum of the ids; None stands for 2**64.
        width: The number of counters in a row, a power of two up to 2**16.
    """
    bits = 64 if size is None else max((size - 1).bit_length(), 1)
    return -(-bits // _BITS), DEPTH, width


def add(counters: Integers, ids: Array, counts: Integers) -> None:
    """Adds occurrences of ids.

    Args:
        counters: The sketch, changed in place.
        ids: Different ids, (n,).
        counts: The number of occurrences of each, (n,).
    """
    for level, rows in enumerate(counters):
        places = _places(_prefixes(ids, level, len(counters)), level, rows)
        # Sums below 2**53 are exact in the float64 of bincount.
        sums = np.bincount(places.ravel(), np.tile(counts, DEPTH), rows.size)
        rows += sums.astype(np.int64).reshape(rows.shape)


def estimates(counters: Integers, prefixes: Array, level: int) -> Integers:
    """Returns upper bounds of the occurrences of ids with these prefixes, (n,).

    Each bound exceeds the count by at most the share `excess` of all occurrences, with probability
    ``1 - exp(-DEPTH)``, 98 %.

    Args:
        counters: The sketch.
        prefixes: Prefixes of the ids, (n,); the ids themselves on the last level.
        level: The level, at least 0.
    """
    rows = counters[level]
    least: Integers = rows.ravel()[_places(prefixes, level, rows)].min(axis=0)
    return least


def excess(width: int) -> float:
    """Returns the share of all occurrences by which an estimate may be too large."""
    return math.e / width


def collisions(counters: Integers, chance: float) -> tuple[int, int]:
    """Returns by how much other ids raise an estimate: the mean, and the most with this chance.

    An id that was never there has in each row the counter of others, as if chosen at random.

    Args:
        counters: The sketch.
        chance: The probability that the estimate of such an id is above the most.
    """
    rows = np.sort(counters[-1], axis=1)
    limits = np.append(0, np.unique(rows))
    above = [1.0 - np.searchsorted(row, limits) / len(row) for row in rows]
    reached = np.prod(above, axis=0)  # the probability of an estimate of at least each limit
    mean = float(np.diff(limits) @ reached[1:])
    return round(mean), int(limits[reached > chance].max(initial=0))


def most_frequent(counters: Integers, size: int | None, beam: int) -> tuple[Integers, Integers]:
    """Returns the most frequent ids and the estimates of their occurrences.

    An id is found if its share of all occurrences is above ``1 / beam + excess(width)``, with the
    probability of `estimates` on each level.

    Args:
        counters: The sketch.
        size: The exclusive maximum of the ids; None stands for 2**64. Ids of 2**63 and above are
            returned as negative ones.
        beam: The number of prefixes that are followed on each level.
    """
    prefixes = np.zeros(1, np.uint64)
    estimated = np.zeros(1, np.int64)
    last = 2**64 - 1 if size is None else size - 1
    for level in range(len(counters)):
        wider = (prefixes[:, None] << np.uint64(_BITS)) | np.arange(BRANCHES, dtype=np.uint64)
        prefixes = wider.ravel()
        prefixes = prefixes[prefixes <= np.uint64(last >> (_BITS * (len(counters) - 1 - level)))]
        estimated = estimates(counters, prefixes, level)
        keep = np.lexsort((prefixes, -estimated))[:beam]
        keep = keep[estimated[keep] > 0]
        prefixes, estimated = prefixes[keep], estimated[keep]
    return prefixes.view(np.int64), estimated


def _prefixes(ids: Array, level: int, count: int) -> Array:
    """Returns the prefixes of ids on a level, of `count` levels."""
    return ids.astype(np.uint64) >> np.uint64(_BITS * (count - 1 - level))


def _places(prefixes: Array, level: int, rows: Integers) -> npt.NDArray[np.intp]:
    """Returns the places of the counters of prefixes, (`DEPTH`, n); rows use bits of one hash."""
    width = rows.shape[1]
    bits = width.bit_length() - 1
    hashed = mix(prefixes, level)
    shifts = np.arange(DEPTH, dtype=np.uint64)[:, None] * np.uint64(bits)
    column = ((hashed >> shifts) & np.uint64(width - 1)).astype(np.intp)
    return column + width * np.arange(DEPTH)[:, None]
