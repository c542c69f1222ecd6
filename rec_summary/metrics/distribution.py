"""Counts of values in fixed bins, and how far two such distributions are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.hashing import mix
from rec_summary.metrics.state import register
from rec_summary.metrics.state_io import (
    Arrays,
    check_int,
    check_same,
    stored_array,
    stored_counts,
    stored_int,
)

if TYPE_CHECKING:
    from typing_extensions import Self

SMOOTHING: Final = 0.5
_MOST_BUCKETS: Final = 2**20


@register
class Distribution:
    """Counts of values in bins; a mergeable state.

    Numbers fall between edges: bin i holds ``edges[i-1] <= x < edges[i]``, the first and the last
    bin all that lie beyond. Categories (integers) fall into buckets by a hash.

    Attributes:
        edges: Ascending edges, (k,); none for categories.
        buckets: The number of buckets; 0 for numbers.
        counts: Values in each bin, (k + 1,) or (buckets,), and NaN in one more at the end.
    """

    def __init__(self, edges: Sequence[float] | npt.NDArray[Any] = (), buckets: int = 0) -> None:
        """Starts empty; give edges or buckets.

        Raises:
            TypeError, ValueError: Neither or both are given, the edges do not ascend or are not
                finite, or the number of buckets is none from 2.
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

    @property
    def total(self) -> int:
        """How many values were counted, NaN apart."""
        return int(self.counts[:-1].sum())

    def add(self, values: npt.ArrayLike) -> None:
        """Counts values of any shape.

        Raises:
            TypeError: They are no numbers, or no integers where there are buckets.
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
            # numpy sorts NaN behind everything, but not behind the last bin.
            places = np.searchsorted(self.edges, found, side="right")
            if found.dtype.kind == "f":
                places[np.isnan(found)] = self.counts.size - 1
        self.counts += np.bincount(places, minlength=self.counts.size)

    def same_bins(self, other: Distribution) -> bool:
        """Whether another distribution has the same bins."""
        return self.buckets == other.buckets and np.array_equal(self.edges, other.edges)

    def merge(self, other: Self) -> None:
        """Adds the counts of another distribution.

        Raises:
            ValueError: It has other bins.
        """
        check_same("the buckets", self.buckets, other.buckets)
        check_same("the edges", self.edges.tolist(), other.edges.tolist())
        self.counts += other.counts

    def copy(self) -> Self:
        """Returns an independent copy."""
        new = type(self)(self.edges, self.buckets)
        new.merge(self)
        return new

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns bins and counts as arrays to be stored."""
        return {
            "edges": self.edges.copy(),
            "buckets": np.array(self.buckets, np.int64),
            "counts": self.counts.copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the distribution of which these are the arrays.

        Raises:
            ValueError: They are none of a distribution.
        """
        new = cls(
            stored_array(arrays, "edges", "f", (None,)),
            stored_int(arrays, "buckets", 0, _MOST_BUCKETS),
        )
        new.counts = stored_counts(arrays, "counts", new.counts.shape)
        return new


def psi(
    reference: npt.NDArray[np.integer[Any]],
    counts: npt.NDArray[np.integer[Any]],
    smoothing: float = SMOOTHING,
) -> float:
    """Returns the population stability index of counts against a reference.

    The sum of ``(q - p) * ln(q / p)`` over the bins, with the shares p and q of the smoothed
    counts, ``(count + smoothing) / (total + smoothing * bins)``; without smoothing it is infinite
    as soon as a bin is empty on one side. By custom 0.1 is a small shift and 0.25 a large one.
    Kullback and Leibler, On information and sufficiency, 1951 (their J).

    Args:
        reference: Counts, (k,).
        counts: Counts in the same bins, (k,).
        smoothing: What is added to each count; one half is the prior of Jeffreys.

    Returns:
        The index, at least 0; NaN when either side is empty.
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
    """Returns the index that two samples of one distribution would have on average.

    ``(bins - 1) * (1 / n + 1 / m)``, for samples of n and m with several values in each bin
    (Yurdakul, Statistical properties of population stability index, 2018). An index that is not
    well above tells nothing. Bins that are empty on both sides do not count.

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

    The square of what `scipy.spatial.distance.jensenshannon` returns with base 2. Empty bins need
    no smoothing. Lin, Divergence measures based on the Shannon entropy, 1991.

    Args:
        reference: Counts, (k,).
        counts: Counts in the same bins, (k,).

    Returns:
        From 0, the same, to 1, nothing in common; NaN when either side is empty.
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
    """Returns edges between which about equally many of these values lie.

    Args:
        values: Numbers; what is not finite is passed over.
        bins: How many bins are wanted; there are fewer when values repeat.

    Raises:
        ValueError: There is no finite value.
    """
    found = np.asarray(values, np.float64).ravel()
    found = found[np.isfinite(found)]
    if not found.size:
        raise ValueError(
            three_part("the values of a reference", values, "one finite number or more")
        )
    # Numbers of the sample themselves, so that repeated ones are not split by rounding.
    shares = np.arange(1, bins) / bins
    edges: npt.NDArray[np.float64] = np.unique(np.quantile(found, shares, method="higher"))
    if edges[0] == found.min() and edges.size > 1:
        edges = edges[1:]  # below the smallest there is nothing
    return edges
