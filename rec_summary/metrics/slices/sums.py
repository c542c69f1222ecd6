"""Sums over the examples of a task by the value of a column, from one report to the next.

They add up: over reports, over ranks, and over values. So any two intervals of a stream can be
compared later. Scores are counted in fixed cells, unlike those of `ScoreOrder`, which adapt to the
scores and cannot be subtracted.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from rec_summary.arrays import Array, Floats, Integers
from rec_summary.checks import check_int
from rec_summary.metrics.quality.clicks import Clicks
from rec_summary.metrics.quality.score_cells import Places
from rec_summary.metrics.quality.served import Comparison, LossChange, loss_change
from rec_summary.metrics.slices.states import OTHER, SlicedBatch, Slicing, label
from rec_summary.metrics.state import State, Stored, to_array

FIELDS: Final = (
    "examples",
    "weight",
    "clicks",
    "predicted",
    "loss",
    "weight_squares",
    "click_squares",
    "squared_loss_weights",
    "loss_squares",
    "click_losses",
    "error_squares",
    "served_examples",
    "served_weight",
    "served_clicks",
    "compared_loss",
    "served_loss",
    "served_weight_squares",
    "loss_differences",
    "loss_difference_squares",
    "compared_predicted",
    "served_predicted",
    "score_difference_squares",
)
"""The sums, of each example with its weight w, label y, score p and log loss l: 1, w, wy, wp, wl,
w², w²y, w²l, w²l², w²ly, w²(p - y)².

