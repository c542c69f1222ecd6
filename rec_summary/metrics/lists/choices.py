"""The place of the true one among several candidates: classes, or the items of a batch.

A network gives a score to each candidate of an example, and one of them is the true one. Its rank
decides accuracy, recall, NDCG and MRR at k. States count ranks, so merging is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rec_summary.arrays import Floats, Integers
from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import ExactSum
from rec_summary.metrics.quality.clicks import column, refusals
from rec_summary.metrics.quality.log_loss import LEAST_SCORE
from rec_summary.metrics.state import MOST_WEIGHT, Batch, Scalable, Stored, on_weight_grid

MOST_K = 1000
"""The highest rank that is counted; those beyond it are counted together."""

MOST_PLACES = 64
"""How many numbers k of candidates, or of examples at the top of a list, metrics may be of."""

REASONS = (
    *("no such candidate", "score is not finite", "probabilities do not add up to 1"),
    "weight not usable",
)
"""The reasons to refuse an example; the first one that applies is counted."""

_TOLERANCE = 0.02  # of the sum of probabilities, which float16 and bfloat16 round


@dataclass(frozen=True)
class ChoiceBatch(Batch):
    """A batch for `ChoiceQuality.count`.

    Attributes:
        ranks: The rank of the true candidate, from 1; up to ``MOST_K + 1``; 0 if it is refused.
        losses: The log loss; 0 if the scores are no probabilities.
        candidates: The number of candidates.
        weights: Multiples of 2**-20 of at least 0; 0 of a refused example.
    """

    ranks: Integers
    losses: Floats
    candidates: Integers
    weights: Floats


class TopChoices(NamedTuple):
    """Means over examples; NaN before the first one.

    Attributes:
        recall: The share of examples whose true candidate is among the first k: recall, and with
            one true candidate also the hit rate; for k = 1 the accuracy.
        ndcg: One divided by log2 of the rank plus 1; 0 beyond k.
        mrr: One divided by the rank; 0 beyond k.
    """

    recall: float
    ndcg: float
    mrr: float


class ChoiceQuality(Scalable):
    """The ranks of true candidates; a mergeable state.

    Attributes:
        is_classes: Whether scores are probabilities that add up to 1, of which there is a log loss.
        at: The numbers k of candidates at the top that metrics are of.
        refused: The number of refused examples.
        ranks: The weight of examples by rank, shape ``(MOST_K + 2,)``; the last one is beyond.
    """

    _settings = ("is_classes", "at")
    _sums = ("refused", "ranks")
    _parts = ("_losses", "_candidates")

    def __init__(self, is_classes: int = 1, at: Sequence[int] = ()) -> None:
        """Starts empty.

        Args:
            is_classes: As the attribute, 0 or 1.
            at: As the attribute; up to `MOST_PLACES`, each from 1 to `MOST_K`.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        self.is_classes = check_int("is_classes", is_classes, 0, 1)
        self.at = check_places(at)
        self.refused = 0
        self.ranks = np.zeros(MOST_K + 2)
        self._losses, self._candidates = ExactSum(), ExactSum()

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; `prepare` describes the arguments."""
        self.count(self.prepare(scores, labels, weights)[0])

    def prepare(
        self, scores: Any, labels: Any, weights: Any = None
    ) -> tuple[ChoiceBatch, dict[str, int]]:
        """Returns a batch for `count`, and the number of refused examples by reason.

        Args:
            scores: Real numbers, (examples, candidates). NaN is no candidate, except of classes.
            labels: The number of the true candidate of each example, from 0.
            weights: 0 to 2**20; all 1 if None.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ, or `scores` is not a matrix.
        """
        scores = np.asarray(scores)
        if scores.ndim != 2 or not scores.shape[1]:
            expected = "a matrix: a row for each example, a column for each candidate"
            raise ValueError(three_part("scores", f"shape {scores.shape}", expected))
        size, width = scores.shape
        column("scores", scores)
        labels = column("labels", labels, size)
        weights = np.ones(size) if weights is None else column("weights", weights, size)
        weights = weights.astype(np.float64)
        is_candidate = (labels >= 0) & (labels < width) & (labels == np.floor(labels))
        true = scores[np.arange(size), np.where(is_candidate, labels, 0).astype(np.intp)]
        with np.errstate(invalid="ignore", over="ignore"):
            # An equal score counts as a better one, so that equal scores for all win nothing.
            ranks = np.count_nonzero(scores >= true[:, None], axis=1)
            candidates = width - np.count_nonzero(np.isnan(scores), axis=1)
            is_finite = np.isfinite(true)
            is_distribution = np.ones(size, np.bool_)
            losses = np.zeros(size)
            if self.is_classes:
                sums = scores.sum(axis=1, dtype=np.float64)
                is_finite &= np.isfinite(sums)
                is_distribution = (abs(sums - 1.0) <= _TOLERANCE) & (scores >= 0).all(axis=1)
                losses = -np.log(np.clip(true.astype(np.float64), LEAST_SCORE, 1.0))
        is_weight = (weights >= 0) & (weights <= MOST_WEIGHT)
        refused = refusals(is_candidate, is_finite, is_distribution, is_weight).tolist()
        usable = is_candidate & is_finite & is_distribution & is_weight
        ranks = np.where(usable, np.minimum(ranks, MOST_K + 1), 0)
        losses = np.where(usable, losses, 0.0)
        weights = on_weight_grid(np.where(usable, weights, 0.0))
        batch = ChoiceBatch(ranks, losses, candidates, weights)
        return batch, dict(zip(REASONS, refused, strict=True))

    def count(self, batch: ChoiceBatch) -> None:
        """Counts a prepared batch."""
        self.refused += batch.size - np.count_nonzero(batch.ranks)
        self.ranks += np.bincount(batch.ranks, batch.weights, MOST_K + 2)
        self._candidates.add(batch.candidates * batch.weights)
        if self.is_classes:
            self._losses.add(batch.losses * batch.weights)

    @property
    def weight(self) -> float:
        """The weight of the examples counted."""
        return float(self.ranks.sum())

    def top(self, k: int) -> TopChoices:
        """Returns the metrics of the first `k` candidates, 1 to `MOST_K`.

        Raises:
            TypeError, ValueError: `k` is anything else.
        """
        counts = self.ranks[1 : 1 + check_int("k", k, 1, MOST_K)]
        places, weight = np.arange(1.0, k + 1.0), self.weight
        if not weight:
            return TopChoices(math.nan, math.nan, math.nan)
        gains = (np.ones(k), 1.0 / np.log2(places + 1.0), 1.0 / places)
        return TopChoices(*(float(counts @ gain) / weight for gain in gains))

    def log_loss(self) -> float:
        """Returns the mean log loss; NaN before the first example, and if there is none."""
        return self._losses.value() / self.weight if self.weight and self.is_classes else math.nan

    def candidates(self) -> float:
        """Returns the mean number of candidates; NaN before the first example."""
        return self._candidates.value() / self.weight if self.weight else math.nan

    def scale(self, factor: float) -> None:
        """Multiplies the weight of every example by `factor`, rounded so that sums stay exact."""
        self.ranks = on_weight_grid(self.ranks * factor)
        super().scale(factor)

    @classmethod
    def _restored(cls, arrays: Stored) -> ChoiceQuality:
        state = super()._restored(arrays)
        if state.ranks[0]:
            raise ValueError(three_part("ranks", state.ranks[0], "nothing at rank 0"))
        return state


def check_places(at: Sequence[int]) -> Integers:
    """Returns the numbers k that metrics at k are of.

    Raises:
        TypeError: One is not an int.
        ValueError: They are more than `MOST_PLACES`, or one is not from 1 to `MOST_K`.
    """
    if len(at) > MOST_PLACES:
        raise ValueError(three_part("at", f"{len(at)} numbers", f"at most {MOST_PLACES}"))
    return np.array([check_int("at", k, 1, MOST_K) for k in at], np.int64)
