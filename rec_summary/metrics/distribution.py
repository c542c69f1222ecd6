"""Counts of values in fixed bins, and distances between two such distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.hashing import mix
from rec_summary.metrics.state import Arrays, State, check_int, register, take, take_int

if TYPE_CHECKING:
    from typing_extensions import Self

SMOOTHING: Final = 0.5
_MOST_BUCKETS: Final = 2**20


@register
class Distribution(State):
    """Counts of values in bins; a mergeable state.

    Numbers fall between edges: bin i holds ``edges[i-1] <= x < edges[i]``; the first and the last
    bin are open. Categories (integers) fall into buckets by a hash.

    Attributes:
        edges: Ascending edges, (k,); empty for categories.
        buckets: The number of buckets; 0 for numbers.
        counts: The number of values in each bin, (k + 1,) or (buckets,), and at the end the number
            of NaN.
    """

    _settings = ("edges", "buckets")
    _sums = ("counts",)

    def __init__(self, edges: Sequence[float] | npt.NDArray[Any] = (), buckets: int = 0) -> None:
        """Starts empty; give edges or buckets.

        Raises:
            TypeError, ValueError: Neither or both are given, the edges do not ascend or are not
                finite, or there are fewer than two buckets.
        """
        found = np.array(edges, np.float64)
        check_int("buckets", buckets, 0, _MOST_BUCKETS)
        if (found.size > 0) == (buckets > 0) or buckets == 1:
            raise ValueError(
                three_part("edges, buckets", (found.size, buckets), "edges, or 2 buckets or more")
            )
        if found.ndim != 1 or not np.isfinite(found).all() or (np.diff(found) <= 0).any():
            raise ValueError(three_part("edges", edges, "finite ascending numbers"))
        self.edges = found
        self.buckets = int(buckets)
        self.counts = np.zeros((buckets or found.size + 1) + 1, np.int64)

    def add(self, values: npt.ArrayLike) -> None:
        """Counts values of any shape.

        Raises:
            TypeError: They are not numbers, or not integers where there are buckets.
        """
        found = np.asarray(values).ravel()
        kinds = "iub" if self.buckets else "iubf"
        if not found.size:
            return
        if found.dtype.kind not in kinds:
            expected = "an integer dtype" if self.buckets else "a dtype of real numbers"
            raise TypeError(three_part("the dtype of the values", found.dtype, expected))
        if self.buckets:
            places = (mix(found) % np.uint64(self.buckets)).astype(np.intp)
        else:
            # numpy sorts NaN into the last bin.
            places = np.searchsorted(self.edges, found, side="right")
            if found.dtype.kind == "f":
                places[np.isnan(found)] = self.counts.size - 1
        self.counts += np.bincount(places, minlength=self.counts.size)

    def equals(self, other: Distribution) -> bool:
        """Returns whether another distribution has the same bins and counts."""
        return (
            self.buckets == other.buckets
            and np.array_equal(self.edges, other.edges)
            and np.array_equal(self.counts, other.counts)
        )

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the distribution of these arrays.

        Raises:
            ValueError: The arrays do not describe a distribution.
        """
        edges = take(arrays, "edges", np.float64, (None,))
        new = cls(edges, take_int(arrays, "buckets", 0, _MOST_BUCKETS))
        new._take_contents(arrays)
        return new


def psi(
    reference: npt.NDArray[np.integer[Any]],
    counts: npt.NDArray[np.integer[Any]],
    smoothing: float = SMOOTHING,
) -> float:
    """Returns the population stability index of counts against a reference.

    The sum of ``(q - p) * ln(q / p)`` over the bins, with the shares p and q of the smoothed
    counts, ``(count + smoothing) / (total + smoothing * bins)``. Without smoothing it is infinite
    if a bin is empty on one side only. A common reading: 0.1 is a small shift, 0.25 a large one.
    Kullback and Leibler, On information and sufficiency, 1951 (their J).

    Args:
        reference: Counts, (k,).
        counts: Counts in the same bins, (k,).
        smoothing: A number added to each count; one half is the prior of Jeffreys.

    Returns:
        The index, at least 0; NaN if either side is empty.
    """
    if not reference.sum() or not counts.sum():
        return math.nan
    p = (reference + smoothing) / (reference.sum() + smoothing * reference.size)
    q = (counts + smoothing) / (counts.sum() + smoothing * counts.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(p == q, 0.0, (q - p) * (np.log(q) - np.log(p)))
    return float(parts.sum())


def psi_by_chance(
    reference: npt.NDArray[np.integer[Any]], counts: npt.NDArray[np.integer[Any]]
) -> float:
    """Returns the mean index of two samples of the same distribution.

    ``(bins - 1) * (1 / n + 1 / m)``, for samples of n and m with several values in each bin
    (Yurdakul, Statistical properties of population stability index, 2018). An index near it is no
    sign of drift. Bins that are empty on both sides do not count.

    Args:
        reference: Counts, (k,).
        counts: Counts in the same bins, (k,).
    """
    n, m = int(reference.sum()), int(counts.sum())
    if not n or not m:
        return math.nan
    bins = int(np.count_nonzero(reference + counts))
    return (bins - 1) * (1 / n + 1 / m)


def jensen_shannon(
    reference: npt.NDArray[np.integer[Any]], counts: npt.NDArray[np.integer[Any]]
) -> float:
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
        there = side > 0
        total += float((side[there] * np.log2(side[there] / middle[there])).sum())
    return min(max(total / 2, 0.0), 1.0)


def edges_of(values: npt.ArrayLike, bins: int = 10) -> npt.NDArray[np.float64]:
    """Returns edges of bins that hold about equally many of these values.

    Args:
        values: Numbers; those that are not finite are skipped.
        bins: The number of bins; there are fewer if values repeat.

    Raises:
        ValueError: There is no finite value.
    """
    found = np.asarray(values, np.float64).ravel()
    found = found[np.isfinite(found)]
    if not found.size:
        raise ValueError(
            three_part("the values of a reference", values, "one finite number or more")
        )
    # Edges are values of the sample, so that rounding does not split repeated ones.
    shares = np.arange(1, bins) / bins
    edges: npt.NDArray[np.float64] = np.unique(np.quantile(found, shares, method="higher"))
    if edges[0] == found.min() and edges.size > 1:
        edges = edges[1:]  # the bin below the smallest value would be empty
    return edges
