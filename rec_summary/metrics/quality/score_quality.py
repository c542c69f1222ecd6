"""What a `ScoreHistogram` tells of a click model: ranking, precision and recall, calibration.

All of it is read from the bins and changes nothing. A quantity without a value, such as the
AUC of a batch without clicks, is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.quality.score_histogram import ScoreHistogram
from rec_summary.metrics.state import Array, Floats, positive_int

DEFAULT_THRESHOLDS = 129
"""Thresholds that are multiples of 1/128 are edges of 1,024 bins, so nothing is rounded."""


def auc(histogram: ScoreHistogram) -> float:
    """Returns the area under the ROC curve.

    It is the probability that a click has a higher score than a non-click, equal scores counting
    half (Hanley and McNeil 1982); scores in the same bin count as equal. The
    exact AUC is at most `auc_error_bound` away.
    """
    positives, negatives = histogram.positives, histogram.negatives
    pairs = float(positives.sum()) * float(negatives.sum())
    if pairs == 0:
        return math.nan
    below = np.cumsum(negatives) - 0.5 * negatives
    return float(positives @ below) / pairs


def auc_error_bound(histogram: ScoreHistogram) -> float:
    """Returns how far `auc` can be from the exact AUC of the scores counted, whatever they were.

    Pairs of a click and a non-click in different bins are ordered as by their scores. A pair
    within one bin counts half where its exact count is 0, a half or 1: an error of at most a half
    for each, so half of the share of such pairs bounds the whole. Where scores spread over
    many bins the true error is some hundred times smaller. Scores that nearly all fall
    into a few bins, as those of a model that has hardly begun to learn, make AUC from 1,024 bins
    wrong by more than 1e-3, and the bound large; 4,096 bins are four times as fine.
    """
    positives, negatives = histogram.positives, histogram.negatives
    pairs = float(positives.sum()) * float(negatives.sum())
    return 0.5 * float(positives @ negatives) / pairs if pairs else math.nan


@dataclass(frozen=True)
class PrCurve:
    """Points of a precision-recall curve by rising threshold; every array has shape (points,).

    Attributes:
        thresholds: A click is predicted for scores of at least this.
        true_positives: The weight of clicks predicted.
        false_positives: The weight of clicks predicted where there were none.
        true_negatives: The weight of non-clicks predicted.
        false_negatives: The weight of clicks not predicted.
        precision: True positives among the predicted; 0 where nothing is predicted.
        recall: True positives among the clicks; 0 where there are none.
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
        return np.stack(
            [
                self.true_positives,
                self.false_positives,
                self.true_negatives,
                self.false_negatives,
                self.precision,
                self.recall,
            ]
        )


def pr_curve(
    histogram: ScoreHistogram,
    num_thresholds: int = DEFAULT_THRESHOLDS,
    spacing: Literal["score", "recall"] = "score",
) -> PrCurve:
    """Returns points of the precision-recall curve, exact for the thresholds returned.

    Args:
        histogram: The counts.
        num_thresholds: How many points, at least 2.
        spacing: ``"score"`` spaces thresholds evenly in [0, 1], as TensorBoard's PR curve plugin
            labels them, each moved up to the next edge of a bin; ``"recall"`` spaces
            the recall evenly, which shows the curve where all scores are small.

    Raises:
        ValueError: An argument is anything else.
    """
    positive_int("num_thresholds", num_thresholds, 2)
    caught = _from_above(histogram.positives)
    alarms = _from_above(histogram.negatives)
    if spacing == "score":
        wanted = np.linspace(0.0, 1.0, num_thresholds)
        at = np.searchsorted(histogram.edges, wanted)
    elif spacing == "recall":
        # The highest threshold that still reaches each recall.
        wanted = caught[0] * np.linspace(1.0, 0.0, num_thresholds)
        at = histogram.bins - np.searchsorted(caught[::-1], wanted)
    else:
        raise ValueError(three_part("spacing", spacing, "'score' or 'recall'"))
    tp, fp = caught[at], alarms[at]
    return PrCurve(
        thresholds=histogram.edges[at],
        true_positives=tp,
        false_positives=fp,
        true_negatives=alarms[0] - fp,
        false_negatives=caught[0] - tp,
        precision=_ratio(tp, tp + fp, 0.0),
        recall=_ratio(tp, np.full_like(tp, caught[0]), 0.0),
    )


