"""Counts of values in fixed bins, and distances between two such distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Floats, Integers
from rec_summary.checks import check_int, plain_array
from rec_summary.errors import three_part
from rec_summary.metrics.hashing import hashed, mix
from rec_summary.metrics.state import MOST_WEIGHT, State, on_weight_grid

_SMOOTHING: Final = 0.5  # added to each count: the prior of Jeffreys
_MOST_BUCKETS: Final = 2**20
_MOST_CATEGORIES: Final = 4096
_LEAST_COUNT: Final = 5  # of a category in a reference; of fewer, chance decides


class Distribution(State):
    """Weights of values in bins; a mergeable state.

    Numbers fall between edges: bin i holds ``edges[i-1] <= x < edges[i]``; the first and the last
    bin are open. Categories (integers, or strings by their hash) have a bin each if they are known,
    and else fall into buckets by a hash.

    Attributes:
        edges: Ascending edges, (k,); empty for categories.
        buckets: The number of buckets; 0 for numbers.
        categories: The known categories, ascending int64, (c,); empty for numbers.
        counts: The weight of the values in each bin, (k + 1,) or (c + buckets,), and at the end
            that of NaN.
        squares: The sum of the squares of all weights but that of NaN, (1,).
    """

    _settings = ("edges", "buckets", "categories")
    _sums = ("counts", "squares")

    def __init__(
        self,
        edges: Sequence[float] | Array = (),
        buckets: int = 0,
        categories: Sequence[int] | Array = (),
    ) -> None:
        """Starts empty; give edges or buckets, and categories only with buckets.

        Raises:
            TypeError, ValueError: Neither or both are given, the edges or categories do not ascend,
                edges are not finite, or there are fewer than two bins.
        """
        bounds, known = np.array(edges, np.float64), np.array(categories, np.int64)
        check_int("buckets", buckets, 0, _MOST_BUCKETS)
        if (bounds.size > 0) == (buckets > 0) or buckets + known.size == 1:
            expected = "edges, or 2 buckets or more"
            raise ValueError(three_part("edges, buckets", (bounds.size, buckets), expected))
        if bounds.ndim != 1 or not np.isfinite(bounds).all() or (np.diff(bounds) <= 0).any():
            raise ValueError(three_part("edges", edges, "finite ascending numbers"))
        if known.ndim != 1 or (known[1:] <= known[:-1]).any() or (known.size and bounds.size):
            expected = "ascending integers, and none beside edges"
            raise ValueError(three_part("categories", categories, expected))
        self.edges = bounds
        self.buckets = int(buckets)
        self.categories = known
        bins = known.size + buckets if buckets else bounds.size + 1
        self.counts: Floats = np.zeros(bins + 1)
        self.squares: Floats = np.zeros(1)

    def add(self, values: npt.ArrayLike, weights: Array | None = None) -> None:
        """Counts values of any shape.

        Args:
            values: The values; the first axis is that of the examples.
            weights: The weight of each example, 0 to 2**20, rounded to multiples of 2**-20; others
                count as 0. All are 1 if None.

        Raises:
            TypeError: They are not numbers, or neither integers nor strings where there are
                buckets.
        """
        given = plain_array(values)
        flat = given.ravel()
        kinds = "iub" if self.buckets else "iubf"
        if not flat.size:
            return
        if self.buckets:
            flat = hashed(flat)
        if flat.dtype.kind not in kinds:
            expected = "an integer dtype" if self.buckets else "a dtype of real numbers"
            raise TypeError(three_part("the dtype of the values", flat.dtype, expected))
        if weights is not None:
            weights = weights.astype(np.float64)  # sums of float32 are not exact
            usable = (weights >= 0) & (weights <= MOST_WEIGHT)
            weights = on_weight_grid(np.where(usable, weights, 0.0))
            weights = np.repeat(weights, flat.size // len(weights))
        if not self.buckets:
            self._count_numbers(flat.astype(np.float64), weights)
            return
        places = self._bins_of(flat.astype(np.int64))
        self.counts += np.bincount(places, weights, self.counts.size)
        self.squares += flat.size if weights is None else (weights**2).sum()

    def _count_numbers(self, numbers: Floats, weights: Floats | None) -> None:
        """Counts numbers: between few edges many times as fast as looking for their places."""
        present = numbers == numbers  # NaN is not equal to itself
        above = [present, *(numbers >= edge for edge in self.edges.tolist())]
        *sums, missing = (
            np.count_nonzero(part) if weights is None else weights @ part
            for part in (*above, ~present)
        )
        # Sums of weights up to 2**33 are exact in any order; larger ones may fall by rounding.
        self.counts[:-1] += np.maximum(-np.diff([*sums, 0.0]), 0.0)
        self.counts[-1] += missing
        self.squares += sums[0] if weights is None else (weights**2)[present].sum()

    def _bins_of(self, numbers: Integers) -> npt.NDArray[np.intp]:
        """Returns the bins of categories."""
        hashed = (mix(numbers) % np.uint64(self.buckets)).astype(np.intp) + self.categories.size
        if not self.categories.size:
            return hashed
        near = np.minimum(np.searchsorted(self.categories, numbers), self.categories.size - 1)
        return np.where(self.categories[near] == numbers, near, hashed)

    def sample(self) -> Floats:
        """Returns the counts of a sample without weights that says as much, without that of NaN.

        The weights of examples are scaled to Kish's effective size of the sample, the square of
        their sum divided by the sum of their squares.
        """
        counts = self.counts[:-1]
        squares = float(self.squares[0])
        return counts * (float(counts.sum()) / squares) if squares else counts.copy()

    def equals(self, other: Distribution) -> bool:
        """Returns whether another distribution has the same bins and counts."""
        return (
            self.buckets == other.buckets
            and np.array_equal(self.edges, other.edges)
            and np.array_equal(self.categories, other.categories)
            and np.array_equal(self.counts, other.counts)
        )

    def empty(self) -> Distribution:
        """Returns a distribution with the same bins and no values."""
        return Distribution(self.edges, self.buckets, self.categories)


def categories_of(values: Array, buckets: int) -> Distribution:
    """Returns an empty distribution for integers or strings like these values.

    The most frequent values have a bin each: all of them if there are few, and else those that are
    frequent enough for their share to be known. The rest is hashed to as many buckets as have
    ten values on average, at least two.

    Args:
        values: The values, (n,).
        buckets: The maximum number of buckets for the rest.
    """
    categories, counts = np.unique(hashed(values).astype(np.int64), return_counts=True)
    order = np.lexsort((categories, -counts))
    if len(categories) > buckets:
        order = order[counts[order] >= _LEAST_COUNT][:_MOST_CATEGORIES]
    rest = int(counts.sum() - counts[order].sum())
    return Distribution(
        buckets=min(max(rest // (2 * _LEAST_COUNT), 2), buckets),
        categories=np.sort(categories[order]),
    )


def psi(reference: Array, counts: Array) -> float:
    """Returns the population stability index of counts against a reference.

    The sum of ``(q - p) * ln(q / p)`` over the bins that are not empty on both sides, with
    the shares p and q of the smoothed counts, ``(count + 0.5) / (total + 0.5 * bins)``. A common
    reading: 0.1 is a small shift, 0.25 a large one.
    Kullback and Leibler, On information and sufficiency, 1951 (their J).

    Args:
        reference: Counts, (k,).
        counts: Counts in the same bins, (k,).

    Returns:
        The index, at least 0; NaN if either side is empty.
    """
    if not reference.sum() or not counts.sum():
        return math.nan
    occurred = (reference > 0) | (counts > 0)
    reference, counts = reference[occurred], counts[occurred]
    p, q = (
        (side + _SMOOTHING) / (side.sum() + _SMOOTHING * side.size) for side in (reference, counts)
    )
    return float(((q - p) * (np.log(q) - np.log(p))).sum())


def psi_by_chance(reference: Array, counts: Array) -> float:
    """Returns the mean index of two samples of the same distribution.

    ``(bins - 1) * (1 / n + 1 / m)``, for samples of n and m with several values in each bin
    (Yurdakul, Statistical properties of population stability index, 2018). An index near it is no
    sign of drift. Bins that are empty on both sides do not count.

    Args:
        reference: Counts, (k,).
        counts: Counts in the same bins, (k,).
    """
    n, m = float(reference.sum()), float(counts.sum())
    if not n or not m:
        return math.nan
    bins = int(np.count_nonzero(reference + counts))
    return (bins - 1) * (1 / n + 1 / m)


def jensen_shannon(reference: Array, counts: Array) -> float:
    """Returns the Jensen-Shannon divergence of two distributions, in bits.

    It is the square of `scipy.spatial.distance.jensenshannon` with base 2. Empty bins need no
    smoothing. Lin, Divergence measures based on the Shannon entropy, 1991.

    Args:
        reference: Counts, (k,).
        counts: Counts in the same bins, (k,).

    Returns:
        0 for equal shares to 1 for no common bin; NaN if either side is empty.
    """
    if not reference.sum() or not counts.sum():
        return math.nan
    p, q = reference / reference.sum(), counts / counts.sum()
    middle = (p + q) / 2
    total = 0.0
    for side in (p, q):
        positive = side > 0
        total += float((side[positive] * np.log2(side[positive] / middle[positive])).sum())
    return min(max(total / 2, 0.0), 1.0)


def edges_of(values: npt.ArrayLike, bins: int) -> Floats:
    """Returns edges of bins that hold about equally many of these values.

    Args:
        values: Numbers, one or more of them finite; the others are skipped.
        bins: The number of bins; there are fewer if values repeat.
    """
    finite = np.asarray(values, np.float64).ravel()
    finite = finite[np.isfinite(finite)]
    # Edges are values of the sample, so that rounding does not split repeated ones.
    shares = np.arange(1, bins) / bins
    edges: Floats = np.unique(np.quantile(finite, shares, method="higher"))
    if edges[0] == finite.min() and edges.size > 1:
        edges = edges[1:]  # the bin below the smallest value would be empty
    return edges
