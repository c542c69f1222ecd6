"""What sums of slices say of two intervals: calibration, quality of the model, traffic, rate.

A change is looked for where it is for the worse: the model learns in the rest of the run, and
recovers from what it was fed. Changes of traffic and of the click rate count in both directions.
Standard errors have a floor beside that of sampling, since no model is without any bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from rec_summary.answers.scan import ALL, LEAST_PAST, Change, Compare
from rec_summary.arrays import Flags, Floats, Integers
from rec_summary.metrics.slices.sums import (
    CLICK_LOSSES,
    CLICK_SQUARES,
    CLICKS,
    ERROR_SQUARES,
    EXAMPLES,
    LOSS,
    LOSS_SQUARES,
    LOSS_WEIGHTS,
    PREDICTED,
    WEIGHT,
    WEIGHT_SQUARES,
    Sums,
    entropy,
)
from rec_summary.series.runs.slices import SliceHistory

_CALIBRATION_FLOOR: Final = 0.01  # of the click rate
_LEAST_CALIBRATION: Final = 0.05  # the least change that counts, as a logarithm
_QUALITY_FLOOR: Final = 0.003  # of the entropy of the click rate
_TRAFFIC_FLOOR: Final = 0.03  # of the share
_LEAST_SHARE: Final = 0.002
_RATE_FLOOR: Final = 0.03  # of the click rate
_CLICKS_BEFORE: Final = 20  # clicks, and non-clicks, that a past needs
_CLICKS_AFTER: Final = 5  # that are expected in what is compared


Statistic = Callable[[Sums, Sums, Sums, Sums], Change]
"""Compares sums before and after, of each value and of all together."""


def click_rate_of(sums: Sums) -> Floats:
    """Returns the click rates, (...), of sums (11, ...)."""
    with np.errstate(all="ignore"):
        rate: Floats = sums[CLICKS] / sums[WEIGHT]
    return rate


def whole_of_values(totals: Floats, wholes: Floats) -> Floats:
    """Returns the totals of a task in the reports in which each value is counted on its own.

    Of more values than are counted, one may be part of `other` in some reports.

    Args:
        totals: `totals_of` a column, (11, t + 1, values).
        wholes: The same of the task, (11, t + 1, 1).
    """
    is_counted = np.diff(totals[EXAMPLES], axis=0) > 0
    own = np.zeros((WEIGHT_SQUARES + 1, *totals.shape[1:]))
    for number in (WEIGHT, WEIGHT_SQUARES):
        np.cumsum(np.diff(wholes[number], axis=0) * is_counted, axis=0, out=own[number, 1:])
    return own


def calibration(before: Sums, after: Sums, _: Sums, __: Sums) -> Change:
    """Compares predicted clicks minus clicks; bad is what moves away from a ratio of 1."""
    residuals = [(sums[PREDICTED] - sums[CLICKS]) for sums in (before, after)]
    weights = [sums[WEIGHT] for sums in (before, after)]
    logs = [_log_calibration(sums) for sums in (before, after)]
    with np.errstate(all="ignore"):
        delta = residuals[1] / weights[1] - residuals[0] / weights[0]
        usual = before[ERROR_SQUARES] / before[WEIGHT_SQUARES]
        variance = usual * before[WEIGHT_SQUARES] / weights[0] ** 2
        # Lost clicks take the errors of clicks with them.
        variance += (
            np.maximum(after[ERROR_SQUARES], usual * after[WEIGHT_SQUARES]) / weights[1] ** 2
        )
        variance += (_CALIBRATION_FLOOR * before[PREDICTED] / weights[0]) ** 2
    is_bad = (np.abs(logs[1]) > np.abs(logs[0])) & (np.abs(logs[1] - logs[0]) > _LEAST_CALIBRATION)
    return _known(delta, variance, is_bad, before, after)


def quality(before: Sums, after: Sums, _: Sums, __: Sums) -> Change:
    """Compares k, the part of the log loss that is not the entropy of the click rate."""
    before_k, before_spread = loss_beyond_rate(before)
    after_k, after_spread = loss_beyond_rate(after)
    with np.errstate(all="ignore"):
        share = [sums[WEIGHT_SQUARES] / sums[WEIGHT] ** 2 for sums in (before, after)]
        variance = before_spread * share[0] + np.maximum(before_spread, after_spread) * share[1]
    variance += (_QUALITY_FLOOR * entropy(click_rate_of(before))) ** 2
    delta = after_k - before_k
    return _known(delta, variance, delta > 0, before, after)


def traffic(before: Sums, after: Sums, all_before: Sums, all_after: Sums) -> Change:
    """Compares the share of all examples."""
    with np.errstate(all="ignore"):
        was, now = (
            part[WEIGHT] / whole[WEIGHT]
            for part, whole in ((before, all_before), (after, all_after))
        )
        counts = [whole[WEIGHT_SQUARES] / whole[WEIGHT] ** 2 for whole in (all_before, all_after)]
    middle = (was + now) / 2
    variance = middle * (1 - middle) * (counts[0] + counts[1])
    variance += (_TRAFFIC_FLOOR * middle) ** 2 + _LEAST_SHARE**2
    return Change(now - was, variance, np.ones(was.shape, np.bool_))


def rate(before: Sums, after: Sums, _: Sums, __: Sums) -> Change:
    """Compares the click rate."""
    was, now = click_rate_of(before), click_rate_of(after)
    variance = (_RATE_FLOOR * was) ** 2
    for sums, rates in ((before, was), (after, now)):
        squares = (1 - 2 * rates) * sums[CLICK_SQUARES] + rates**2 * sums[WEIGHT_SQUARES]
        with np.errstate(all="ignore"):
            variance = variance + squares / sums[WEIGHT] ** 2
    return _known(now - was, variance, np.ones(was.shape, np.bool_), before, after)


class Between:
    """The sums of intervals; each is computed when it is asked for, since no statistic needs all.

    `between[WEIGHT]` has the shape (intervals, values).
    """

    def __init__(self, totals: Floats, begin: Integers, end: Integers) -> None:
        """Takes the totals before each report, (11, t + 1, values), and bounds, (intervals,)."""
        self._totals, self._begin, self._end = totals, begin, end
        self._known: dict[int, Floats] = {}

    def __getitem__(self, number: int) -> Floats:
        """Returns one sum."""
        if number not in self._known:
            own = self._totals[number]
            self._known[number] = own[self._end] - own[self._begin]
        return self._known[number]


def comparing(statistic: Statistic, totals: Floats, wholes: Floats) -> Compare:
    """Returns what compares intervals of the reports of a column.

    Args:
        statistic: What is compared.
        totals: `totals_of` the column.
        wholes: The same of the task, for the same reports; or one for each value.
    """

    def compare(
        begin: Integers, end: Integers, start: Integers, stop: Integers, series: slice = ALL
    ) -> Change:
        own, every = totals[:, :, series], wholes[:, :, series if wholes.shape[2] > 1 else ALL]
        return statistic(
            Between(own, begin, end),
            Between(own, start, stop),
            Between(every, begin, end),
            Between(every, start, stop),
        )

    return compare


def warm_up(whole: SliceHistory) -> int:
    """Returns the first report of a task behind its warm-up.

    It has ended where three reports are about as good as the three after them, and about as well
    calibrated.
    """
    row, reports = LEAST_PAST, len(whole.steps)
    totals = totals_of(whole)
    for first in range(1, reports - 2 * row):
        sums = [totals[:, at + row] - totals[:, at] for at in (first, first + row)]
        (was, spread), (now, _) = (loss_beyond_rate(part) for part in sums)
        with np.errstate(all="ignore"):
            error = 2 * spread * sums[0][WEIGHT_SQUARES] / sums[0][WEIGHT] ** 2
            slack = 2 * np.sqrt(error) + 0.01 * entropy(click_rate_of(sums[0]))
            drift = np.abs(_log_calibration(sums[0])) - np.abs(_log_calibration(sums[1]))
            noise = np.sqrt(sums[0][ERROR_SQUARES]) / sums[0][CLICKS]
        if (was - now < slack).all() and (drift < 0.05 + 3 * noise).all():
            return first
    return max(reports - 2 * row, 0)


def totals_of(history: SliceHistory) -> Floats:
    """Returns the sums before each report, and those of all, (11, t + 1, v)."""
    reports, values, number = history.sums.shape
    totals = np.zeros((number, reports + 1, values))
    np.cumsum(np.moveaxis(history.sums, 2, 0), axis=1, out=totals[:, 1:])
    return totals


def _log_calibration(sums: Sums) -> Floats:
    logs: Floats = np.log((sums[PREDICTED] + 0.5) / (sums[CLICKS] + 0.5))
    return logs


def loss_beyond_rate(sums: Sums) -> tuple[Floats, Floats]:
    """Returns k, and the variance of ℓ - d·y of one example, with d of the click rate."""
    with np.errstate(all="ignore"):
        weight, squares = sums[WEIGHT], sums[WEIGHT_SQUARES]
        number = weight**2 / squares
        q, loss = sums[CLICKS] / weight, sums[LOSS] / weight
        # Without clicks, or with nothing else, d would be infinite.
        odds = (number * q + 0.5) / (number + 1)
        d = np.log((1 - odds) / odds)
        mean = loss - d * q
        spread = (
            sums[LOSS_SQUARES]
            - 2 * d * sums[CLICK_LOSSES]
            + d**2 * sums[CLICK_SQUARES]
            - 2 * mean * (sums[LOSS_WEIGHTS] - d * sums[CLICK_SQUARES])
            + mean**2 * squares
        ) / squares
        # The entropy of a rate from a sample is too low.
        k = loss - entropy(q) - 0.5 / number
    return k, np.maximum(spread, 0)


def _known(delta: Floats, variance: Floats, is_bad: Flags, before: Sums, after: Sums) -> Change:
    """Returns a change, NaN where there are too few clicks or non-clicks to judge it."""
    with np.errstate(all="ignore"):
        numbers = [sums[WEIGHT] ** 2 / sums[WEIGHT_SQUARES] for sums in (before, after)]
        q = click_rate_of(before)
        rarer = np.minimum(q, 1 - q)
        known = (numbers[0] * rarer >= _CLICKS_BEFORE) & (numbers[1] * rarer >= _CLICKS_AFTER)
    return Change(np.where(known, delta, np.nan), np.where(known, variance, np.nan), is_bad)
