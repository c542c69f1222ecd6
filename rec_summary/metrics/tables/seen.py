"""How often an id was seen before, in counters of a fixed size."""

from __future__ import annotations

from typing import Final

import numpy as np

from rec_summary.arrays import Array, Integers
from rec_summary.checks import check_int
from rec_summary.metrics.hashing import mix
from rec_summary.metrics.state import State

_DEPTH: Final = 4
_MOST: Final = 255


class SeenCounts(State):
    """Counts of ids up to 255, in four rows of counters; a mergeable state.

    The count of an id is the least of its four counters, of which only the least ones are raised
    (conservative update, Estan and Varghese 2002). It is never too small. It is too large if other
    ids share all four counters: of a million different ids in a row of 2**20, up to 16 %; of
    100,000, less than 0.01 %.
    """

    _settings = ("width",)
    _sums = ("_counters",)

    def __init__(self, width: int = 2**20) -> None:
        """Starts empty.

        Args:
            width: The number of counters in a row, of a byte each.

        Raises:
            TypeError, ValueError: It is anything else.
        """
        self.width = check_int("width", width, 1, 2**26)
        self._counters = np.zeros((_DEPTH, self.width), np.uint8)

    def add(self, ids: Array) -> Integers:
        """Counts integers, (n,), and returns how often each was there before, up to 255."""
        unique, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
        hashes = np.stack([mix(unique, row) for row in range(_DEPTH)])
        places = (hashes % np.uint64(self.width)).astype(np.intp)
        before = np.take_along_axis(self._counters, places, 1).min(axis=0)
        after = np.minimum(before + counts, _MOST).astype(np.uint8)
        for row, cells in zip(self._counters, places, strict=True):
            np.maximum.at(row, cells, after)
        # The place of each id among its equals.
        order = np.argsort(inverse, kind="stable")
        starts = np.cumsum(counts) - counts
        earlier = np.empty(len(ids), np.int64)
        earlier[order] = np.arange(len(ids)) - np.repeat(starts, counts)
        earlier += before[inverse]
        return np.minimum(earlier, _MOST)

    def mistaken(self, count: int) -> float:
        """Returns the share of new ids that are taken for ids that were there `count` times."""
        return float(np.prod((self._counters >= count).mean(axis=1)))

    def _add(self, other: SeenCounts) -> None:
        # Where the sum would be above 255, it is 255.
        self._counters += np.minimum(other._counters, _MOST - self._counters)