The others are of examples with a served score, and 0 for a task without: 1, v, vy, vl, vm, v², v²d,
v²d², vp, vq, v²(p - q)². There, v and p are those of the original traffic (`served.Comparison`), q
is the served score and m its log loss, and d is l - m. Both halves of a soft label are one example.
"""

(
    EXAMPLES,
    WEIGHT,
    CLICKS,
    PREDICTED,
    LOSS,
    WEIGHT_SQUARES,
    CLICK_SQUARES,
    LOSS_WEIGHTS,
    LOSS_SQUARES,
    CLICK_LOSSES,
    ERROR_SQUARES,
    SERVED_EXAMPLES,
    SERVED_WEIGHT,
    SERVED_CLICKS,
    COMPARED_LOSS,
    SERVED_LOSS,
    SERVED_WEIGHT_SQUARES,
    LOSS_DIFFERENCES,
    LOSS_DIFFERENCE_SQUARES,
    COMPARED_PREDICTED,
    SERVED_PREDICTED,
    SCORE_DIFFERENCE_SQUARES,
) = range(len(FIELDS))

_OF_ALL: Final = [EXAMPLES, WEIGHT, WEIGHT_SQUARES]
_OF_CLICKS: Final = [CLICKS, CLICK_SQUARES]

_SHIFT: Final = np.uint64(49)  # of a key of `score_cells`: eight cells for each factor of two
_LOWEST: Final = (1023 - 30) * 8  # the cell of scores below 2**-29
_HIGHEST: Final = 2 * (1022 * 8) - _LOWEST
CELLS: Final = _HIGHEST - _LOWEST + 1
"""The number of cells of the score; those above one half mirror those below it."""

_MOST_TIES: Final = 0.25  # pairs of a click and a non-click in one cell: half are in error, at most

_STAY: Final = 2.0  # times as many examples has a value that takes the place of another one
_FADE: Final = 0.9  # of the examples of earlier reports, with each report
_WAITING: Final = 3  # times `most` more are counted, until it is known which are most frequent
_MOST_WAITING: Final = 512


class ColumnSums(NamedTuple):
    """The sums of an interval.

    Attributes:
        values: The values of the column; `other` for all that are not counted one by one.
        sums: The sums, (values, len(FIELDS)).
        orders: The weights of non-clicks and of clicks by cell of the score, (values, 2, CELLS),
            since the last interval that has them; None if this one has none.
    """

    values: list[str]
    sums: Floats
    orders: Floats | None


@dataclass(frozen=True)
class Moments:
    """What examples add to the sums.

    Attributes:
        examples: How many each one is, (examples,): a soft label makes two halves.
        weights: Their weights.
        clicks: The weights of clicks, and 0 for non-clicks.
        scores: The weighted scores.
        losses: The weighted log losses.
        marks: The cell of each score, beyond those of non-clicks if there was a click.
        is_weighted: Whether a weight is not 1.
        compared: The examples with their served scores; None for a task without.
    """

    examples: Floats
    weights: Floats
    clicks: Floats
    scores: Floats
    losses: Floats
    marks: Integers
    is_weighted: bool
    compared: Comparison | None = None

    @classmethod
    def of(
        cls, clicks: Clicks, losses: Floats, scores: Floats, compared: Comparison | None = None
    ) -> Moments:
        """Returns what examples add.

        Args:
            clicks: The examples.
            losses: Their weighted losses, as of `LogLoss.terms`.
            scores: Their weighted scores.
            compared: The examples with their served scores.
        """
        marks = (clicks.keys >> _SHIFT).view(np.int64)
        np.clip(marks, _LOWEST, _HIGHEST, out=marks)
        marks += np.where(clicks.labels, CELLS - _LOWEST, -_LOWEST)
        count = len(clicks.labels)
        ones = np.broadcast_to(1.0, count)
        weights: Floats = ones if clicks.weights is None else clicks.weights
        examples = ones / 2 if clicks.is_soft else ones
        of_clicks = weights * clicks.labels.astype(np.float64)
        is_weighted = clicks.weights is not None
        return cls(examples, weights, of_clicks, scores, losses, marks, is_weighted, compared)

    @functools.cached_property
    def pairs(self) -> dict[int, tuple[Floats, Array | None]]:
        """Two columns by the place in `FIELDS` of their product; one if there is None.

        If no example is weighted, those are not there that are counts.
        """
        errors, heavy = self.scores - self.clicks, self.weights if self.is_weighted else None
        pairs = (
            (self.examples, None),
            (self.weights, None),
            (self.clicks, None),
            (self.scores, None),
            (self.losses, None),
            (self.weights, heavy),
            (self.clicks, heavy),
            (self.losses, heavy),
            (self.losses, self.losses),
            (self.losses, self.clicks),
            (errors, errors),
        )
        counts = [] if self.is_weighted else [*_OF_ALL, *_OF_CLICKS]
        own = {number: pair for number, pair in enumerate(pairs) if number not in counts}
        return own | self._pairs_of_served

    @property
    def _pairs_of_served(self) -> dict[int, tuple[Floats, Array | None]]:
        if self.compared is None:
            return {}
        own = self.compared
        weights = own.weights * own.valid
        wholes = weights if own.wholes is None else own.wholes * own.valid
        differences = own.differences * own.valid
        apart = wholes * (own.scores - own.served)
        pairs: tuple[tuple[Floats, Array | None], ...] = (
            (self.examples, own.valid),
            (weights, None),
            (weights, own.labels),
            (weights, own.losses),
            (weights, own.served_losses),
            (wholes, wholes),
            (wholes, differences),
            (differences, differences),
            (weights, own.scores),
            (weights, own.served),
            (apart, apart),
        )
        return dict(enumerate(pairs, SERVED_EXAMPLES))

    @functools.cached_property
    def fields(self) -> dict[int, Floats]:
        """The products of `pairs`, each (examples,)."""
        return {
            number: one if other is None else one * other
            for number, (one, other) in self.pairs.items()
        }


class Sums(Protocol):
    """Sums by their numbers, such as an array (len(FIELDS), ...)."""

    def __getitem__(self, number: int, /) -> Any:
        """Returns one sum."""


def entropy(rate: Floats) -> Floats:
    """Returns the entropy of click rates in nats; 0 for rates of 0 and 1."""
    with np.errstate(all="ignore"):
        entropies = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
    return np.where(np.isnan(entropies), 0.0, entropies)


def calibration_of(sums: Sums) -> Floats:
    """Returns predicted clicks divided by clicks, (...); NaN without clicks."""
    return _ratio(sums[PREDICTED], sums[CLICKS])


def normalised_entropy_of(sums: Sums) -> Floats:
    """Returns the log loss divided by the entropy of the click rate; NaN if all labels are one."""
    loss, rate = (_ratio(sums[number], sums[WEIGHT]) for number in (LOSS, CLICKS))
    return _ratio(loss, entropy(rate))


def served_change_of(sums: Sums) -> LossChange:
    """Returns the relative change of the log loss against that of the served scores."""
    numbers = (COMPARED_LOSS, SERVED_LOSS, SERVED_WEIGHT, SERVED_WEIGHT_SQUARES)
    return loss_change(
        *(sums[number] for number in (*numbers, LOSS_DIFFERENCES, LOSS_DIFFERENCE_SQUARES))
    )


def served_calibrations_of(sums: Sums) -> tuple[Floats, Floats]:
    """Returns the calibrations of the served and of the new scores, of the same examples."""
    served, compared = (
        _ratio(sums[number], sums[SERVED_CLICKS])
        for number in (SERVED_PREDICTED, COMPARED_PREDICTED)
    )
    return served, compared


def _ratio(numbers: Any, by: Any) -> Floats:
    with np.errstate(all="ignore"):
        return np.where(by > 0, np.divide(numbers, by), np.nan)


class Areas(NamedTuple):
    """AUCs, all of shape (values,) or more.

    Attributes:
        areas: The AUCs. NaN without a click and a non-click, and where the scores are too close to
            each other for the cells: if a click and a non-click often are in one.
        errors: Their standard errors.
        numbers: How many non-clicks, and clicks, of equal weight they are of (Kish 1965), (.., 2).
    """

    areas: Floats
    errors: Floats
    numbers: Floats


def areas(orders: Floats, sums: Sums) -> Areas:
    """Returns the AUCs of values, as `delong`.

    Args:
        orders: The weights by cell of the score, (values, 2, CELLS).
        sums: The sums of the same examples, each (values,).
    """
    weights, squares = (
        np.stack([sums[of_all] - sums[of_clicks], sums[of_clicks]], axis=-1)
        for of_all, of_clicks in ((WEIGHT, CLICKS), (WEIGHT_SQUARES, CLICK_SQUARES))
    )
    totals = orders.sum(axis=2)
    numbers = totals * _ratio(weights, squares)
    area, error = delong(orders, numbers)
    known = _ratio(orders.prod(axis=1).sum(axis=1), totals.prod(axis=1)) <= _MOST_TIES
    return Areas(np.where(known, area, np.nan), np.where(known, error, np.nan), numbers)


def delong(orders: Floats, numbers: Floats) -> tuple[Floats, Floats]:
    """Returns AUCs, and their standard errors; scores of a cell count as equal.

    From the variances of the share of non-clicks below each click, and of clicks above each
    non-click (DeLong, DeLong and Clarke-Pearson 1988). An error is NaN for fewer than two of
    either.

    Args:
        orders: The weights of non-clicks and of clicks by cell of the score, (values, 2, cells).
        numbers: How many examples of equal weight they are worth, (values, 2).
    """
    others, clicks = orders[:, 0], orders[:, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        below, under = (
            (part.cumsum(axis=1) - 0.5 * part) / part.sum(axis=1, keepdims=True)
            for part in (others, clicks)
        )
        area = (clicks * below).sum(axis=1) / clicks.sum(axis=1)
        spreads = [
            (part * (share - area[:, None]) ** 2).sum(axis=1) / part.sum(axis=1)
            for part, share in ((others, 1.0 - under), (clicks, below))
        ]
        variance = (np.stack(spreads, axis=1) / (numbers - 1)).sum(axis=1)
    error = np.sqrt(np.where((numbers >= 2).all(axis=1), variance, np.nan))
    return area, error


class ValueSums(State):
    """The sums of a column's values since the last report.

    A value that was recorded keeps its place until another one has twice as many examples. The
    values are stored for a restart, and the sums are not: they begin again with each report.

    Attributes:
        most: The number of values that are recorded one by one.
    """

    _settings = ("most",)

    def __init__(self, most: int = 64) -> None:
        """Starts empty.

        Args:
            most: As the attribute.

        Raises:
            TypeError, ValueError: `most` is anything else.
        """
        self.most = check_int("most", most, 1)
        self._recent: dict[str, float] = {}  # examples of the values that were recorded
        self._rows: dict[str, int] = {}
        self._totals: Floats = np.zeros(0)
        self._orders: Floats = np.zeros(0)
        self._begin({}, None)

    def count(self, batch: Moments, slicing: Slicing | None = None) -> None:
        """Counts examples. How the stream is cut into batches changes nothing but last bits.

        Args:
            batch: The examples.
            slicing: Their values; None for a single one, which is empty.
        """
        rows, at = self._rows_of(slicing, len(batch.marks))
        marks = batch.marks[at] + 2 * CELLS * rows
        weights = batch.weights[at] if batch.is_weighted else None
        orders = np.bincount(marks, weights, self._orders.size).reshape(self._orders.shape)
        self._orders += orders
        if slicing is None:
            # `einsum` has no threads, which BLAS has: they would take time from the training.
            for field, (one, other) in batch.pairs.items():
                total = one.sum() if other is None else np.einsum("i,i->", one, other)
                self._totals[1, field] += total
        else:
            for field, numbers in batch.fields.items():
                self._totals[:, field] += np.bincount(rows, numbers[at], len(self._totals))
        if weights is None:
            counts = orders.sum(axis=2)
            self._totals[:, _OF_ALL] += counts.sum(axis=1, keepdims=True)
            self._totals[:, _OF_CLICKS] += counts[:, 1:]

    def end_interval(self, *, detailed: bool) -> ColumnSums:
        """Returns the sums, and begins again; the orders, if they are returned, as well."""
        names, examples = list(self._rows), self._totals[1:, 0]
        recent = {
            name: _FADE * self._recent.get(name, 0.0) + count
            for name, count in zip(names, examples.tolist(), strict=True)
        }
        rank = {
            name: -count * (_STAY if name in self._recent else 1.0)
            for name, count in recent.items()
        }
        kept = sorted(names, key=lambda name: (rank[name], name))[: self.most]
        rows = [self._rows[name] for name in kept]
        left = np.ones(len(self._totals), np.bool_)
        left[rows] = False
        sums, orders = (
            np.concatenate([part[rows], part[left].sum(axis=0, keepdims=True)])
            for part in (self._totals, self._orders)
        )
        self._recent = {name: recent[name] for name in kept}
        held = np.concatenate([orders[-1:], orders[:-1]])
        self._begin({name: row for row, name in enumerate(kept, 1)}, None if detailed else held)
        some = sums[:, 0] > 0
        if detailed:
            some |= orders.any(axis=(1, 2))
        labels = [*map(label, kept), OTHER]
        values = [name for name, is_there in zip(labels, some, strict=True) if is_there]
        return ColumnSums(values, sums[some], orders[some] if detailed else None)

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, and the values that were recorded."""
        return {"most": to_array(self.most), "names": np.array(sorted(self._recent), np.str_)}

    @classmethod
    def _restored(cls, arrays: Stored) -> ValueSums:
        new = cls(arrays.integer("most", 1))
        new._recent = dict.fromkeys(arrays.take("names", "U", (None,)).tolist(), 0.0)
        new._begin({name: row for row, name in enumerate(new._recent, 1)}, None)
        return new

    def _begin(self, rows: dict[str, int], orders: Floats | None) -> None:
        """Begins an interval; the first row has all values without one."""
        self._rows = rows
        self._totals = np.zeros((len(rows) + 1, len(FIELDS)))
        self._orders = np.zeros((len(rows) + 1, 2, CELLS)) if orders is None else orders

    def _rows_of(self, slicing: Slicing | None, size: int) -> tuple[Places, Any]:
        """Returns the rows of examples, and the places of the examples."""
        if slicing is None:
            self._add_rows([""])
            return np.broadcast_to(np.intp(1), size), slice(None)
        codes, names = slicing.codes, SlicedBatch(slicing, None).names
        new = [code for code, name in names.items() if name not in self._rows]
        if new:
            self._add_rows([names[code] for code in _by_appearance(codes, new)])
        row_of = np.zeros(len(slicing.names) + 1, np.intp)
        row_of[-1] = -1  # of the code -1, which is no value
        for code, name in names.items():
            row_of[code] = self._rows.get(name, 0)
        rows = row_of[codes]
        if rows.ndim == 1 and (not len(rows) or rows.min() >= 0):
            return rows, slice(None)
        examples = np.arange(size).reshape(-1, *(1,) * (rows.ndim - 1))
        # An example with a value twice counts once.
        marks = np.unique((rows * size + examples)[rows >= 0])
        return np.divmod(marks, max(size, 1))

    def _add_rows(self, names: Sequence[str]) -> None:
        room = self.most + min(_WAITING * self.most, _MOST_WAITING) - len(self._rows)
        new = dict.fromkeys(name for name in names if name not in self._rows)
        added = list(new)[: max(room, 0)]
        if not added:
            return
        self._rows.update({name: row for row, name in enumerate(added, len(self._totals))})
        more = len(added)
        self._totals = np.pad(self._totals, ((0, more), (0, 0)))
        self._orders = np.pad(self._orders, ((0, more), (0, 0), (0, 0)))


def _by_appearance(codes: Places, chosen: Sequence[int]) -> list[int]:
    """Returns codes in the order in which they first come."""
    flat = codes.reshape(-1)
    found, first = np.unique(flat[np.isin(flat, chosen)], return_index=True)
    in_order: list[int] = found[np.argsort(first)].tolist()
    return in_order
