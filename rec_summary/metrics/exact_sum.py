"""A sum of float64 numbers without rounding: the same in any order and split.

Every finite float64 is a whole multiple of 2**-1074. Their sum is an int in that unit, and Python's
ints have no limit. This is Kulisch's accumulator ("Computer Arithmetic and Validity", 2013). numpy
adds the numbers of a block in layers, the upper bits first: of each number, as many bits as a
float64 can add up without rounding (Demmel and Nguyen, "Fast Reproducible Floating-Point
Summation", 2013).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np

from rec_summary.arrays import Array, Floats
from rec_summary.errors import three_part
from rec_summary.metrics.state import Scalable, Stored

_LOWEST = -1074  # the exponent of the smallest float64 above zero
_HUGE = 960  # an exponent above which `units_of` takes Python's integers
_BLOCK = 1 << 14  # numbers; larger arrays are made of new pages of memory each time
_BITS = 38  # of a number in a layer: the sum of a block has no more than 52


def units_of(numbers: Floats, starts: Sequence[int] = (0,)) -> list[int]:
    """Returns the sum of each part of the numbers, in units of 2**-1074.

    Args:
        numbers: Finite numbers.
        starts: Where each part begins, the first one at 0; none is empty.
    """
    sums = [0] * len(starts)
    for start in range(0, len(numbers), _BLOCK):
        rest = np.asarray(numbers[start : start + _BLOCK], np.float64)
        first = bisect.bisect_right(starts, start) - 1  # the part in which the block begins
        later = starts[first + 1 : bisect.bisect_left(starts, start + _BLOCK)]
        places = [0, *(place - start for place in later)]
        while most := max(rest.max(), -rest.min()):
            highest = math.frexp(most)[1]
            if highest > _HUGE:
                for part, of_part in enumerate(np.split(rest, places[1:]), first):
                    ratios = (number.as_integer_ratio() for number in of_part.tolist())
                    sums[part] += sum(units_of_whole(above) // below for above, below in ratios)
                break
            unit = max(highest - _BITS, _LOWEST)
            # Adding this, and taking it away, rounds to multiples of 2**unit.
            rounding = math.ldexp(1.5, 52 + unit)
            upper = rest + rounding
            upper -= rounding
            for part, total in enumerate(np.add.reduceat(upper, places).tolist(), first):
                sums[part] += int(math.ldexp(total, -unit)) << unit - _LOWEST
            rest = rest - upper
    return sums


def units_of_whole(number: int) -> int:
    """Returns an int in units of 2**-1074."""
    return number << -_LOWEST


class ExactSum(Scalable):
    """The exact sum of finite float64 numbers, as a mergeable state."""

    _sums = ("_units",)

    def __init__(self, units: int = 0) -> None:
        """Starts at ``units * 2**-1074``."""
        self._units = units

    def add(self, numbers: Floats) -> None:
        """Adds finite numbers, shape (numbers,)."""
        self._units += units_of(numbers)[0]

    def add_units(self, units: int) -> None:
        """Adds ``units * 2**-1074``, as of `units_of`."""
        self._units += units

    def value(self) -> float:
        """Returns the sum, correctly rounded to float64; infinite if it is too large."""
        try:
            return self._units / (1 << -_LOWEST)
        except OverflowError:
            return float("inf") if self._units > 0 else float("-inf")

    def scale(self, factor: float) -> None:
        """Multiplies the sum by `factor`, rounded down to a multiple of 2**-1074."""
        numerator, denominator = factor.as_integer_ratio()
        self._units = self._units * numerator // denominator

    def arrays(self) -> dict[str, Array]:
        """Returns the number of units, as a little-endian two's complement number of bytes."""
        size = self._units.bit_length() // 8 + 1
        data = self._units.to_bytes(size, "little", signed=True)
        return {"units": np.frombuffer(data, np.uint8)}

    @classmethod
    def _restored(cls, arrays: Stored) -> ExactSum:
        data = arrays.take("units", np.uint8, (None,))
        if not 1 <= len(data) <= 1024:
            raise ValueError(three_part("The size of an exact sum", len(data), "1 to 1024 bytes"))
        return cls(int.from_bytes(data.tobytes(), "little", signed=True))
