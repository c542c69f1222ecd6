"""Histograms of arrays, with the bins that MindSpore chooses for the same array."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import three_part

MAX_BINS: Final = 90

_TINY32: Final = 1e-30  # bins narrower than this are not safe in float32
_WIDE32: Final = 1e38
_TINY64: Final = 1e-290
_LARGEST: Final = float(np.finfo(np.float64).max)
_HUGE64: Final = 1e300  # the distance between two such values would overflow


def bin_count(valid: int) -> int:
    """Returns how many bins MindSpore gives a histogram of `valid` finite values."""
    if valid == 0:
        return 1
    if valid <= 5:
        return 2
    if valid <= 10:
        return 3
    return min(valid // 10 + 1, MAX_BINS)


def histogram(values: npt.ArrayLike) -> Summary.Histogram:
    """Returns the histogram of an array.

    Count is of all values; min, max, sum and the buckets are of the finite ones, as
    MindSpore has it (`mindspore.train.summary`). Where min equals max, the buckets span
    one unit around it. An array without finite values has no buckets.

    Args:
        values: An array of real numbers or booleans, of any shape.

    Raises:
        TypeError: It does not hold real numbers.
    """
    array = np.asarray(values)
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    if array.dtype.kind not in "fiu":
        raise TypeError(three_part("a histogram's array", array.dtype, "real numbers"))
    result = Summary.Histogram(count=array.size, nan_count=0, pos_inf_count=0, neg_inf_count=0)
    flat = array.reshape(-1)
    finite = _finite(flat, result)
    if finite.size == 0:
        return result
    low, high = finite.min(), finite.max()
    result.min, result.max = float(low), float(high)
    with np.errstate(over="ignore"):  # an infinite sum of finite values is the truth here
        result.sum = float(finite.sum(dtype=np.float64))
    _fill_buckets(finite, float(low), float(high), result)
    return result


def _finite(flat: npt.NDArray[Any], result: Summary.Histogram) -> npt.NDArray[Any]:
    """Returns the finite values and counts the others; most arrays are returned as they are."""
    if flat.dtype.kind != "f" or flat.size == 0:
        return flat
    mask = np.isfinite(flat)
    if mask.all():
        return flat
    rest = flat[~mask]
    result.nan_count = int(np.count_nonzero(np.isnan(rest)))
    result.pos_inf_count = int(np.count_nonzero(rest > 0))
    result.neg_inf_count = int(np.count_nonzero(rest < 0))
    finite: npt.NDArray[Any] = flat[mask]
    return finite


def _fill_buckets(
    finite: npt.NDArray[Any], low: float, high: float, result: Summary.Histogram
) -> None:
    if not low < high:
        margin = max(0.5, abs(low) * 2.0**-45)  # half a unit is nothing beside 1e16
        low, high = max(low - margin, -_LARGEST), min(high + margin, _LARGEST)
    bins = bin_count(finite.size)
    work, scale = finite, 1.0
    resolution = max(abs(low), abs(high)) * float(np.finfo(np.float32).eps)
    narrow = (high - low) / bins < max(4 * resolution, _TINY32)
    if work.dtype != np.float32 or narrow or high - low > _WIDE32:
        # Half-precision edges would collide, 64-bit integers would wrap, the distance between
        # two float32 would overflow.
        work = work.astype(np.float64)
        scale = _scale(low, high)
    counts, edges = np.histogram(
        work / scale if scale != 1.0 else work, bins, (low / scale, high / scale)
    )
    widths = np.diff(edges) * scale
    for left, width, count in zip(
        (edges[:-1] * scale).tolist(), widths.tolist(), counts.tolist(), strict=True
    ):
        result.buckets.add(left=left, width=width, count=count)


def _scale(low: float, high: float) -> float:
    """A power of two that brings extreme values to where numpy's arithmetic is exact enough."""
    if max(abs(low), abs(high)) > _HUGE64:
        return 2.0**1020
    if high - low < _TINY64:
        return 2.0 ** max(math.floor(math.log2(high - low)), -1074)
    return 1.0
