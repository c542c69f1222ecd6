"""Quality of a click model from a `ScoreHistogram`: ranking, precision and recall, calibration.

All functions read the bins and change nothing. A quantity without a value, such as the AUC of a
batch without clicks, is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rec_summary.metrics.quality.score_histogram import ScoreHistogram
from rec_summary.metrics.state import Array, Floats, check_int

DEFAULT_THRESHOLDS = 129


@dataclass(frozen=True)
class PrCurve:
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


def pr_curve(histogram: ScoreHistogram, num_thresholds: int = DEFAULT_THRESHOLDS) -> PrCurve:
    """Returns points of the precision-recall curve, exact for the thresholds returned.

    Args:
        histogram: The counts.
        num_thresholds: The number of points, at least 2. They are even in recall, as far as whole
            bins allow: the first one has the threshold 0, and each of the others the highest
            threshold with at least its recall. With thresholds even in score, nearly all points of
            a curve with few clicks would have a recall near 0. TensorBoard's tooltip labels points
            as if their thresholds were even in [0, 1].

    Raises:
        TypeError, ValueError: `num_thresholds` is anything else.
    """
    check_int("num_thresholds", num_thresholds, 2)
    caught = _from_above(histogram.positives)
    alarms = _from_above(histogram.negatives)
    recalls = np.linspace(caught[0], 0.0, num_thresholds)
    at = len(caught) - 1 - np.searchsorted(caught[::-1], recalls)
    at[0] = 0
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
    """Returns predicted clicks divided by observed clicks; above 1 is over-prediction.

    Source: He et al. 2014, "Practical Lessons from Predicting Clicks on Ads at Facebook".
    """
    clicks = float(histogram.positives.sum())
    return float(histogram.score_sums.sum()) / clicks if clicks else math.nan


@dataclass(frozen=True)
class Reliability:
    """Predicted and observed click rates of groups of rising scores; no group is empty.

    Attributes:
        predicted: The mean score of each group, shape (groups,).
        observed: The click rate of each group.
        weights: The weight of the examples of each group.
        lower: The lower edge of the lowest bin of each group that is not empty.
        upper: The upper edge of the highest bin of each group that is not empty.
    """

    predicted: Floats
    observed: Floats
    weights: Floats
    lower: Floats
    upper: Floats


def reliability(histogram: ScoreHistogram, groups: int = 10) -> Reliability:
    """Returns the reliability curve: predicted and observed click rates.

    Source: DeGroot and Fienberg 1983; Niculescu-Mizil and Caruana 2005. The groups have nearly
    equal weight, as far as whole bins allow; the mean score of whole bins is exact.

    Args:
        histogram: The counts.
        groups: The maximum number of groups, at least 1.

    Raises:
        TypeError, ValueError: `groups` is anything else.
    """
    check_int("groups", groups)
    weights = histogram.positives + histogram.negatives
    used = np.flatnonzero(weights)
    weights = weights[used]
    middles = (np.cumsum(weights) - 0.5 * weights) / max(weights.sum(), 1e-300)
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


def expected_calibration_error(histogram: ScoreHistogram, groups: int = 10) -> float:
    """Returns the mean absolute difference of predicted and observed click rate over groups.

    Source: Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning";
    groups of equal weight as in Nixon et al. 2019, "Measuring Calibration in Deep Learning".

    Args:
        histogram: The counts.
        groups: As in `reliability`.
    """
    curve = reliability(histogram, groups)
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
