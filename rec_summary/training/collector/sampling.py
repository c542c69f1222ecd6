"""Copies of parameters for histograms: whole, or of large tables a sample.

A table of a recommender may have more values than can be copied between two steps, and more than
a histogram needs: of 65,536 values, the count of a bin with one value in ninety is right within
4 % (one standard deviation). So of a larger parameter every k-th row is taken. Each time it is
the next row of every k, and after k times all have been seen.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from mindspore import Tensor, ops

from rec_summary.training.collector.operators import own_array
from rec_summary.training.collector.step_view import is_on_cpu

_FEWEST_ROWS: Final = 16  # with fewer, a row is too large a part of the sample


class Sample(NamedTuple):
    """Some values of a parameter.

    Attributes:
        values: Owned by whoever has it, of any shape.
        population: How many values the parameter has; None if these are all.
    """

    values: npt.NDArray[Any]
    population: int | None


def sample(parameter: Any, most: int | None, turn: int) -> Sample:
    """Returns a copy of a parameter, or of every k-th of its rows.

    Args:
        parameter: A `Parameter` of any shape.
        most: How many values are wanted at most; None for all.
        turn: How often this has been done before: it chooses the rows.

    Raises:
        TypeError: It does not hold real numbers.
    """
    shape = parameter.shape
    size = math.prod(shape)
    if most is None or size <= most:
        return Sample(own_array(parameter, parameter.name), None)
    every = -(-size // most)
    by_rows = shape[0] >= _FEWEST_ROWS * every
    first = turn % every
    if is_on_cpu():
        view = np.asarray(parameter.asnumpy())  # of live weights, of any type
        part = (view if by_rows else view.reshape(-1))[first::every]
        return Sample(own_array(part, parameter.name), size)
    whole = parameter if by_rows else parameter.reshape(-1)
    rows = Tensor(np.arange(first, whole.shape[0], every, dtype=np.int64))
    return Sample(own_array(ops.gather(whole, rows, 0), parameter.name), size)
