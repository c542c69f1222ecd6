"""Splits the change of a metric of a task between two intervals into parts of its slices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rec_summary.arrays import Flags, Floats
from rec_summary.metrics.slices.sums import CLICKS, LOSS, WEIGHT, entropy


class Parts(NamedTuple):
    """What each slice has added to a change; each of shape (values,).

    Attributes:
        mix: By having more or less of the traffic.
        rate: By another click rate.
        quality: By a model that is worse or better on it.
    """

    mix: Floats
    rate: Floats
    quality: Floats


def common(before: Floats, after: Floats) -> Flags:
    """Returns which values have examples in both intervals, (values,); all else is one slice."""
    flags: Flags = (before[WEIGHT] > 0) & (after[WEIGHT] > 0)
    return flags


def entropy_parts(before: Floats, after: Floats) -> Parts:
    """Returns the parts of the change of the normalised entropy, which sum to it exactly.

    Args:
        before: The sums of all slices of a partition, each with examples, (11, values).
        after: The same later.
    """
    weights = [sums[WEIGHT] / sums[WEIGHT].sum() for sums in (before, after)]
    losses = [sums[LOSS] / sums[WEIGHT] for sums in (before, after)]
    rates = [sums[CLICKS] / sums[WEIGHT] for sums in (before, after)]
    entropies = [entropy(rate) for rate in rates]
    mean_rates, mean_losses = (
        np.array([float(w @ each) for w, each in zip(weights, series, strict=True)])
        for series in (rates, losses)
    )
    inverses = 1 / entropy(mean_rates)
    moved = mean_rates[1] - mean_rates[0]
    slope = (inverses[1] - inverses[0]) / moved if moved else 0.0
    mean_loss, inverse, mean_rate = mean_losses.mean(), inverses.mean(), mean_rates.mean()
    weight, loss, rate = (np.mean(pair, axis=0) for pair in (weights, losses, rates))
    more, lost, clicked, spread = (
        pair[1] - pair[0] for pair in (weights, losses, rates, entropies)
    )
    return Parts(
        mix=more * ((loss - mean_loss) * inverse + (rate - mean_rate) * mean_loss * slope),
        rate=weight * (spread * inverse + clicked * mean_loss * slope),
        quality=weight * (lost - spread) * inverse,
    )


def auc_parts(before: Floats, after: Floats) -> Parts:
    """Returns the parts of the change of the AUC; the click rate has none.

    Args:
        before: The weights of non-clicks and clicks by cell of the score, rising, of all slices
            of a partition, each with both, (values, 2, cells).
        after: The same later.
    """
    areas, shares, means = [], [], []
    for orders in (before, after):
        others, clicks = orders[:, 0], orders[:, 1]
        below = others.cumsum(1) - others / 2
        pairs = np.outer(clicks.sum(1), others.sum(1))
        areas.append(clicks @ below.T / pairs)  # [s, t]: a click of s above a non-click of t
        shares.append(pairs / pairs.sum())
        means.append(float((areas[-1] * shares[-1]).sum()))
    area, share = np.mean(areas, axis=0), np.mean(shares, axis=0)
    mix = (shares[1] - shares[0]) * (area - np.mean(means))
    quality = share * (areas[1] - areas[0])
    return Parts(*((part.sum(0) + part.sum(1)) / 2 for part in (mix, np.zeros_like(mix), quality)))
