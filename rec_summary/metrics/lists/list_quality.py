"""Metrics of ranked lists: NDCG, recall, precision, hit rate and MRR at k, and ordered pairs.

Examples of a list with equal scores have no order. Each metric is therefore its mean over all
orders of such ties, as in scikit-learn's ``ndcg_score``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rec_summary.arrays import Array, Floats
from rec_summary.metrics.lists.ranked_lists import ListRows, SampledLists
from rec_summary.metrics.quality.score_cells import starts_of


class TopOfLists(NamedTuple):
    """Means over the lists that have a relevant example; NaN if there is none.

    Attributes:
        ndcg: The discounted cumulative gain of the first k, divided by that of the best order
            (Jarvelin and Kekalainen 2002). The label is the gain; below 0, as of a dislike, it has
            none, as in ``trec_eval``.
        recall: The share of the relevant examples that is among the first k.
        precision: The number of relevant examples among the first k, divided by k.
        hit_rate: The share of lists with a relevant example among the first k.
        mrr: One divided by the place of the first relevant example; 0 beyond k.
        lists: The number of these lists.
        without: The number of lists without a relevant example.
        standard_error: The standard error of `ndcg` as the value of all lists, by the delta method
            for independent inclusion; 0 if every list is in the sample.
    """

    ndcg: float
    recall: float
    precision: float
    hit_rate: float
    mrr: float
    lists: int
    without: int
    standard_error: float


def top_of_lists(sample: SampledLists, k: int) -> TopOfLists:
    """Returns the metrics of the first `k` examples of each list.

    An example is relevant if its label is above 0.

    Args:
        sample: The lists.
        k: At least 1.
    """
    counts: Floats = np.zeros(0)
    if sample.rows.size:
        numbers = np.cumsum(np.diff(sample.rows.lists, prepend=sample.rows.lists[:1]) != 0)
        gains = np.maximum(sample.rows.labels, 0.0)
        scored = _Ties(numbers, sample.rows.scores, gains, sample.rows.counts)
        counts = _sums(scored.lists, scored.relevant)
    judged = np.flatnonzero(counts > 0)
    if not len(judged):
        nan = math.nan
        return TopOfLists(nan, nan, nan, nan, nan, 0, len(counts), nan)
    order = np.lexsort((-gains, numbers))
    best = _Ties(numbers, gains[order], gains[order], sample.rows.counts[order])
    ndcg = scored.gains(k)[judged] / best.gains(k)[judged]
    hits = scored.hits(k)[judged]
    first, reciprocal = scored.first_relevant(k)
    error = math.sqrt(1.0 - sample.rate) * float(np.linalg.norm(ndcg - ndcg.mean())) / len(judged)
    return TopOfLists(
        ndcg=float(ndcg.mean()),
        recall=float((hits / counts[judged]).mean()),
        precision=float(hits.mean()) / k,
        hit_rate=float(first[judged].mean()),
        mrr=float(reciprocal[judged].mean()),
        lists=len(judged),
        without=len(counts) - len(judged),
        standard_error=error,
    )


def pairs_in_lists(sample: SampledLists) -> float:
    """Returns the share of the pairs of examples of a list that have the order of their labels.

    Of pairs with different labels, it is the share in which the example with the higher label has
    the higher score; pairs with equal scores count half. NaN without pairs.
    """
    return _ordered_pairs(sample.rows.lists, sample.rows)


def pairs_of_all(sample: SampledLists) -> float:
    """Returns the same share of all pairs of the examples, of whichever list."""
    return _ordered_pairs(np.zeros(sample.rows.size, np.intp), sample.rows)


class _Ties:
    """Examples of lists in groups of equal scores, by list and falling score.

    Attributes:
        lists: The number of the list of each group, (groups,).
        relevant: The number of relevant examples of each group.
    """

    def __init__(self, lists: Array, scores: Floats, gains: Floats, counts: Floats) -> None:
        """Groups rows, which are sorted by list and falling score; each array is (rows,)."""
        starts = starts_of(lists, scores)
        self.lists = lists[starts]
        self._sizes = np.add.reduceat(counts, starts)
        self._gains = np.add.reduceat(gains * counts, starts)
        self.relevant = np.add.reduceat(np.where(gains > 0, counts, 0.0), starts)
        before = np.cumsum(self._sizes) - self._sizes
        self._first = starts_of(self.lists)
        groups = np.diff(np.append(self._first, len(starts)))
        self._before = before - np.repeat(before[self._first], groups)

    def gains(self, k: int) -> Floats:
        """Returns the discounted cumulative gain of the first k of each list."""
        discounts = np.append(0.0, np.cumsum(1.0 / np.log2(np.arange(2.0, k + 2.0))))
        begin = np.minimum(self._before, k).astype(np.intp)
        end = np.minimum(self._before + self._sizes, k).astype(np.intp)
        means = self._gains / self._sizes
        return _sums(self.lists, means * (discounts[end] - discounts[begin]))

    def hits(self, k: int) -> Floats:
        """Returns the expected number of relevant examples among the first k of each list."""
        taken = np.clip(k - self._before, 0.0, self._sizes)
        return _sums(self.lists, self.relevant * taken / self._sizes)

    def first_relevant(self, k: int) -> tuple[Floats, Floats]:
        """Returns for each list the chance that the first k have a relevant example, and MRR."""
        groups = np.flatnonzero(self.relevant > 0)
        groups = groups[starts_of(self.lists[groups])]
        before, sizes = self._before[groups], self._sizes[groups]
        others = sizes - self.relevant[groups]
        left = np.ones(len(groups))  # the chance that no relevant example was placed yet
        chance, reciprocal = np.zeros(len(groups)), np.zeros(len(groups))
        for place in range(k):
            open_ = (before + place < k) & (left > 0)
            if not open_.any():
                break
            still = left * np.maximum(others - place, 0.0) / np.maximum(sizes - place, 1.0)
            here = np.where(open_, left - still, 0.0)
            chance += here
            reciprocal += here / (before + place + 1.0)
            left = still
        size = int(self.lists[-1]) + 1
        of = self.lists[groups]
        return _sums(of, chance, size), _sums(of, reciprocal, size)


def _sums(lists: Array, values: Floats, size: int = 0) -> Floats:
    """Returns the sum of the values of each list; of at least `size` lists."""
    return np.bincount(lists, values, size).astype(np.float64)


def _ordered_pairs(lists: Array, rows: ListRows) -> float:
    """Returns the share of pairs within each of these lists, (rows,).

    Merge sort: by rising score, the pairs of a lower and an upper half are counted for halves of
    2, 4, 8 and more rows, all halves of a size at once.
    """
    if not rows.size:
        return math.nan
    _, scores, labels, counts = rows
    ranks = np.unique(labels, return_inverse=True)[1]
    total = _pairs_below(lists, ranks, counts)
    ties = np.lexsort((ranks, scores, lists))
    of_ties = np.cumsum(np.append(0, (np.diff(lists[ties]) != 0) | (np.diff(scores[ties]) != 0)))
    tied = _pairs_below(of_ties, ranks[ties], counts[ties])
    # Of equal scores the higher label is first, so that no pair of them counts.
    order = np.lexsort((-ranks, scores, lists))
    lists, ranks, counts = lists[order], ranks[order], counts[order]
    right, size, places = 0.0, 1, np.arange(len(order))
    while size < len(order):
        block, upper = places // (2 * size), (places // size) % 2 == 1
        sort = np.lexsort((~upper, ranks, lists, block))
        weights, is_upper = counts[sort], upper[sort]
        lower = np.where(is_upper, 0.0, weights)
        sums = np.cumsum(lower) - lower
        start = starts_of(block[sort], lists[sort])
        lengths = np.diff(np.append(start, len(sort)))
        # Rows of the lower half with a lower label: of equal labels the upper half comes first.
        right += float(np.where(is_upper, weights, 0.0) @ (sums - np.repeat(sums[start], lengths)))
        size *= 2
    return (right + 0.5 * tied) / total if total else math.nan


def _pairs_below(groups: Array, ranks: Array, counts: Floats) -> float:
    """Returns the number of pairs with different ranks within the groups."""
    order = np.lexsort((ranks, groups))
    groups, ranks, counts = groups[order], ranks[order], counts[order]

    def squares(starts: Array) -> float:
        return float(np.square(np.add.reduceat(counts, starts)).sum())

    return 0.5 * (squares(starts_of(groups)) - squares(starts_of(groups, ranks)))
