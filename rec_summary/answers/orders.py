"""The AUC of slices by detailed report, from their orders."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from rec_summary.answers.scan import ALL, Change, Compare
from rec_summary.arrays import Floats, Integers
from rec_summary.metrics.slices.sums import areas, delong
from rec_summary.series.runs.slices import SliceHistory

_FLOOR: Final = 0.003
_FEWEST: Final = 20  # clicks, and non-clicks


def area_of(orders: Floats) -> float:
    """Returns the AUC of one slice, (2, cells)."""
    return float(delong(orders[None], orders.sum(axis=1)[None])[0][0])


def comparing(history: SliceHistory, totals: Floats) -> Compare:
    """Returns what compares the AUC of intervals of detailed reports; bad is what falls.

    Args:
        history: The column.
        totals: `sums.totals_of` it.
    """
    at = np.searchsorted(history.steps, history.order_steps, "right")
    fields = np.diff(totals[:, at], axis=1, prepend=0)
    parts = zip(history.orders, np.moveaxis(fields, 1, 0), strict=True)
    found = zip(*itertools.starmap(areas, parts), strict=True)
    area, error, numbers = (np.stack(each) for each in found)
    is_enough = (numbers >= _FEWEST).all(axis=-1) & (error > 0)
    with np.errstate(all="ignore"):
        precision = np.where(is_enough, error, np.inf) ** -2.0
    summed = np.zeros((2, len(area) + 1, area.shape[1]))
    np.cumsum(precision, axis=0, out=summed[0, 1:])
    np.cumsum(precision * np.where(is_enough, area, 0), axis=0, out=summed[1, 1:])

    def compare(
        begin: Integers, end: Integers, start: Integers, stop: Integers, series: slice = ALL
    ) -> Change:
        own = summed[:, :, series]
        was, now = own[:, end] - own[:, begin], own[:, stop] - own[:, start]
        with np.errstate(all="ignore"):
            delta = now[1] / now[0] - was[1] / was[0]
            variance = 1 / now[0] + 1 / was[0] + _FLOOR**2
        return Change(delta, np.where(np.isfinite(delta), variance, np.nan), delta < 0)

    return compare
