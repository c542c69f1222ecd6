"""Scalars: one number from a number or an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from rec_summary.errors import three_part


def to_number(value: Any) -> float:
    """Returns a number, or the mean of an array of numbers, as a float.

    NaN and infinities are kept. Source: MindSpore's collector takes the mean of a loss with more
    than one element.

    Args:
        value: A Python or numpy number, or an array-like of any shape with real numbers.

    Raises:
        TypeError: The value does not hold real numbers.
        ValueError: The array is empty.
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
    # float64, so that the mean of many float16 values does not overflow
    return float(np.mean(array, dtype=np.float64))
