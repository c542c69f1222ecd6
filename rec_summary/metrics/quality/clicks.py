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
from rec_summary.metrics.hashing import hash_strings
from rec_summary.metrics.state import Array, Floats

Labels = npt.NDArray[np.bool_]

REASONS = ("score is NaN", "score outside [0, 1]", "label outside [0, 1]", "weight not usable")
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
        weights: Multiples of 2**-20 of at least 0; None if every example counts once.
        kept: The places of these examples in the batch; None if they are all, in order. In a batch
            with labels between 0 and 1, each example is here twice: as a non-click, and as a click
            with the label as its weight.
        size: The number of examples of the batch.
        refused: The number of refused examples by reason, in the order of `REASONS`.
    """

    scores: Floats
    exact: Floats
    labels: Labels
    weights: Floats | None
    kept: npt.NDArray[np.intp] | None
    size: int
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


def whole_ids(name: str, values: Any, size: int) -> Array:
    """Returns ids, integers or strings, as a one-dimensional array of integers; strings are hashed.

    Raises:
        TypeError: They are anything else.
        ValueError: Their number is not `size`.
    """
    ids = np.asarray(values)
    ids = column(name, hash_strings(ids) if ids.dtype.kind in "USO" else ids, size)
    if ids.dtype.kind not in "iu":
        raise TypeError(three_part(name, f"an array of {ids.dtype}", "integers or strings"))
    return ids


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
        labels: As many labels, 0 to 1, of any real dtype or bool; those between 0 and 1 are
            rounded to multiples of 2**-20, times the weight.
        weights: As many weights, 0 to 2**20, rounded to multiples of 2**-20; all 1 if None.

    Raises:
        TypeError: An argument does not hold real numbers.
        ValueError: The sizes differ.
    """
    given = column("scores", scores)
    seen = column("labels", labels, given.size)
    # float32 keeps the order and seven digits; with its few bits, sums of scores are exact.
    with np.errstate(over="ignore"):
        values = given.astype(np.float32, copy=False).astype(np.float64)
    exact = values if given.dtype == np.float32 else given.astype(np.float64)
    heavy = None if weights is None else column("weights", weights, given.size).astype(np.float64)
    clicked = seen if seen.dtype.kind == "b" else seen == 1
    usable = (given >= 0) & (given <= 1)
    soft = False
    if seen.dtype.kind != "b":
        usable &= (seen >= 0) & (seen <= 1)
        soft = not (clicked | (seen == 0) | ~usable).all()
    if heavy is not None:
        usable &= (heavy >= 0) & (heavy <= _MAX_WEIGHT)
        heavy = on_weight_grid(np.where(usable, heavy, 1.0))
    if usable.all() and not soft:
        refused = np.zeros(len(REASONS), np.int64)
        return Clicks(values, exact, clicked, heavy, None, given.size, refused)
    left = ~usable
    counts = []
    for wrong in (np.isnan(given), ~((given >= 0) & (given <= 1)), ~((seen >= 0) & (seen <= 1))):
        counts.append(np.count_nonzero(left & wrong))
        left &= ~wrong
    counts.append(np.count_nonzero(left))
    kept = np.flatnonzero(usable)
    clicked = clicked[kept]
    heavy = None if heavy is None else heavy[kept]
    if soft:
        whole = np.ones(len(kept)) if heavy is None else heavy
        share = on_weight_grid(whole * seen[kept])
        heavy = np.concatenate([whole - share, share])
        clicked = np.repeat([False, True], len(kept))
        kept = np.tile(kept, 2)
    return Clicks(
        values[kept], exact[kept], clicked, heavy, kept, given.size, np.array(counts, np.int64)
    )
