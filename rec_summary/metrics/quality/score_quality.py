"""Quality of a click model from its scores in order: precision and recall, calibration.

All functions read a state and change nothing. Cells of a single score are exact. In larger ones,
clicks and non-clicks are taken to be mixed evenly, and scores to be near the middle; a cell around
a threshold counts half. A quantity
without a value, such as the calibration of a batch without clicks, is NaN.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rec_summary.arrays import Floats
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.log_loss import LEAST_SCORE
from rec_summary.metrics.quality.score_order import ScoredCells, ScoreOrder

DEFAULT_THRESHOLDS = 129

MOST_UNKNOWN = 0.02
"""The largest part of the recall of a threshold, and of its precision, that may be wrong."""


class PrCurve(NamedTuple):
    """Points of a precision-recall curve by rising threshold; every array has shape (points,).

    Attributes:
        thresholds: A score of at least the threshold predicts a click.
        true_positives: The weight of predicted clicks.
        false_positives: The weight of non-clicks predicted as clicks.
        true_negatives: The weight of predicted non-clicks.
        false_negatives: The weight of clicks predicted as non-clicks.
        precision: The share of true positives in all predicted clicks; 0 without any.
        recall: The share of true positives in all clicks; 0 without any.
    """

    thresholds: Floats
    true_positives: Floats
    false_positives: Floats
    true_negatives: Floats
    false_negatives: Floats
    precision: Floats
    recall: Floats

    def as_array(self) -> Floats:
        """Returns the rows of TensorBoard's PR curve plugin: TP, FP, TN, FN, precision, recall."""
        return np.stack(self[1:])


def pr_curve(order: ScoreOrder, num_thresholds: int = DEFAULT_THRESHOLDS) -> PrCurve:
    """Returns points of the precision-recall curve, with an error of at most `MOST_UNKNOWN`.

    Args:
        order: The counts.
        num_thresholds: The number of points, at least 2. They are even in recall, as far as whole
            cells allow: the first one has the threshold 0, and each of the others the highest
            threshold with at least its recall. With thresholds even in score, nearly all points of
            a curve with few clicks would have a recall near 0. TensorBoard's tooltip labels points
            as if their thresholds were even in [0, 1].
    """
    ends = (np.nextafter(1.0, 2.0), 0.0, 0.0)  # above all scores
    lower, others, clicks = map(np.append, order.cuts(MOST_UNKNOWN), ends)
    lower[0] = 0.0
    recalls = np.linspace(clicks[0], 0.0, num_thresholds)
    at = len(clicks) - 1 - np.searchsorted(clicks[::-1], recalls)
    at[0] = 0
    tp, fp = clicks[at], others[at]
    return PrCurve(
        thresholds=lower[at],
        true_positives=tp,
        false_positives=fp,
        true_negatives=others[0] - fp,
        false_negatives=clicks[0] - tp,
        precision=_ratio(tp, tp + fp),
        recall=_ratio(tp, np.full_like(tp, clicks[0])),
    )


class Threshold(NamedTuple):
    """A threshold of the score; NaN if there is none.

    Attributes:
        score: The threshold: from this score on, an example is predicted to be a click.
        recall: The share of clicks with at least this score.
    """

    score: float
    recall: float


def threshold_at(order: ScoreOrder, precision: float) -> Threshold:
    """Returns the lowest threshold from which on this share of predicted clicks are clicks.

    Args:
        order: The counts.
        precision: Above 0, at most 1.
    """
    thresholds, others, clicks = order.cuts(MOST_UNKNOWN)
    # A quotient, as a product of the precision may be rounded to above the clicks.
    reached = np.flatnonzero(_ratio(clicks, clicks + others) >= precision)
    if not len(reached):
        return Threshold(math.nan, math.nan)
    lowest = reached[0]
    return Threshold(float(thresholds[lowest]), float(clicks[lowest] / clicks[0]))


def average_precision(order: ScoreOrder) -> float:
    """Returns the area under the precision-recall curve: the mean precision at each click.

    It is the sum over thresholds of the precision there times the growth of recall, without
    interpolation (Manning et al. 2008, "Introduction to Information Retrieval").
    """
    cells = order.scored()
    clicks, others = cells.positives, cells.negatives
    if not clicks.any():
        return math.nan
    weights = clicks + others
    clicks_above = _from_above(clicks)[1:]
    weights_above = clicks_above + _from_above(others)[1:]
    last = _ratio(clicks_above + clicks, weights_above + weights)
    # The mean of (clicks_above + x * clicks) / (weights_above + x * weights) over x from 0 to 1.
    growth = _ratio(clicks, weights)
    slower = _ratio(clicks_above - weights_above * growth, weights)
    mean = growth + slower * np.log1p(_ratio(weights, weights_above))
    return float(np.average(np.where(cells.exact, last, mean), weights=clicks))


class Entropies(NamedTuple):
    """Normalised entropies besides that of `LogLoss`; NaN if all labels are the same.

    Attributes:
        of_clicks: The part of the normalised entropy that is the log loss of clicks.
        recalibrated: The normalised entropy after the odds of all scores are multiplied by the
            factor that makes the calibration 1: what is left is not the fault of the calibration.
    """

    of_clicks: float
    recalibrated: float


