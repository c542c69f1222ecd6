"""Scored clicks: one batch of predicted probabilities and labels, checked once.

Invalid examples are refused and counted by reason. One bad example therefore never turns a metric
into NaN, and you see how many examples a metric leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.state import Array, Floats

Labels = npt.NDArray[np.bool_]

REASONS = ("score is NaN", "score outside [0, 1]", "label not 0 or 1", "weight not usable")
"""The reasons to refuse an example; the first one that applies is counted."""

_WEIGHT_UNIT = 2.0**-20
_MAX_WEIGHT = 2.0**20


@dataclass(frozen=True)
class Clicks:
    """The valid examples of a batch.

    Attributes:
        scores: Predicted probabilities in [0, 1], float64 rounded to float32.
        exact: The same without rounding.
        labels: Whether there was a click.
        weights: Multiples of 2**-20 above 0; None if every example counts once.
        kept: Which examples of the batch are valid; None if all are.
        refused: The number of refused examples by reason, in the order of `REASONS`.
    """

    scores: Floats
    exact: Floats
    labels: Labels
    weights: Floats | None
    kept: Labels | None
    refused: npt.NDArray[np.int64]


def column(name: str, values: Any, size: int | None = None) -> Array:
    """Returns real numbers or bools as a one-dimensional array.

    Raises:
        TypeError: They are not real numbers.
        ValueError: Their number is not `size`.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(three_part(name, f"an array of {array.dtype}", "real numbers"))
    if size is not None and array.size != size:
        raise ValueError(three_part(name, f"{array.size} values", f"{size}, one for each example"))
    return array.reshape(-1)


def on_weight_grid(weights: Floats) -> Floats:
    """Rounds weights to multiples of 2**-20, so that float64 adds them without rounding.

    Sums up to 2**33 are exact in any order.
    """
    rounded: Floats = np.rint(weights / _WEIGHT_UNIT) * _WEIGHT_UNIT
    return rounded


def clean(scores: Any, labels: Any, weights: Any = None) -> Clicks:
    """Checks a batch.

    Args:
        scores: Predicted click probabilities, real numbers of any shape; rounded to float32.
        labels: As many labels, 0 or 1, of any real dtype or bool.
        weights: As many weights, 2**-20 to 2**20, rounded to multiples of 2**-20; all 1 if None.

    Raises:
        TypeError: An argument does not hold real numbers.
        ValueError: The sizes differ.
    """
    given = column("scores", scores)
    seen = column("labels", labels, given.size)
    # float32 keeps the order and seven digits; with its few bits, sums of scores are exact.
    with np.errstate(over="ignore"):
        values = given.astype(np.float32).astype(np.float64)
    exact = values if given.dtype == np.float32 else given.astype(np.float64)
    heavy = None if weights is None else column("weights", weights, given.size).astype(np.float64)
    clicked = seen if seen.dtype.kind == "b" else seen == 1
    usable = (given >= 0) & (given <= 1)
    if seen.dtype.kind != "b":
        usable &= clicked | (seen == 0)
    if heavy is not None:
        usable &= (heavy >= _WEIGHT_UNIT) & (heavy <= _MAX_WEIGHT)
        heavy = on_weight_grid(np.where(usable, heavy, 1.0))
    if usable.all():
        return Clicks(values, exact, clicked, heavy, None, np.zeros(len(REASONS), np.int64))
    left = ~usable
    counts = []
    for wrong in (np.isnan(given), ~((given >= 0) & (given <= 1)), ~(clicked | (seen == 0))):
        counts.append(np.count_nonzero(left & wrong))
        left &= ~wrong
    counts.append(np.count_nonzero(left))
    return Clicks(
        values[usable],
        exact[usable],
        clicked[usable],
        None if heavy is None else heavy[usable],
        usable,
        np.array(counts, np.int64),
    )
