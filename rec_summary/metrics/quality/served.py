"""The scores of the model that is trained beside those that were served, of the same examples.

Both are compared on the original traffic: where training leaves non-clicks out, each one that is
left stands for several, and the odds of a new score are lowered as much. The difference of two
losses of one example varies far less than the losses themselves, so the comparison is paired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Flags, Floats
from rec_summary.metrics.quality.clicks import Clicks, column
from rec_summary.metrics.quality.log_loss import losses_of
from rec_summary.metrics.state import Batch, on_weight_grid


@dataclass(frozen=True)
class Comparison(Batch):
    """Examples with both scores; those of a soft label are there twice, as in `Clicks`.

    Attributes:
        valid: Whether there is a served score.
        labels: Whether there was a click.
        weights: The weights in the original traffic; 0 without a served score.
        scores: The new scores, as probabilities in the original traffic.
        served: The served scores; one half if there is none.
        losses: The log losses of the new scores.
        served_losses: The log losses of the served scores.
    """

    valid: Flags
    labels: Flags
    weights: Floats
    scores: Floats
    served: Floats
    losses: Floats
    served_losses: Floats

    @classmethod
    def of(cls, clicks: Clicks, served: Array, negative_rate: float) -> Comparison:
        """Returns the comparison of examples.

        Args:
            clicks: The examples with their new scores.
            served: The probabilities that were served, one for each example of the batch, refused
                ones included. NaN or a number outside [0, 1] is no score.
            negative_rate: The share of non-clicks that training has, above 0 and at most 1.

        Raises:
            TypeError: The served scores are not real numbers.
            ValueError: Their number differs from that of the examples.
        """
        served = column("served", served, clicks.size)
        served = served if clicks.kept is None else served[clicks.kept]
        valid = (served >= 0) & (served <= 1)
        # As the new scores, so that equal ones have no difference.
        served = np.where(valid, served, 0.5).astype(np.float32).astype(np.float64)
        weights = np.ones(len(served)) if clicks.weights is None else clicks.weights
        weights, scores = weights * valid, clicks.scores
        if negative_rate < 1:
            weights = on_weight_grid(np.where(clicks.labels, weights, weights / negative_rate))
            scores = negative_rate * scores / (negative_rate * scores + (1.0 - scores))
        losses = (losses_of(each, clicks.labels) for each in (scores, served))
        return cls(valid, clicks.labels, weights, scores, served, *losses)


class LossChange(NamedTuple):
    """How far a log loss is from that of the served scores; NaN if that is not known.

    Attributes:
        change: The difference as a part of the loss of the served scores: that of the normalised
            entropies as well, as both have one entropy. Below 0, the new scores are better.
        error: Its standard error.
    """

    change: Any
    error: Any


def loss_change(
    losses: Any, served: Any, weight: Any, squares: Any, differences: Any, difference_squares: Any
) -> LossChange:
    """Returns the relative change of a log loss, from sums over the examples.

    The error is that of the mean of paired differences, with weights as they are. It takes the
    loss of the served scores as known: its own error only matters times the change.

    Args:
        losses: The sums of the weighted losses of the new scores, each argument (...).
        served: Those of the served scores.
        weight: The sums of weights v.
        squares: Those of v².
        differences: Those of v²d, where d is the loss of the new score minus that of the served.
        difference_squares: Those of v²d².
    """
    with np.errstate(all="ignore"):
        mean = (losses - served) / weight
        variance = difference_squares - 2 * mean * differences + mean * mean * squares
        known = (served > 0) & (weight * weight >= 2 * squares)  # two examples, in effect
        error = np.sqrt(np.maximum(variance, 0.0)) / served
        change = np.where(served > 0, (losses - served) / served, np.nan)
        return LossChange(change, np.where(known, error, np.nan))