def entropies(quality: ClickQuality) -> Entropies:
    """Returns the normalised entropy of clicks, and that of recalibrated scores.

    The second one is the exact log loss, and a difference from it that cells are sufficient for.
    """
    cells = _centred(quality)
    clicks, others = float(cells.positives.sum()), float(cells.negatives.sum())
    if not clicks or not others:
        return Entropies(math.nan, math.nan)
    total, weights = clicks + others, cells.positives + cells.negatives
    loss, entropy = quality.loss.log_loss(), _entropy(clicks, others) / total
    scores = np.clip(cells.middle, LEAST_SCORE, 1.0 - LEAST_SCORE)
    of_clicks = -float(cells.positives @ np.log(scores)) / total
    odds = np.log(scores) - np.log1p(-scores)
    low, high = -40.0, 40.0
    for _ in range(40):  # the mean score rises with the shift of the log-odds
        shift = 0.5 * (low + high)
        is_high = float(weights @ (1.0 / (1.0 + np.exp(-odds - shift)))) > clicks
        low, high = (low, shift) if is_high else (shift, high)
    shift = 0.5 * (low + high)
    added = float(weights @ np.log1p(scores * math.expm1(shift))) - shift * clicks
    return Entropies(of_clicks / entropy, (loss + added / total) / entropy)


def original_calibration(quality: ClickQuality) -> float:
    """Returns predicted clicks divided by observed clicks, before non-clicks were left out.

    A score p of the sample stands for p / (p + (1 - p) / negative_rate), and each non-click for
    1 / negative_rate of them.
    Source: He et al. 2014, "Practical Lessons from Predicting Clicks on Ads at Facebook", 6.3.
    """
    rate, cells = quality.negative_rate, _centred(quality)
    clicks, negatives = float(cells.positives.sum()), cells.negatives / rate
    if not clicks or not negatives.any():
        return math.nan
    with np.errstate(under="ignore"):
        original = cells.middle / (cells.middle + (1.0 - cells.middle) / rate)
    return float((cells.positives + negatives) @ original) / clicks


class Reliability(NamedTuple):
    """Predicted and observed click rates of groups of rising scores; no group is empty.

    Attributes:
        predicted: The mean score of each group, shape (groups,).
        observed: The click rate of each group.
        weights: The weight of the examples of each group.
    """

    predicted: Floats
    observed: Floats
    weights: Floats


def reliability(quality: ClickQuality, groups: int = 10) -> Reliability:
    """Returns the reliability curve: predicted and observed click rates.

    Source: DeGroot and Fienberg 1983; Niculescu-Mizil and Caruana 2005. The groups have nearly
    equal weight, as far as whole cells allow.

    Args:
        quality: The counts.
        groups: The maximum number of groups, at least 1.
    """
    cells = _centred(quality)
    weights = cells.positives + cells.negatives
    middles = (np.cumsum(weights) - 0.5 * weights) / max(weights.sum(), 1e-300)
    group = np.minimum((middles * groups).astype(np.int64), groups - 1)
    sums = np.bincount(group, weights).astype(np.float64)
    used = sums > 0
    return Reliability(
        predicted=np.bincount(group, weights * cells.middle)[used] / sums[used],
        observed=np.bincount(group, cells.positives)[used] / sums[used],
        weights=sums[used],
    )


class CalibrationError(NamedTuple):
    """An expected calibration error; NaN before the first example.

    Attributes:
        value: The error.
        bound: An upper bound of the difference from that of the exact scores in the same groups.
    """

    value: float
    bound: float


def expected_calibration_error(quality: ClickQuality) -> CalibrationError:
    """Returns the mean absolute difference of predicted and observed click rate over ten groups.

    Source: Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning";
    groups of equal weight as in Nixon et al. 2019, "Measuring Calibration in Deep Learning".
    """
    predicted, observed, weights = reliability(quality)
    if len(weights) == 0:
        return CalibrationError(math.nan, math.nan)
    cells, total = _centred(quality), weights.sum()
    reach = np.maximum(cells.upper - cells.middle, cells.middle - cells.lower)
    return CalibrationError(
        value=float(weights @ np.abs(predicted - observed) / total),
        bound=float((cells.positives + cells.negatives) @ reach / total),
    )


def _centred(quality: ClickQuality) -> ScoredCells:
    """Returns the cells, with middles that are moved to one side by the same part of each cell.

    Thus their mean is that of the scores: half of all examples may be in a few wide cells.
    """
    cells = quality.order.scored()
    weights = cells.positives + cells.negatives
    missing = quality.loss.mean_score * float(weights.sum()) - float(weights @ cells.middle)
    way = (cells.upper if missing > 0 else cells.lower) - cells.middle
    room = float(weights @ way)
    part = min(missing / room, 1.0) if room else 0.0
    with np.errstate(under="ignore"):
        return cells._replace(middle=cells.middle + part * way)


def _from_above(weights: Floats) -> Floats:
    """Returns the weight in each cell and above it, and then 0; shape (cells + 1,)."""
    return np.append(np.cumsum(weights[::-1])[::-1], 0.0)


def _entropy(clicks: float, others: float) -> float:
    """Returns the log loss of predicting the click rate, summed over all examples."""
    total = clicks + others
    return -(clicks * math.log(clicks / total) + others * math.log(others / total))


def _ratio(above: Floats, below: Floats) -> Floats:
    """Returns quotients; 0 where `below` is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