def calibration(histogram: ScoreHistogram) -> float:
    """Returns predicted clicks over observed clicks; 1 is calibrated, more is over-prediction.

    Source: He et al. 2014, "Practical Lessons from Predicting Clicks on Ads at Facebook".
    """
    clicks = float(histogram.positives.sum())
    return float(histogram.score_sums.sum()) / clicks if clicks else math.nan


@dataclass(frozen=True)
class Reliability:
    """Predicted and observed click rates of groups of scores that are not empty, rising.

    Attributes:
        predicted: The mean score of each group, shape (groups,).
        observed: Its click rate.
        weights: The weight of its examples.
        lower: The lower edge of its lowest bin that is not empty.
        upper: The upper edge of its highest bin that is not empty.
    """

    predicted: Floats
    observed: Floats
    weights: Floats
    lower: Floats
    upper: Floats


def reliability(
    histogram: ScoreHistogram, groups: int = 10, by: Literal["weight", "score"] = "weight"
) -> Reliability:
    """Returns the reliability curve: what was predicted beside what was observed.

    Source: DeGroot and Fienberg 1983; Niculescu-Mizil and Caruana 2005. A group is made of
    whole bins, for which the mean score is exact.

    Args:
        histogram: The counts.
        groups: How many at most.
        by: ``"weight"`` makes groups of nearly equal weight, as whole bins allow; ``"score"``
            makes them equally wide in the score.

    Raises:
        ValueError: An argument is anything else.
    """
    positive_int("groups", groups)
    weights = histogram.positives + histogram.negatives
    used = np.flatnonzero(weights)
    weights = weights[used]
    if by == "weight":
        middles = (np.cumsum(weights) - 0.5 * weights) / max(weights.sum(), 1e-300)
    elif by == "score":
        middles = 0.5 * (histogram.edges[used] + histogram.edges[used + 1])
    else:
        raise ValueError(three_part("by", by, "'weight' or 'score'"))
    group = np.minimum((middles * groups).astype(np.int64), groups - 1)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    ends = np.append(starts[1:], len(used)) - 1 if len(used) else starts
    heavy = _sums(weights, starts)
    return Reliability(
        predicted=_sums(histogram.score_sums[used], starts) / heavy,
        observed=_sums(histogram.positives[used], starts) / heavy,
        weights=heavy,
        lower=histogram.edges[used[starts]],
        upper=histogram.edges[used[ends] + 1],
    )


def expected_calibration_error(
    histogram: ScoreHistogram, groups: int = 10, by: Literal["weight", "score"] = "weight"
) -> float:
    """Returns the mean absolute difference of predicted and observed click rate over groups.

    Source: Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning";
    groups of equal weight as in Nixon et al. 2019, "Measuring Calibration in Deep Learning".

    Args:
        histogram: The counts.
        groups: As in `reliability`.
        by: As in `reliability`.
    """
    curve = reliability(histogram, groups, by)
    if len(curve.weights) == 0:
        return math.nan
    return float(np.average(np.abs(curve.predicted - curve.observed), weights=curve.weights))


def _from_above(weights: Floats) -> Floats:
    """Returns the weight at or above each edge, shape (bins + 1,)."""
    return np.append(np.cumsum(weights[::-1])[::-1], 0.0)


def _ratio(above: Floats, below: Floats, otherwise: float) -> Floats:
    return np.divide(above, below, out=np.full_like(above, otherwise), where=below > 0)


def _sums(values: Array, starts: Array) -> Floats:
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)
