"""The scores of the model that is trained beside those that were served, of the same examples.

Both are compared on the original traffic: where training leaves non-clicks out, each one that is
left stands for several, and the odds of a new score are lowered as much. The difference of two
losses of one example varies far less than the losses themselves, so the comparison is paired.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Flags, Floats
from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.exact_sum import ExactSum
from rec_summary.metrics.hashing import Hashes, mix
from rec_summary.metrics.quality.click_quality import ClickQuality, QualityBatch
from rec_summary.metrics.quality.clicks import Clicks, clean, column
from rec_summary.metrics.quality.hash_sample import HashSample
from rec_summary.metrics.quality.log_loss import LEAST_SCORE, losses_of
from rec_summary.metrics.quality.score_cells import ONE, Keys, keys_of
from rec_summary.metrics.state import Batch, State, Stored, on_weight_grid

SKEW: Final = math.log(1.5)
"""The difference of two log-odds from which on a score is skewed: one has odds 1.5 times as high.

A new model differs from the one before by less than that for most examples. Scores that differ by
more often come from other inputs than the ones in the log.
"""

_PARTS: Final = 4  # buckets of a skew
_SPAN: Final = 40  # buckets on each side of 0; the last ones have all larger differences as well
_ALL: Final = 1 << 64  # a limit above every hash
_SHIFT: Final = np.uint64(31)  # of a key in a sample: six digits of a score are left
_SEALED: Final = 8  # full buckets of a window have the rows of a sample together,
_LEAST: Final = 256  # and at least as many each: the first one is alone

ShortKeys = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Comparison(Batch):
    """Examples with both scores; those of a soft label are there twice, as in `Clicks`.

    Attributes:
        valid: Whether there is a served score.
        labels: Whether there was a click.
        weights: The weights in the original traffic.
        scores: The new scores, as probabilities in the original traffic.
        served: The served scores; one half if there is none.
        losses: The log losses of the new scores.
        served_losses: The log losses of the served scores.
        differences: The weighted differences of the losses, new minus served. Of a soft label, the
            first half has that of the example, and the second one 0.
        wholes: The weights, of soft labels as the differences; None if no label is soft.
        keys: The order of the new scores, as in `Clicks`.
        hashes: A hash of each example; None if no sample is taken.
    """

    valid: Flags
    labels: Flags
    weights: Floats
    scores: Floats
    served: Floats
    losses: Floats
    served_losses: Floats
    differences: Floats
    wholes: Floats | None
    keys: Keys
    hashes: Hashes | None

    @classmethod
    def of(
        cls, clicks: Clicks, served: Array, negative_rate: float, numbers: Array | None = None
    ) -> Comparison:
        """Returns the comparison of examples.

        Args:
            clicks: The examples with their new scores.
            served: The probabilities that were served, one for each example of the batch, refused
                ones included. NaN or a number outside [0, 1] is no score.
            negative_rate: The share of non-clicks that training has, above 0 and at most 1.
            numbers: A number of each example of the batch, which no other one has; None if no
                sample is taken.

        Raises:
            TypeError: The served scores are not real numbers.
            ValueError: Their number differs from that of the examples.
        """
        served = column("served", served, clicks.size)
        kept = slice(None) if clicks.kept is None else clicks.kept
        served, hashes = served[kept], None if numbers is None else mix(numbers[kept])
        valid = (served >= 0) & (served <= 1)
        # As the new scores, so that equal ones have no difference.
        served = np.where(valid, served, 0.5).astype(np.float32).astype(np.float64)
        weights = np.ones(len(served)) if clicks.weights is None else clicks.weights
        scores = clicks.scores
        if negative_rate < 1:
            weights = on_weight_grid(np.where(clicks.labels, weights, weights / negative_rate))
            scores = negative_rate * scores / (negative_rate * scores + (1.0 - scores))
        new, old = (losses_of(each, clicks.labels) for each in (scores, served))
        differences, wholes = weights * (new - old), None
        if clicks.is_soft:  # the differences of both halves have opposite signs
            differences, wholes = _of_examples(differences), _of_examples(weights)
        columns = (valid, clicks.labels, weights, scores, served, new, old)
        return cls(*columns, differences, wholes, clicks.keys, hashes)


class LossChange(NamedTuple):
    """How far a log loss is from that of the served scores; NaN if that is not known.

    Attributes:
        change: The difference as a part of the loss of the served scores: that of the normalised
            entropies as well, as both have one entropy. Below 0, the new scores are better.
        error: Its standard error.
    """

    change: Any
    error: Any


def loss_change(
    losses: Any, served: Any, weight: Any, squares: Any, differences: Any, difference_squares: Any
) -> LossChange:
    """Returns the relative change of a log loss, from sums over the examples.

    The error is that of the mean of paired differences, with weights as they are. It takes the
    loss of the served scores as known: its own error only matters times the change.

    Args:
        losses: The sums of the weighted losses of the new scores, each argument (...).
        served: Those of the served scores.
        weight: The sums of weights v.
        squares: Those of v².
        differences: Those of v²d, where d is the loss of the new score minus that of the served.
        difference_squares: Those of v²d².
    """
    with np.errstate(all="ignore"):
        mean = (losses - served) / weight
        variance = difference_squares - 2 * mean * differences + mean * mean * squares
        known = (served > 0) & (weight * weight >= 2 * squares)  # two examples, in effect
        error = np.sqrt(np.maximum(variance, 0.0)) / served
        change = np.where(served > 0, (losses - served) / served, np.nan)
        return LossChange(change, np.where(known, error, np.nan))


@dataclass(frozen=True)
class ScorePairs(Batch):
    """The two scores of examples.

    Attributes:
        hashes: A hash of each example.
        scores: The order of the new scores: the upper 32 bits of keys of `score_cells`.
        served: That of the served scores.
        weights: The weights.
    """

    hashes: Hashes
    scores: ShortKeys
    served: ShortKeys
    weights: Floats


class PairSample(HashSample):
    """The two scores of a sample of examples, those with the lowest hashes; a mergeable state.

    Attributes:
        rows: The maximum number of examples, of 24 bytes each; twice that between updates. An
            eighth, but at least 256, of a sample that gets no more examples.
    """

    _settings = ("rows",)

    def __init__(self, rows: int = 2048) -> None:
        """Starts empty.

        Args:
            rows: As the attribute.

        Raises:
            TypeError, ValueError: `rows` is anything else.
        """
        self.rows = check_int("rows", rows)
        none: ShortKeys = np.zeros(0, np.uint32)
        self._begin(self.rows, _ALL, ScorePairs(np.zeros(0, np.uint64), none, none, np.zeros(0)))

    def pairs(self) -> ScorePairs:
        """Returns the examples of the sample."""
        self._compact()
        pairs: ScorePairs = self._sample
        return pairs

    def seal(self) -> None:
        """Drops most examples: those of all buckets of a window are as many as `rows`."""
        self._compact(max(self.rows // _SEALED, _LEAST))

    def arrays(self) -> dict[str, Array]:
        """Returns the setting, ``limit`` (0 if it is above all), and the examples."""
        pairs = vars(self.pairs().copy())
        return {**super().arrays(), "limit": np.array(self._limit % _ALL, np.uint64), **pairs}

    @classmethod
    def _restored(cls, arrays: Stored) -> PairSample:
        state = super()._restored(arrays)
        state._limit = int(arrays.take("limit", np.uint64)) or _ALL
        hashes = arrays.take("hashes", np.uint64, (None,))
        if state._below(hashes) < len(hashes) or (hashes[1:] < hashes[:-1]).any():
            raise ValueError(three_part("hashes", hashes, "rising ones below the limit"))
        new, old = (arrays.take(name, np.uint32, hashes.shape) for name in ("scores", "served"))
        weights = arrays.sums("weights", np.float64, hashes.shape)
        state._pending = [ScorePairs(hashes, new, old, weights)]
        return state

    def _compact(self, most: int | None = None) -> None:
        most = self.rows if most is None else min(most, self.rows)
        if not self._pending and self._sample.size <= most:
            return
        rows = self._taken()
        if rows.size > most:
            self._limit = min(int(np.partition(rows.hashes, most)[most]), self._limit)
        rows = rows.cut(np.flatnonzero(self.takes(rows.hashes)))
        self._sample = rows.cut(np.argsort(rows.hashes, kind="stable"))


class ServedQuality(State):
    """The quality of the new scores and of those that were served; a mergeable state.

    Attributes:
        negative_rate: The share of non-clicks that training has, above 0 and at most 1.
        odds_differences: The weights of examples by the difference of their log-odds, new minus
            served, in buckets as of `odds_edges`.
        compared: The quality of the new scores of the examples that have both.
        served: The quality of the served scores of the same examples.
        clicks: A sample of the clicks.
        others: A sample of the non-clicks.
    """

    _settings = ("negative_rate",)
    _sums = ("odds_differences",)
    _parts = (
        *("compared", "served", "clicks", "others"),
        *("_missing", "_differences", "_difference_squares", "_halves"),
    )

    def __init__(self, negative_rate: float = 1.0, bins: int = 1024, rows: int = 2048) -> None:
        """Starts empty.

        Args:
            negative_rate: As the attribute.
            bins: As of `ClickQuality`.
            rows: As of `PairSample`: of clicks, and as many non-clicks.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        # Their scores are those of the original traffic.
        self.compared, self.served = ClickQuality(bins), ClickQuality(bins)
        if not 0 < negative_rate <= 1:
            raise ValueError(three_part("negative_rate", negative_rate, "a number in (0, 1]"))
        self.negative_rate = float(negative_rate)
        self.odds_differences = np.zeros(2 * _SPAN)
        self._missing = ExactSum()  # the weights of examples without a served score
        self._differences, self._difference_squares = ExactSum(), ExactSum()
        self._halves = ExactSum()  # twice the products of the weights of both halves of soft labels
        self.clicks, self.others = PairSample(rows), PairSample(rows)

    def update(
        self, scores: Any, labels: Any, weights: Any, odds: Any, served: Any, numbers: Any
    ) -> None:
        """Counts a batch; `clicks.clean` describes the first arguments, `Comparison.of` the others.

        Raises:
            TypeError: An argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        clicks = clean(scores, labels, weights, odds)
        self.count(Comparison.of(clicks, served, self.negative_rate, numbers))

    def count(self, batch: Comparison) -> None:
        """Counts examples, which have hashes."""
        if not batch.valid.all():
            self._missing.add(batch.weights[~batch.valid])
            batch = batch.cut(np.flatnonzero(batch.valid))
        if not batch.size:
            return
        _, labels, weights, scores, served, losses, served_losses, *rest = batch
        differences, wholes, keys, hashes = rest
        orders, heavy = (keys, keys_of(served)), None if (weights == 1).all() else weights
        for quality, (score, loss), order in zip(
            (self.compared, self.served),
            ((scores, losses), (served, served_losses)),
            orders,
            strict=True,
        ):
            terms, marks = (loss * weights, score * weights), order << ONE | labels
            (part,) = QualityBatch(*terms, labels, marks, heavy).split([0])
            quality.count(part)
        if wholes is not None:
            self._halves.add(wholes * wholes - weights * weights)
        self._differences.add((weights if wholes is None else wholes) * differences)
        self._difference_squares.add(differences * differences)
        new, old = (np.clip(each, LEAST_SCORE, 1.0 - LEAST_SCORE) for each in (scores, served))
        odds = np.log(new * (1.0 - old) / (old * (1.0 - new)))
        places = np.floor(odds * (_PARTS / SKEW)).astype(np.intp) + _SPAN
        places = np.clip(places, 0, 2 * _SPAN - 1)
        self.odds_differences += np.bincount(places, weights, 2 * _SPAN)
        for sample, chosen in ((self.clicks, labels), (self.others, ~labels)):
            if heavy is not None:
                chosen = chosen & (weights > 0)  # a half without a weight says nothing
            at = np.flatnonzero(chosen & sample.takes(hashes))
            upper, upper_served = ((each[at] >> _SHIFT).astype(np.uint32) for each in orders)
            sample.count(ScorePairs(hashes[at], upper, upper_served, weights[at]))

    def loss_change(self) -> LossChange:
        """Returns the relative change of the log loss, and of the normalised entropy."""
        losses = (quality.loss.log_loss() * quality.loss.weight for quality in self._qualities)
        loss, differences = self.served.loss, (self._differences, self._difference_squares)
        of_differences = (each.value() for each in differences)
        squares = sum(loss.squares) + self._halves.value()
        sums = np.array([*losses, loss.weight, squares, *of_differences])
        return LossChange(*map(float, loss_change(*sums)))

    def auc_gain(self) -> tuple[float, float]:
        """Returns the AUC of the new scores minus that of the served ones, and its standard error.

        The error is that of DeLong, DeLong and Clarke-Pearson 1988, for two scores of the same
        examples. Its variances are those of the samples of clicks and of non-clicks; they are
        divided by the numbers of all clicks and non-clicks. The halves of a soft label are not
        independent, which their covariance takes in. NaN for fewer than two of either.
        """
        new, old = (quality.order.auc().value for quality in self._qualities)
        clicks, others = self.clicks.pairs(), self.others.pairs()
        numbers = self.served.effective_numbers()
        if min(numbers) < 2 or not clicks.size or not others.size:
            return new - old, math.nan
        variance, deviations = 0.0, []
        for own, opposite, number in zip((others, clicks), (clicks, others), numbers, strict=True):
            below, below_served = (
                _shares_below(getattr(own, name), getattr(opposite, name), opposite.weights)
                for name in ("scores", "served")
            )
            gaps, squares = below - below_served, own.weights * own.weights
            deviations.append(gaps - np.average(gaps, weights=own.weights))
            variance += float(squares @ deviations[-1] ** 2 / squares.sum()) / (number - 1)
        # Both halves have one hash. A non-click gains by the clicks that are above it, not below.
        _, *places = np.intersect1d(others.hashes, clicks.hashes, return_indices=True)
        if (halves := self._halves.value()) and len(places[0]):
            weights, moved = (
                [each[at] for each, at in zip(columns, places, strict=True)]
                for columns in ((others.weights, clicks.weights), deviations)
            )
            mean = float(np.average(np.multiply(*moved), weights=np.multiply(*weights)))
            loss = self.served.loss
            variance -= mean * halves / (loss.clicks * (loss.weight - loss.clicks))
        return new - old, math.sqrt(max(variance, 0.0))

    def score_difference(self) -> float:
        """Returns the mean of the new scores minus that of the served ones."""
        new, old = (quality.loss.mean_score for quality in self._qualities)
        return new - old

    def skewed_share(self) -> float:
        """Returns the share of examples whose log-odds differ by more than `SKEW`."""
        weight = self.odds_differences.sum()
        near = self.odds_differences[_SPAN - _PARTS : _SPAN + _PARTS].sum()
        return float(1.0 - near / weight) if weight else math.nan

    def missing_share(self) -> float:
        """Returns the share of examples without a served score; NaN without examples."""
        missing = self._missing.value()
        weight = missing + self.served.loss.weight
        return missing / weight if weight else math.nan

    @property
    def _qualities(self) -> tuple[ClickQuality, ClickQuality]:
        return self.compared, self.served


def odds_edges() -> Floats:
    """Returns the edges of the buckets of differences of log-odds, (buckets + 1,)."""
    return np.arange(-_SPAN, _SPAN + 1) * (SKEW / _PARTS)


def _of_examples(halves: Floats) -> Floats:
    """Returns the sums of both halves of soft labels, (2 * examples,), as of `Comparison`."""
    wholes, size = np.zeros_like(halves), len(halves) // 2
    wholes[:size] = halves[:size] + halves[size:]
    return wholes


def _shares_below(scores: ShortKeys, others: ShortKeys, weights: Floats) -> Floats:
    """Returns the share of others, by weight, with a lower score; equal ones count half."""
    order = np.argsort(others)
    sums = np.append(0.0, np.cumsum(weights[order]))
    ends = (np.searchsorted(others[order], scores, side) for side in ("left", "right"))
    shares: Floats = sum(sums[places] for places in ends) / (2 * sums[-1])
    return shares
