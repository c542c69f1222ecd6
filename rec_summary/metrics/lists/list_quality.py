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
from rec_summary.metrics.quality.hash_sample import error_of_mean
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
        standard_errors: The standard errors of the first five as those of all lists, for
            independent inclusion; 0 if every list is in the sample.
        chance_errors: The same if also all lists are a sample of those that might come.
    """

    ndcg: float
    recall: float
    precision: float
    hit_rate: float
    mrr: float
    lists: int
    without: int
    standard_errors: tuple[float, ...]
    chance_errors: tuple[float, ...]

    @property
    def means(self) -> tuple[float, float, float, float, float]:
        """The first five."""
        return self[:5]


class PairsOfLists(NamedTuple):
    """The order of the pairs of examples of a list, and its errors.

    Attributes:
        share: Of pairs with different labels, the share in which the example with the higher label
            has the higher score; pairs with equal scores count half. NaN without pairs.
        standard_error: As of `TopOfLists`.
        chance_error: As of `TopOfLists`.
    """

    share: float
    standard_error: float
    chance_error: float


def top_of_lists(sample: SampledLists, k: int) -> TopOfLists:
    """Returns the metrics of the first `k` examples of each list.

    An example is relevant if its label is above 0.

    Args:
        sample: The lists.
        k: At least 1.
    """
    counts: Floats = np.zeros(0)
    if sample.rows.size:
        numbers = _numbers(sample.rows.lists)
        gains = np.maximum(sample.rows.labels, 0.0)
        scored = _Ties(numbers, sample.rows.scores, gains, sample.rows.counts)
        counts = _sums(scored.lists, scored.relevant)
    judged = np.flatnonzero(counts > 0)
    if not len(judged):
        nan, none = math.nan, (math.nan,) * 5
        return TopOfLists(nan, nan, nan, nan, nan, 0, len(counts), none, none)
    order = np.lexsort((-gains, numbers))
    best = _Ties(numbers, gains[order], gains[order], sample.rows.counts[order])
    ndcg = scored.gains(k)[judged] / best.gains(k)[judged]
    hits = scored.hits(k)[judged]
    first, reciprocal = scored.first_relevant(k)
    values = (ndcg, hits / counts[judged], hits / k, first[judged], reciprocal[judged])
    same = np.ones(len(judged))
    ndcg_mean, recall, precision, hit_rate, mrr = (float(value.mean()) for value in values)
    return TopOfLists(
        ndcg=ndcg_mean,
        recall=recall,
        precision=precision,
        hit_rate=hit_rate,
        mrr=mrr,
        lists=len(judged),
        without=len(counts) - len(judged),
        standard_errors=tuple(error_of_mean(value, same, sample.rate) for value in values),
        chance_errors=tuple(error_of_mean(value, same) for value in values),
    )


def pairs_in_lists(sample: SampledLists) -> PairsOfLists:
    """Returns the share of the pairs of examples of a list that have the order of their labels."""
    right, pairs = _ordered_pairs(_numbers(sample.rows.lists), sample.rows)
    right, pairs = right[pairs > 0], pairs[pairs > 0]
    if not len(pairs):
        return PairsOfLists(math.nan, math.nan, math.nan)
    shares = right / pairs
    errors = (error_of_mean(shares, pairs, rate) for rate in (sample.rate, 0.0))
    return PairsOfLists(float(right.sum() / pairs.sum()), *errors)


def pairs_of_all(sample: SampledLists) -> float:
    """Returns the same share of all pairs of the examples, of whichever list."""
    right, pairs = _ordered_pairs(np.zeros(sample.rows.size, np.intp), sample.rows)
    return float(right.sum() / pairs.sum()) if pairs.any() else math.nan


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


def _numbers(lists: Array) -> Array:
    """Returns the number of the list of each row, from 0; lists rise."""
    return np.cumsum(np.diff(lists, prepend=lists[:1]) != 0)


def _ordered_pairs(lists: Array, rows: ListRows) -> tuple[Floats, Floats]:
    """Returns the numbers of pairs in the right order, and of all, of each list.

    Pairs with equal scores count half. The numbers of the lists, (rows,), rise.

    Merge sort: by rising score, the pairs of a lower and an upper half are counted for halves of
    2, 4, 8 and more rows, all halves of a size at once.
    """
    if not rows.size:
        return np.zeros(0), np.zeros(0)
    _, scores, labels, counts = rows
    ranks = np.unique(labels, return_inverse=True)[1]
    total = _pairs_below(lists, lists, ranks, counts)
    ties = np.lexsort((ranks, scores, lists))
    of_ties = np.cumsum(np.append(0, (np.diff(lists[ties]) != 0) | (np.diff(scores[ties]) != 0)))
    tied = _pairs_below(lists[ties], of_ties, ranks[ties], counts[ties])
    # Of equal scores the higher label is first, so that no pair of them counts.
    order = np.lexsort((-ranks, scores, lists))
    lists, ranks, counts = lists[order], ranks[order], counts[order]
    right, size, places = 0.5 * tied, 1, np.arange(len(order))
    while size < len(order):
        block, upper = places // (2 * size), (places // size) % 2 == 1
        sort = np.lexsort((~upper, ranks, lists, block))
        weights, is_upper = counts[sort], upper[sort]
        lower = np.where(is_upper, 0.0, weights)
        sums = np.cumsum(lower) - lower
        start = starts_of(block[sort], lists[sort])
        lengths = np.diff(np.append(start, len(sort)))
        # Rows of the lower half with a lower label: of equal labels the upper half comes first.
        pairs = np.where(is_upper, weights, 0.0) * (sums - np.repeat(sums[start], lengths))
        right += _sums(lists[sort], pairs)
        size *= 2
    return right, total


def _pairs_below(lists: Array, groups: Array, ranks: Array, counts: Floats) -> Floats:
    """Returns the number of pairs with different ranks within the groups, of each list."""
    order = np.lexsort((ranks, groups))
    lists, groups, ranks, counts = lists[order], groups[order], ranks[order], counts[order]

    def squares(starts: Array) -> Floats:
        return _sums(lists[starts], np.square(np.add.reduceat(counts, starts)))

    return 0.5 * (squares(starts_of(groups)) - squares(starts_of(groups, ranks)))
