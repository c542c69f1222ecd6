"""Tensors to the dashboards that can show something of them.

TensorBoard has no dashboard for tensors. Others show the distribution of the elements as a
histogram, shape and statistics as a table in Text, and a matrix as a picture in Images.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from PIL import Image

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.arrays import Array, Bytes, Floats
from rec_summary.tensorboard.dashboards import colours
from rec_summary.tensorboard.dashboards.graphs import type_name
from rec_summary.tensorboard.dashboards.histograms import HistogramMapper
from rec_summary.tensorboard.dashboards.images import picture
from rec_summary.tensorboard.dashboards.points import Point, ValueMapper
from rec_summary.tensorboard.dashboards.scalars import scalar
from rec_summary.tensorboard.dashboards.text import table, text_point
from rec_summary.values.histogram import histogram
from rec_summary.values.tensor import from_tensor

STATISTICS: Final = "statistics"
HEAT_MAP: Final = "heat_map"
_SHOWN: Final = 20  # elements in the table
_LARGEST: Final = 512  # pixels of a heat map's side
_SMALLEST: Final = 128  # so that a small matrix can be seen
_OUTLIERS: Final = (0.5, 99.5)  # percentiles; what is beyond has the last colour


class TensorMapper(ValueMapper):
    """Maps a tensor of one element to a scalar, any other to a histogram and a table.

    The table is `<tag>/statistics`. A matrix also has a picture, `<tag>/heat_map`.

    Attributes:
        memory: What its histograms have to remember.
    """

    def __init__(self) -> None:
        super().__init__()
        self._histograms = HistogramMapper()
        self.memory = self._histograms.memory

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the points for a value that holds a tensor.

        Raises:
            ValueError: The tensor's elements do not fit its type or shape.
        """
        array = from_tensor(value.tensor)
        if array.size == 1:
            yield scalar(tag, float(array.reshape(())))
            return
        message = Summary.Value(tag=tag, histogram=histogram(array))
        yield from self._histograms(tag, message)
        name = type_name(value.tensor.data_type)
        yield text_point(f"{tag}/{STATISTICS}", table("", statistics(array, name)))
        if array.ndim == 2 and array.size:
            yield picture(f"{tag}/{HEAT_MAP}", functools.partial(heat_map, array))


def statistics(array: Array, dtype: str) -> Iterator[tuple[str, object]]:
    """Yields the facts about a tensor: names and values.

    Statistics are of the finite elements, in float64.
    """
    yield "shape", " × ".join(str(size) for size in array.shape) or "a single number"
    yield "type", dtype
    yield "elements", f"{array.size:,}"
    if not array.size:
        return
    numbers = array.astype(np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    if finite.size:
        with np.errstate(over="ignore", invalid="ignore"):
            described = {
                "minimum": finite.min(),
                "maximum": finite.max(),
                "mean": finite.mean(),
                "standard deviation": finite.std(),
                "median": np.median(finite),
                "L2 norm": math.sqrt(float(np.sum(finite * finite))),
            }
        for name, number in described.items():
            yield name, f"{number:.6g}"
    yield "zeros", f"{int(np.count_nonzero(numbers == 0)):,}"
    for name, mask in (("NaN", np.isnan(numbers)), ("infinite", np.isinf(numbers))):
        if mask.any():
            yield name, f"{np.count_nonzero(mask):,}"
    elements = ", ".join(f"{number:.6g}" for number in numbers[:_SHOWN])
    yield "first elements", elements + (", …" if array.size > _SHOWN else "")


def heat_map(matrix: Array) -> Image.Image:
    """Draws a matrix.

    Rows run downwards. Negative numbers are blue, positive ones red, and zero nearly white;
    if all have one sign, dark is the least and light the greatest. Outliers
    do not count for the range of colours; NaN and infinities are magenta. A large matrix is reduced
    to the means of its blocks, a small one enlarged.

    Args:
        matrix: Shape (rows, columns), neither of them 0.
    """
    return Image.fromarray(_enlarged(colour(_reduced(matrix.astype(np.float64)))))


def colour(matrix: Floats) -> Bytes:
    """Returns the colours of a matrix: shape (rows, columns, 3)."""
    matrix = np.where(np.isfinite(matrix), matrix, math.nan)
    finite = matrix[~np.isnan(matrix)]
    if not finite.size:
        return colours.sequential(matrix)
    low, high = (float(percentile) for percentile in np.percentile(finite, _OUTLIERS))
    if low == high:
        low, high = float(finite.min()), float(finite.max())
    if low < 0 < high:
        most = max(-low, high)
        return colours.diverging(np.clip(matrix / most, -1, 1))
    width = high - low
    if not width or not math.isfinite(width):
        return colours.sequential(np.where(np.isnan(matrix), math.nan, 0.5))
    return colours.sequential((np.clip(matrix, low, high) - low) / width)


def _reduced(matrix: Floats) -> Floats:
    """Returns the means of blocks, so many that neither side is too long."""
    for axis in (0, 1):
        size = matrix.shape[axis]
        if size > _LARGEST:
            starts = np.linspace(0, size, _LARGEST, endpoint=False).astype(np.intp)
            counts = np.diff(np.append(starts, size))
            with np.errstate(over="ignore", invalid="ignore"):
                sums = np.add.reduceat(matrix, starts, axis=axis)
                matrix = sums / (counts[:, None] if axis == 0 else counts)
    return matrix


def _enlarged(pixels: Bytes) -> Bytes:
    """Repeats pixels so that both sides can be seen; those of a small matrix stay square."""
    factor = math.ceil(_SMALLEST / max(pixels.shape[:2]))
    for axis in (0, 1):
        side = pixels.shape[axis] * factor
        stretch = factor * (_SMALLEST // side if side < _SMALLEST // 2 else 1)
        pixels = np.repeat(pixels, stretch, axis=axis)
    return pixels
