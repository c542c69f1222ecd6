"""Scored clicks: one batch of predicted probabilities and labels, checked once.

Invalid examples are refused and counted by reason. One bad example therefore never turns a metric
into NaN, and you see how many examples a metric leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Flags, Floats, Integers
from rec_summary.checks import plain_array
from rec_summary.errors import three_part
from rec_summary.metrics.hashing import hashed
from rec_summary.metrics.quality.score_cells import Keys, keys_of, keys_of_odds
from rec_summary.metrics.state import MOST_WEIGHT, on_weight_grid

REASONS = ("score is NaN", "score outside [0, 1]", "label outside [0, 1]", "weight not usable")
"""The reasons to refuse an example; the first one that applies is counted."""


@dataclass(frozen=True)
class Clicks:
    """The valid examples of a batch.

    Attributes:
        scores: Predicted probabilities in [0, 1], float64 rounded to float32.
        keys: Their order, without rounding, as of `score_cells`.
        labels: Whether there was a click.
        weights: Multiples of 2**-20 of at least 0; None if every example counts once.
        kept: The places of these examples in the batch; None if they are all, in order. In a batch
            with labels between 0 and 1, each example is here twice: as a non-click, and as a click
            with the label as its weight.
        size: The number of examples of the batch.
        refused: The number of refused examples by reason, in the order of `REASONS`.
    """

    scores: Floats
    keys: Keys
    labels: Flags
    weights: Floats | None
    kept: npt.NDArray[np.intp] | None
    size: int
    refused: Integers

    @property
    def is_soft(self) -> bool:
        """Whether each example is here twice."""
        return len(self.labels) > self.size - int(self.refused.sum())


def column(name: str, values: Any, size: int | None = None) -> Array:
    """Returns real numbers or bools as a one-dimensional array.

    Raises:
        TypeError: They are not real numbers.
        ValueError: Their number is not `size`.
    """
    array = plain_array(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(three_part(name, f"an array of {array.dtype}", "real numbers"))
    if size is not None and array.size != size:
        raise ValueError(three_part(name, f"{array.size} values", f"{size}, one for each example"))
    return array.reshape(-1)


def integer_ids(name: str, values: Any, size: int) -> Array:
    """Returns ids, integers or strings, as a one-dimensional array of integers; strings are hashed.

    Raises:
        TypeError: They are anything else.
        ValueError: Their number is not `size`.
    """
    ids = column(name, hashed(plain_array(values)), size)
    if ids.dtype.kind not in "iu":
        raise TypeError(three_part(name, f"an array of {ids.dtype}", "integers or strings"))
    return ids


def refusals(*checks: Flags) -> Integers:
    """Returns how many examples each check refuses, without those that one before it refuses.

    Args:
        checks: Whether each example passes, (examples,).
    """
    first = np.argmin([*checks, np.zeros_like(checks[0])], axis=0)
    return np.bincount(first, minlength=len(checks) + 1)[:-1]


def clean(scores: Any, labels: Any, weights: Any = None, odds: Any = None) -> Clicks:
    """Checks a batch.

    Args:
        scores: Predicted click probabilities, real numbers of any shape; rounded to float32.
        labels: As many labels, 0 to 1, of any real dtype or bool; those between 0 and 1 are
            rounded to multiples of 2**-20, times the weight.
        weights: As many weights, 0 to 2**20, rounded to multiples of 2**-20; all 1 if None.
        odds: The log-odds of the scores, which give their order; None if the scores do.

    Raises:
        TypeError: An argument does not hold real numbers.
        ValueError: The sizes differ.
    """
    scores = column("scores", scores)
    labels = column("labels", labels, scores.size)
    # float32 keeps the order and seven digits; with its few bits, sums of scores are exact.
    with np.errstate(over="ignore", under="ignore"):
        rounded = scores.astype(np.float32, copy=False).astype(np.float64)
    ranked = scores if odds is None else column("odds", odds, scores.size)
    keys_by = keys_of if odds is None else keys_of_odds
    ranked = ranked.astype(np.float64, copy=False)
    if weights is not None:
        weights = column("weights", weights, scores.size).astype(np.float64)
    clicked = labels if labels.dtype.kind == "b" else labels == 1
    usable = (scores >= 0) & (scores <= 1)
    soft = False
    if labels.dtype.kind != "b":
        usable &= (labels >= 0) & (labels <= 1)
        soft = not (clicked | (labels == 0) | ~usable).all()
    if weights is not None:
        usable &= (weights >= 0) & (weights <= MOST_WEIGHT)
        weights = on_weight_grid(np.where(usable, weights, 1.0))
    if usable.all() and not soft:
        refused = np.zeros(len(REASONS), np.int64)
        return Clicks(rounded, keys_by(ranked), clicked, weights, None, scores.size, refused)
    is_score, is_label = ((numbers >= 0) & (numbers <= 1) for numbers in (scores, labels))
    refused = refusals(~np.isnan(scores), is_score, is_label, usable)
    kept = np.flatnonzero(usable)
    clicked = clicked[kept]
    weights = None if weights is None else weights[kept]
    if soft:
        whole = np.ones(len(kept)) if weights is None else weights
        share = on_weight_grid(whole * labels[kept])
        weights = np.concatenate([whole - share, share])
        clicked = np.repeat([False, True], len(kept))
        kept = np.tile(kept, 2)
    keys = keys_by(ranked[kept])
    return Clicks(rounded[kept], keys, clicked, weights, kept, scores.size, refused)
