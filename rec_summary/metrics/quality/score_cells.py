"""Cells of scores: a numbering of scores, and ranges of them that contain each other or are apart.

A score has a key: its float64 bits, mirrored above one half. Keys have the order of scores and are
as fine at 1 as at 0: log-odds have keys of their own where their probabilities are all 1.
A cell is a dyadic range of keys: all keys that are equal without their lowest bits, whose number is
its level. Its code is twice its lowest key, plus two to the power of its level: the middle of the
cell. A cell of level 0 is a single score.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Flags, Floats, Integers

Keys = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint64]
Levels = npt.NDArray[np.int32]
Places = npt.NDArray[np.intp]

ONE = np.uint64(1)
_HALF = np.array(0.5).view(np.int64)[()]

MOST_CODE = np.uint64(4 * int(_HALF) + 1)
"""The code of the score 1."""


def keys_of(scores: Floats) -> Keys:
    """Returns the key of each score; scores are in [0, 1]."""
    return _keys(np.minimum(scores, 1.0 - scores), scores > 0.5)


def keys_of_odds(odds: Floats) -> Keys:
    """Returns the key of each probability by its log-odds.

    Log-odds that differ by 1e-15 or more, and as float32, have different keys.
    """
    sizes = np.abs(odds)
    # From 700 on, where exp(-x) soon is 0, the keys that are left are for all larger numbers.
    sizes = np.minimum(sizes, 700.0) + 0.01 * np.log(np.maximum(sizes, 700.0) / 700.0)
    with np.errstate(under="ignore", invalid="ignore"):  # an infinite one has the score 0 or 1
        smaller = np.exp(-np.logaddexp(0.0, sizes))
    return _keys(smaller, odds > 0)


def _keys(smaller: Floats, is_above: Flags) -> Keys:
    """Returns keys by the smaller one of a score and 1 minus it, and whether the score is that."""
    bits: Integers = smaller.view(np.int64)
    # 2 * _HALF - bits above one half, and else the bits, without a branch for each score.
    keys = is_above.astype(np.int64)
    keys *= 2 * _HALF
    keys -= bits
    np.abs(keys, out=keys)
    return keys.view(np.uint64)


def scores_of(keys: Keys) -> Floats:
    """Returns the score of each key; of keys of scores, the same scores."""
    bits = keys.view(np.int64)
    above = bits > _HALF
    small = np.where(above, 2 * _HALF - bits, bits).view(np.float64)
    return np.where(above, 1.0 - small, small)


def widths_of(codes: Codes) -> Codes:
    """Returns two to the power of the level of each cell."""
    return codes & (~codes + ONE)


def levels_of(codes: Codes) -> Levels:
    """Returns the level of each cell."""
    return highest_bits(widths_of(codes))


def joints_of(codes: Codes) -> Levels:
    """Returns the level of the smallest cell around each two neighbours, shape (cells - 1,).

    The codes rise, and the cells have one level.
    """
    return highest_bits(codes[1:] ^ codes[:-1])


def around(codes: Codes, levels: Levels) -> Codes:
    """Returns the cell around each cell that has this level, which is not below its own."""
    bits = ONE << levels.astype(np.uint64)
    cells: Codes = (codes & ~(bits - ONE)) | bits
    return cells


def starts_of(*sorted_values: Array) -> Places:
    """Returns where each different value, or combination of values, occurs first."""
    changes = np.zeros(max(len(sorted_values[0]) - 1, 0), np.bool_)
    for values in sorted_values:
        changes |= values[1:] != values[:-1]
    return np.flatnonzero(np.append(True, changes)[: len(sorted_values[0])])


def row_sums(rows: Floats, starts: Places) -> Floats:
    """Returns the sums of each row from each start to the next one."""
    # Row by row: reduceat along the second axis of a matrix takes three times as long.
    return np.stack([np.add.reduceat(row, starts) for row in rows])


def highest_bits(numbers: Codes) -> Levels:
    """Returns the place of the highest bit of each number above 0."""
    # The bit below the highest one is cleared, so that float64 does not round up to another power.
    powers = (numbers & ~(numbers >> ONE)).astype(np.float64)
    return ((powers.view(np.int64) >> 52) - 1023).astype(np.int32)
