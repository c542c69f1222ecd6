"""The AUC of each user and its mean, out of counts that are sorted by user; see `grouped_auc`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rec_summary.metrics.state import Floats


@dataclass(frozen=True)
class GroupedAuc:
    """GAUC of a sample of users, and how far it may be from that of all users.

    Attributes:
        value: The weighted mean of the users' AUC; NaN as long as no user has one.
        users: How many users of the sample have an AUC.
        sampled: How many users are in the sample.
        rate: The share of the id space that is sampled; 1 when every user is.
        standard_error: Of the value as an estimate of all users' GAUC, by the delta method for
            independent inclusion; 0 when every user is sampled.
        bias_bound: The bias of a ratio of unbiased sums is at most its standard error times the
            coefficient of variation of its denominator; both estimated from the sample.
        bin_error_bound: How far the value can be from that of the same users with exact scores,
            whatever these were; see `auc_error_bound`.
    """

    value: float
    users: int
    sampled: int
    rate: float
    standard_error: float
    bias_bound: float
    bin_error_bound: float


def mean_auc(
    users: npt.NDArray[np.uint64], weights: Floats, rate: float, by_clicks: bool
) -> GroupedAuc:
    """Returns the mean of the users' AUC.

    Args:
        users: Of each cell, of shape [cells]; the cells of a user follow each other, by rising
            score.
        weights: Of non-clicks and clicks, of shape [2, cells].
        rate: The share of the id space that is sampled.
        by_clicks: Whether a user weighs as much as its clicks, instead of its impressions.
    """
    starts = np.flatnonzero(np.append(True, users[1:] != users[:-1])[: len(users)])
    nothing = GroupedAuc(math.nan, 0, len(starts), rate, math.nan, math.nan, math.nan)
    if not len(starts):
        return nothing
    negatives, positives = weights
    clicks = np.add.reduceat(positives, starts)
    others = np.add.reduceat(negatives, starts)
    cells = np.diff(np.append(starts, len(users)))
    below = np.cumsum(negatives) - 0.5 * negatives
    below -= np.repeat(np.append(0.0, np.cumsum(others)[:-1]), cells)
    both = np.flatnonzero((clicks > 0) & (others > 0))
    if not len(both):
        return nothing
    pairs = (clicks * others)[both]
    aucs = np.add.reduceat(positives * below, starts)[both] / pairs
    bounds = 0.5 * np.add.reduceat(positives * negatives, starts)[both] / pairs
    heavy = clicks[both] if by_clicks else (clicks + others)[both]
    total = float(heavy.sum())
    value = float(aucs @ heavy) / total
    chance = math.sqrt(1.0 - rate)
    error = chance * float(np.linalg.norm(heavy * (aucs - value))) / total
    variation = chance * float(np.linalg.norm(heavy)) / total
    return GroupedAuc(
        value=value,
        users=len(both),
        sampled=len(starts),
        rate=rate,
        standard_error=error,
        bias_bound=error * variation,
        bin_error_bound=float(bounds @ heavy) / total,
    )
