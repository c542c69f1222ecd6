"""Scalars: one number out of whatever holds it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rec_summary.errors import three_part


def to_number(value: Any) -> float:
    """Returns a number or an array of numbers as one float: the mean of its elements.

    NaN and infinities are numbers, and are kept. Source: MindSpore's collector takes the
    mean of a loss that has more than one element.

    Args:
        value: A Python or numpy number, or an array-like of any shape with real numbers.

    Raises:
        TypeError: It does not hold real numbers.
        ValueError: It is empty.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            three_part("a scalar", f"{type(value).__name__} of {array.dtype}", "a real number")
        )
    if array.size == 0:
        raise ValueError(three_part("a scalar", f"an array of shape {array.shape}", "a number"))
    if array.size == 1:
        return float(array.reshape(()).item())
    # float64, or a mean of many float16 values would overflow
    return float(np.mean(array, dtype=np.float64))
