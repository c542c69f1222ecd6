"""Histograms of arrays, with the bins that MindSpore chooses for the same array."""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import three_part
from rec_summary.values import wire
from rec_summary.values.counting import count_float32

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
    """Returns the histogram of an array, see `encode_histogram`."""
    return Summary.Histogram.FromString(encode_histogram(values))


def encode_histogram(values: npt.ArrayLike) -> bytes:
    """Returns the histogram of an array as the bytes of a `Summary.Histogram`.

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
    flat = array.reshape(-1)
    low, high = (flat.min(), flat.max()) if flat.size else (0.0, 0.0)
    counts = (0, 0, 0)
    if not (math.isfinite(low) and math.isfinite(high)):
        flat, counts = _finite(flat)
        low, high = (flat.min(), flat.max()) if flat.size else (0.0, 0.0)
    parts = []
    if flat.size:
        parts.append(_buckets(flat, float(low), float(high)))
    parts += [wire.int_field(n, count) for n, count in zip(_REST, counts, strict=True)]
    if flat.size:
        with np.errstate(over="ignore"):  # an infinite sum of finite values is the truth here
            total = float(flat.sum(dtype=np.float64))
        parts.append(
            wire.double_field(_MAX, float(high))
            + wire.double_field(_MIN, float(low))
            + wire.double_field(_SUM, total)
        )
    parts.append(wire.int_field(_COUNT, array.size))
    return b"".join(parts)


def _finite(flat: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], tuple[int, int, int]]:
    """Returns the finite values, and how many are NaN, positive and negative infinity."""
    mask = np.isfinite(flat)
    rest = flat[~mask]
    positive, negative = np.count_nonzero(rest > 0), np.count_nonzero(rest < 0)
    return flat[mask], (int(rest.size - positive - negative), int(positive), int(negative))


def _buckets(finite: npt.NDArray[Any], low: float, high: float) -> bytes:
    if not low < high:
        margin = max(0.5, abs(low) * 2.0**-45)  # half a unit is nothing beside 1e16
        low, high = max(low - margin, -_LARGEST), min(high + margin, _LARGEST)
    bins = bin_count(finite.size)
    work, scale = finite, 1.0
    resolution = max(abs(low), abs(high)) * float(np.finfo(np.float32).eps)
    narrow = (high - low) / bins < max(4 * resolution, _TINY32)
    counts = None
    if work.dtype != np.float32 or narrow or high - low > _WIDE32:
        # Half-precision edges would collide, 64-bit integers would wrap, the distance between
        # two float32 would overflow.
        work = work.astype(np.float64)
        scale = _scale(low, high)
    else:
        edges = np.linspace(low, high, bins + 1, dtype=np.float32)
        counts = count_float32(work, low, high, edges, resolution)
    if counts is None:
        counts, edges = np.histogram(
            work / scale if scale != 1.0 else work, bins, (low / scale, high / scale)
        )
    widths = np.diff(edges) * scale
    found = []
    for left, width, count in zip(
        (edges[:-1] * scale).tolist(), widths.tolist(), counts.tolist(), strict=True
    ):
        number = _SMALL[count] if count < len(_SMALL) else wire.varint(count)
        length = _BUCKET_BYTES + len(number)
        found.append(_BUCKET.pack(_BUCKETS_KEY, length, _LEFT, left, _WIDTH, width, _IN_IT))
        found.append(number)
    return b"".join(found)


def _scale(low: float, high: float) -> float:
    """A power of two that brings extreme values to where numpy's arithmetic is exact enough."""
    if max(abs(low), abs(high)) > _HUGE64:
        return 2.0**1020
    if high - low < _TINY64:
        return 2.0 ** max(math.floor(math.log2(high - low)), -1074)
    return 1.0


_HISTOGRAM: Final = Summary.Histogram
_REST: Final = tuple(
    wire.number_of(_HISTOGRAM, name) for name in ("nan_count", "pos_inf_count", "neg_inf_count")
)
_MAX, _MIN, _SUM, _COUNT = (
    wire.number_of(_HISTOGRAM, name) for name in ("max", "min", "sum", "count")
)
# A bucket: its key and length, then key and value of left, width and count.
_BUCKET: Final = struct.Struct("<BBBdBdB")
_BUCKET_BYTES: Final = _BUCKET.size - 2  # but for key and length, and without the count
_BUCKETS_KEY: Final = wire.number_of(_HISTOGRAM, "buckets") << 3 | wire.LENGTH
_LEFT, _WIDTH = (
    wire.number_of(_HISTOGRAM.bucket, name) << 3 | wire.FIXED64 for name in ("left", "width")
)
_IN_IT: Final = wire.number_of(_HISTOGRAM.bucket, "count") << 3 | wire.VARINT
_SMALL: Final = [wire.varint(count) for count in range(1 << 12)]
