"""Clicks and non-clicks in the order of their scores, in cells that adapt to the scores there are.

At first each score has a cell of its own, and everything is exact. When there are too many
cells, the neighbours that have the fewest clicks and non-clicks become one, as in a q-digest
(Shrivastava et al. 2004, "Medians and Beyond: New Aggregation Techniques for Sensor Networks"). So
scores within 1e-6 of each other have as many cells as scores from 1e-6 to 1. Of many examples, most
are in small cells of one level, and are counted there; only the rest has to be sorted.

Cells of different times and ranks may contain each other. The order of a pair in such cells is
unknown, as in one cell; `ScoreOrder.auc` returns the share of these pairs as the bound of its
error. Cells become one only at certain places of the stream, and at the ends of buckets. The state
of a stream therefore does not depend on how it is cut into batches, nor on reading and storing.
Merging is exact as long as all cells fit; after that, the result depends on the order of merging,
within the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Flags, Floats
from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.quality.clicks import Clicks, clean
from rec_summary.metrics.quality.score_cells import (
    MOST_CODE,
    ONE,
    Codes,
    Keys,
    around,
    highest_bits,
    keys_of,
    row_sums,
    scores_of,
    starts_of,
    widths_of,
)
from rec_summary.metrics.state import Batch, Scalable, Stored, on_weight_grid, to_array

_WEIGHTS = ("negatives", "positives")
_MERGED = 8  # times `cells`: the number of cells of other states that are joined at once
_NEVER = np.uint64((1 << 64) - 1)  # no cell is as large
_ROOM = 4  # times `cells`: the maximum number of cells of a state that goes on
_SMALL = 3.0  # divided by `cells`: the maximum share, of clicks plus of non-clicks, of a small cell
_ENDS = keys_of(np.array([2.0**-25, 1.0 - 2.0**-25]))  # of the scores that are counted, not sorted
# Examples after which cells become one: `_BATCH` for each cell, at most `_MOST`, at least `_FEW`
# for each cell. Large steps take less time than many small ones, until they leave the cache.
_BATCH, _MOST, _FEW = 32, 1 << 15, 4
_PARTS = 256  # of batches that wait to be sorted; each takes as much memory as dozens of examples


@dataclass(frozen=True)
class OrderBatch(Batch):
    """A batch for `ScoreOrder.count`.

    Attributes:
        marks: Twice the key of each score, plus 1 if there was a click.
        weights: The weights; None if every example counts once.
    """

    marks: Keys
    weights: Floats | None

    def as_cells(self) -> tuple[Codes, Floats]:
        """Returns the cell of each example, and its weights as a non-click and as a click."""
        assert self.weights is not None
        clicks = self.weights * (self.marks & ONE)
        return self.marks | ONE, np.stack([self.weights - clicks, clicks])


_NO_MARKS: Keys = np.zeros(0, np.uint64)


class OrderedAuc(NamedTuple):
    """An AUC of cells.

    Attributes:
        value: The area under the ROC curve, the probability that a click has a higher score than a
            non-click; equal scores count half (Hanley and McNeil 1982). NaN without pairs.
        error_bound: An upper bound of the difference from the AUC of the exact scores.
    """

    value: float
    error_bound: float


class ScoredCells(NamedTuple):
    """The cells of a `ScoreOrder` by rising score; every array has shape (cells,).

    Attributes:
        middle: The score in the middle of each cell.
        lower: The lowest score that the cell may have.
        upper: The highest one.
        exact: Whether the cell is a single score.
        negatives: The weight of non-clicks.
        positives: The weight of clicks.
    """

    middle: Floats
    lower: Floats
    upper: Floats
    exact: Flags
    negatives: Floats
    positives: Floats


class Cuts(NamedTuple):
    """The scores at which cells begin, rising, and what is above; every array has shape (cuts,).

    Attributes:
        thresholds: The scores; those above one half may be equal, as keys are finer there.
        negatives: The weight of non-clicks with at least this score.
        positives: The weight of clicks with at least this score.
    """

    thresholds: Floats
    negatives: Floats
    positives: Floats


class ScoreOrder(Scalable):
    """The weights of clicks and non-clicks by cell of the score; a mergeable state.

    Attributes:
        cells: The maximum number of cells, of 24 bytes each, of a state that gets no more examples.
            One that is read has up to four examples more for each. Another one has up to four
            times as many cells, and up to 32 examples more for each of `cells`, but at most 32,768
            in all, or four for each.
    """

    _settings = ("cells",)

    def __init__(self, cells: int = 2048) -> None:
        """Starts empty.

        Args:
            cells: At least 64.

        Raises:
            TypeError, ValueError: `cells` is anything else.
        """
        self.cells = check_int("cells", cells, 64)
        # Twice the lowest key of a cell, plus two to the power of its level (the number of the bits
        # that it leaves out): the middle of the cell. Rising and all different.
        self._codes: Codes = np.zeros(0, np.uint64)
        self._weights: Floats = np.zeros((2, 0))  # of non-clicks and clicks
        self._examples: list[OrderBatch] = []
        self._seen = 0  # examples since cells became one
        self._most = max(min(_BATCH * self.cells, _MOST), _FEW * self.cells)  # of them
        self._closing = False  # whether cells become one before anything else is done
        self._merged: list[tuple[Codes, Floats]] = []  # cells of other states

    def update(self, scores: Any, labels: Any, weights: Any = None, odds: Any = None) -> None:
        """Counts a batch; `clicks.clean` describes the arguments.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        self.count(self.prepare(clean(scores, labels, weights, odds)))

    def prepare(self, batch: Clicks) -> OrderBatch:
        """Returns a batch for `count` of any state."""
        marks = batch.keys << ONE
        marks |= batch.labels.astype(np.uint64)
        return OrderBatch(marks, batch.weights)

    def count(self, batch: OrderBatch) -> None:
        """Counts a prepared batch and keeps its arrays."""
        if self._closing:
            self._reduce()
        start, size = 0, len(batch.marks)
        while start < size:
            part = batch.cut(slice(start, start + self._most - self._seen))
            self._examples.append(part)
            self._seen += len(part.marks)
            start += len(part.marks)
            if self._seen == self._most:
                self._reduce()
        if len(self._examples) >= _PARTS:
            self._compact()

    @property
    def positives(self) -> Floats:
        """The weight of clicks by cell, by the middle of the cell."""
        self._compact()
        positives: Floats = self._weights[1]
        return positives

    @property
    def negatives(self) -> Floats:
        """The weight of non-clicks by cell, by the middle of the cell."""
        self._compact()
        negatives: Floats = self._weights[0]
        return negatives

    def scored(self) -> ScoredCells:
        """Returns the cells with their scores."""
        self._compact()
        widths = widths_of(self._codes)
        middle = scores_of(self._codes >> ONE)
        lower = scores_of((self._codes - widths) >> ONE)
        last = np.minimum(self._codes + (widths - ONE), MOST_CODE)  # a cell may end above 1
        upper = scores_of(last >> ONE)
        return ScoredCells(middle, lower, upper, widths == ONE, *self._weights)

    def cuts(self, most: float = 0.0) -> Cuts:
        """Returns the scores at which cells begin, and the weights above them.

        A cell that begins before a cut and ends after it counts half, and half of it is unknown.

        Args:
            most: The largest unknown part of the clicks above a cut, and of non-clicks in all that
                is above it. Cuts with more are left out; none is exact to 0.
        """
        self._compact()
        widths = widths_of(self._codes)
        firsts, lasts = self._codes - widths, self._codes + (widths - ONE)
        starts = np.unique(firsts)
        begun = np.stack([_sums_before(firsts, row, starts) for row in self._weights])
        ended = np.stack([_sums_before(lasts, row, starts) for row in self._weights])
        above = self._weights.sum(axis=1, keepdims=True) - 0.5 * (begun + ended)
        limits = most * np.stack([above.sum(axis=0), above[1]])
        known = (0.5 * (begun - ended) <= limits).all(axis=0)
        keys = starts[known] >> ONE
        thresholds = scores_of(keys)
        # Keys above one half are finer than scores.
        is_below = keys_of(thresholds) < keys
        thresholds[is_below] = np.nextafter(thresholds[is_below], 1.0)
        return Cuts(thresholds, *above[:, known])

    def auc(self) -> OrderedAuc:
        """Returns the area under the ROC curve, and the bound of its error.

        The pairs of a click and a non-click in different cells have the order of their scores. If
        their cells overlap, the pair counts half; its exact count is 0, a half or 1. So half of
        the share of such pairs bounds the error. It is 0 as long as each score has a cell of its
        own.
        """
        negatives, positives = self.negatives, self.positives
        pairs = float(positives.sum()) * float(negatives.sum())
        if pairs == 0:
            return OrderedAuc(math.nan, math.nan)
        widths = widths_of(self._codes)
        if widths.max() == 1:
            below = np.cumsum(negatives) - 0.5 * negatives
            return OrderedAuc(float(positives @ below) / pairs, 0.0)
        firsts, lasts = self._codes - widths, self._codes + (widths - ONE)
        below = _sums_before(lasts, negatives, firsts)
        reached = _sums_before(firsts, negatives, lasts)
        unknown = reached - below - np.where(widths == 1, negatives, 0.0)
        value = 0.5 * float(positives @ (below + reached)) / pairs
        return OrderedAuc(value, 0.5 * float(positives @ unknown) / pairs)

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`, rounded so that sums stay exact."""
        self._compact()
        self._weights = on_weight_grid(self._weights * factor)

    def seal(self) -> None:
        """Makes neighbours one cell, if there are too many cells, as soon as anybody reads them.

        Most buckets of a window are dropped before that, and their examples are never sorted.
        """
        self._closing = True

    def shorten(self) -> None:
        """Makes neighbours one cell if there are many cells, or examples that have none."""
        self._closing |= self._seen > _FEW * self.cells or self._size() > self.cells

    def arrays(self) -> dict[str, Array]:
        """Returns the setting, ``seen``, and codes and weights of the cells."""
        self._compact()
        return {
            "cells": to_array(self.cells),
            "seen": to_array(self._seen),
            "codes": self._codes,
            "negatives": self._weights[0],
            "positives": self._weights[1],
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> ScoreOrder:
        state = cls(arrays.integer("cells"))
        state._seen = arrays.integer("seen", 0, state._most - 1)
        codes = arrays.take("codes", np.uint64, (None,))
        known = (codes > 0) & (codes <= MOST_CODE)
        if (codes[1:] <= codes[:-1]).any() or not known.all():
            raise ValueError(three_part("codes", codes, "rising codes of cells"))
        state._codes = codes
        state._weights = np.stack([arrays.sums(name, np.float64, codes.shape) for name in _WEIGHTS])
        return state

    def _add(self, other: ScoreOrder) -> None:
        other._compact()
        if self._closing:
            self._reduce()
        self._merged.append((other._codes, other._weights))
        self._seen = min(self._seen + other._seen, self._most - 1)
        # Each state alone has room for its cells; together they are cut as seldom as examples.
        if self._size() > _MERGED * self.cells:
            self._reduce()

    def _compact(self) -> None:
        """Sorts the examples and the cells of other states into the cells; nothing is lost."""
        if self._closing:
            self._reduce()
        elif self._examples or self._merged:
            self._codes, self._weights = _sorted(*self._taken())

    def _reduce(self) -> None:
        """Makes neighbours one cell, if there are too many cells."""
        most = self.cells if self._closing else _ROOM * self.cells
        gather = self._seen > self._most // 2
        self._seen, self._closing = 0, False
        if gather:
            (self._codes, self._weights), *self._merged = _gathered(*self._taken(), self.cells)
            if self._size() <= most:
                return
        self._codes, self._weights = _sorted(*self._taken())
        if len(self._codes) > most:
            self._codes, self._weights = _joined(self._codes, self._weights, self.cells)

    def _size(self) -> int:
        """Returns the number of cells, some of which may be equal."""
        return sum(map(len, [self._codes, *(codes for codes, _ in self._merged)]))

    def _taken(self) -> tuple[Keys, Codes, Floats]:
        """Returns marks of examples, and all else as cells in any order; forgets them."""
        counted = [part.marks for part in self._examples if part.weights is None]
        heavy = [part.as_cells() for part in self._examples if part.weights is not None]
        codes, weights = zip((self._codes, self._weights), *self._merged, *heavy, strict=True)
        self._examples, self._merged = [], []
        marks = np.concatenate([_NO_MARKS, *counted])
        return marks, np.concatenate(codes), np.concatenate(weights, 1)


def _gathered(marks: Keys, codes: Codes, weights: Floats, cells: int) -> list[tuple[Codes, Floats]]:
    """Makes one cell of all that is in a small cell of one certain level, and sorts the rest.

    A cell is small if it has a small share of the whole. To count what is in it takes a fraction of
    the time to sort it. If so few cells of this level are in use that each score may have a cell of
    its own, everything is sorted.

    Args:
        marks: Those of examples without weights, as in `OrderBatch`.
        codes: All other cells, in any order.
        weights: Their weights, (2, cells).
        cells: As `ScoreOrder.cells`.

    Returns:
        What `_sorted` returns of the rest, and the small cells.
    """
    level = np.uint64(54 - cells.bit_length())  # an octave of scores has `cells / 2`
    inside = widths_of(codes) <= ONE << level
    # The cell of this level around each example, and around each of the other cells.
    of_marks = (marks >> (level + ONE)).view(np.int64)
    of_codes = (codes.compress(inside) >> (level + ONE)).view(np.int64)
    low, high = (_ENDS >> level).view(np.int64).tolist()
    lowest = min(numbers.min(initial=high) for numbers in (of_marks, of_codes))
    highest = max(numbers.max(initial=low) for numbers in (of_marks, of_codes))
    first = max(low, lowest)
    last = max(first, min(high, highest))
    for numbers in (of_marks, of_codes):
        if lowest < first or last < highest:
            np.clip(numbers, first, last, out=numbers)
        numbers -= first
    size = last - first + 1
    doubled = (marks & ONE).view(np.int64)
    doubled += of_marks
    doubled += of_marks
    counts = np.bincount(doubled, minlength=2 * size)
    sums = np.stack([np.bincount(of_codes, row.compress(inside), size) for row in weights])
    totals = weights.sum(axis=1)
    for row in (0, 1):
        sums[row] += counts[row::2]
        totals[row] += counts[row::2].sum()
    factors = 1.0 / np.where(totals > 0, totals, 1.0)
    shares = sums[0] * factors[0] + sums[1] * factors[1]
    is_used = shares > 0
    if np.count_nonzero(is_used) <= cells:
        return [_sorted(marks, codes, weights)]
    is_small = is_used & (shares <= _SMALL / cells)
    is_small[0] &= first > low  # at the ends there are scores from elsewhere
    is_small[-1] &= last < high
    rest = ~inside
    is_rest = ~is_small
    rest[inside] = is_rest[of_codes]
    smalls = np.flatnonzero(is_small)
    small_codes = ((smalls + first).view(np.uint64) << ONE | ONE) << level
    rest_weights = np.stack([row.compress(rest) for row in weights])
    return [
        _sorted(
            marks.compress(is_rest.take(of_marks, mode="clip")), codes.compress(rest), rest_weights
        ),
        (small_codes, np.stack([row[smalls] for row in sums])),
    ]


def _sorted(marks: Keys, codes: Codes, weights: Floats) -> tuple[Codes, Floats]:
    """Returns examples by their marks, and cells, as different cells by rising code."""
    order = np.argsort(codes)  # need not be stable: sums are exact in any order
    codes, weights = _distinct(codes[order], weights[:, order])
    if not len(marks):
        return codes, weights
    # The label is the lowest bit: to sort numbers is several times as fast as to sort places.
    marked = np.concatenate([marks, codes])
    marked.sort()
    at = np.searchsorted(marked, codes)  # the first of equal ones, so that the order remains
    sums = np.empty((2, len(marked)))
    sums[1] = marked & ONE
    np.subtract(1.0, sums[1], out=sums[0])
    marked |= ONE
    marked[at], sums[:, at] = codes, weights
    return _distinct(marked, sums)


def _distinct(codes: Codes, weights: Floats) -> tuple[Codes, Floats]:
    """Returns cells by rising code, of which equal ones become one."""
    starts = starts_of(codes)
    if len(starts) < len(codes):
        codes, weights = codes[starts], row_sums(weights, starts)
    return codes, weights


def _joined(codes: Codes, weights: Floats, cells: int) -> tuple[Codes, Floats]:
    """Makes neighbours of different cells by rising code one, so that at most `cells` are left."""
    widths = widths_of(codes)
    joints = codes[1:] ^ codes[:-1]
    joints |= widths[:-1]
    # Shares of clicks and of non-clicks, so that few clicks are as important as many non-clicks.
    sums = np.cumsum(weights, axis=1)
    factors = 1.0 / np.where(sums[:, -1] > 0, sums[:, -1], 1.0)
    shares = sums[0] * factors[0] + sums[1] * factors[1]
    most = 12.0 / cells
    cut = _cuts(codes, widths, joints, shares, most)
    while np.count_nonzero(cut) >= 0.75 * cells:
        most *= 2
        cut = _cuts(codes, widths, joints, shares, most)
    ends = np.append(np.flatnonzero(cut), len(codes) - 1)
    starts = np.append(0, ends[:-1] + 1)
    # Whatever is between two cells is in the smallest cell around both.
    inner = (codes[starts] ^ codes[ends]) | widths[starts]
    ended = sums[:, ends]
    ended[:, 1:] -= sums[:, ends[:-1]]
    return around(codes[starts], highest_bits(inner)), ended


def _cuts(codes: Codes, widths: Codes, joints: Codes, shares: Floats, most: float) -> Flags:
    """Returns between which neighbours cells end; all cells between two ends become one.

    A joint is the root of a tree of all members of its cell. The order is divided into segments of
    half of `most`. Cells end at the joints whose cell covers a whole segment. The members of each
    other cell are in two segments at most.

    Args:
        codes: The cells by rising code.
        widths: Two to the power of the level of each.
        joints: A number for each two neighbours with the highest bit of the width of the smallest
            cell around both.
        shares: The share of all cells up to each one.
        most: The maximum of the shares of a cell with several members.
    """
    numbers = (shares * (2.0 / most)).astype(np.int32)
    segments, last = numbers[:-1], numbers[-1:]
    starts = starts_of(segments)
    lengths = np.diff(starts, append=len(joints))
    ends = starts + lengths
    # What a cell must reach, from a joint on, to cover the segment before or the one after. One
    # without a joint, within a single cell, is covered by every cell that reaches it.
    skipped = np.diff(segments[starts], prepend=-1, append=last) > 1
    before = np.append(starts[:1], np.where(skipped[1:-1], starts[1:], starts[:-1]))
    after = np.append(np.where(skipped[1:-1], ends[:-1], ends[1:]), ends[-1:])
    lowest = codes[before] - (widths[before] - ONE)
    highest = codes[after] + (widths[after] - ONE)
    # The smallest cell around a joint's segment, and around the joint and one beside the segment.
    around_own = (codes[starts] ^ codes[ends]) | widths[starts]
    least = np.repeat(lowest, lengths)
    least ^= codes[:-1]
    if not skipped[0]:
        least[: lengths[0]] = _NEVER
    later = np.repeat(highest, lengths)
    later ^= codes[:-1]
    if not skipped[-1]:
        later[starts[-1] :] = _NEVER
    np.minimum(least, later, out=least)
    np.minimum(least, np.repeat(around_own, lengths), out=least)
    least &= ~joints
    return least <= joints  # the highest bit of `joints` is not below that of `least`


def _sums_before(ends: Codes, weights: Floats, limits: Codes) -> Floats:
    """Returns the weight of cells with an end before each limit.

    Cells begin with even numbers and end with odd ones: none is equal to the limit.
    """
    order = np.argsort(ends)
    sums = np.append(0.0, np.cumsum(weights[order]))
    return sums[np.searchsorted(ends[order], limits)]
