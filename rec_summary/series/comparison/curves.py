"""Curves of several runs at the same places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rec_summary.arrays import Floats, Integers


class Curve(NamedTuple):
    """A series of numbers, of shape [n] each.

    Attributes:
        places: Where the values are: steps or samples, ascending, each once.
        values: The values; some may not be finite.
    """

    places: Integers
    values: Floats


def aligned(curves: Sequence[Curve], most: int | None = None) -> tuple[Integers, Floats]:
    """Returns curves at the same places: all places at which one of them has a value.

    Between two values of a curve, its value is interpolated linearly. Before its first and after
    its last finite value it is NaN.

    Args:
        curves: The curves, at least one.
        most: At most so many places, at even distances; None for all.

    Returns:
        The places, of shape [n], and the values, of shape [curves, n].
    """
    places = np.unique(np.concatenate([curve.places for curve in curves]))
    if most is not None and len(places) > most:
        places = places[np.linspace(0, len(places) - 1, most).astype(np.int64)]
    # Differences of integers are exact; a step may be beyond 2^53.
    origin = places[:1]
    x = (places - origin).astype(np.float64)
    values = np.full((len(curves), len(places)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        kept = np.isfinite(curve.values)
        if kept.any():
            known = (curve.places[kept] - origin).astype(np.float64)
            row[:] = np.interp(x, known, curve.values[kept], left=np.nan, right=np.nan)
    return places, values
