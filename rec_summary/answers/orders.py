"""The AUC of slices by report, with its standard error, from the orders of detailed reports."""

from __future__ import annotations

from typing import Final

import numpy as np

from rec_summary.answers.scan import ALL, Change, Compare
from rec_summary.answers.sums import WEIGHT, WEIGHT_SQUARES
from rec_summary.arrays import Floats, Integers
from rec_summary.series.slices import SliceHistory

_FLOOR: Final = 0.003
_FEWEST: Final = 20  # clicks, and non-clicks


def areas(orders: Floats) -> tuple[Floats, Floats]:
    """Returns the AUC of weights by cell, (..., 2, cells), and its variance (DeLong 1988).

    Equal cells count half. The variance is that of weights of 1.
    """
    others, clicks = orders[..., 0, :], orders[..., 1, :]
    number, hits = others.sum(-1, keepdims=True), clicks.sum(-1, keepdims=True)
    with np.errstate(all="ignore"):
        below = (others.cumsum(-1) - others / 2) / number
        above = 1 - (clicks.cumsum(-1) - clicks / 2) / hits
        area = (clicks * below).sum(-1, keepdims=True) / hits
        spread = (clicks * (below - area) ** 2).sum(-1) / hits[..., 0] ** 2
        spread += (others * (above - area) ** 2).sum(-1) / number[..., 0] ** 2
    few = np.minimum(number, hits)[..., 0] < _FEWEST
    return np.where(few, np.nan, area[..., 0]), np.where(few, np.nan, spread)


def comparing(history: SliceHistory) -> Compare:
    """Returns what compares the AUC of intervals of detailed reports; bad is what falls."""
    area, spread = areas(history.orders)
    sums = history.sums.sum(0)
    with np.errstate(all="ignore"):
        spread = spread * sums[:, WEIGHT_SQUARES] / sums[:, WEIGHT]
        weights = np.nan_to_num(1 / spread, nan=0.0, posinf=0.0)
    totals = np.zeros((2, len(area) + 1, area.shape[1]))
    np.cumsum(weights, axis=0, out=totals[0, 1:])
    np.cumsum(weights * np.nan_to_num(area), axis=0, out=totals[1, 1:])

    def compare(
        begin: Integers, end: Integers, start: Integers, stop: Integers, series: slice = ALL
    ) -> Change:
        own = totals[:, :, series]
        was, now = own[:, end] - own[:, begin], own[:, stop] - own[:, start]
        with np.errstate(all="ignore"):
            delta = now[1] / now[0] - was[1] / was[0]
            variance = 1 / now[0] + 1 / was[0] + _FLOOR**2
        return Change(delta, np.where(np.isfinite(delta), variance, np.nan), delta < 0)

    return compare
