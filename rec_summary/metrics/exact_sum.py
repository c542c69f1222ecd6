"""A sum of float64 numbers without rounding: the same in any order and split.

Every finite float64 is a whole multiple of 2**-1074. Their sum is an int in that unit, and Python's
ints have no limit. This is Kulisch's accumulator ("Computer Arithmetic and Validity", 2013). numpy
adds the numbers of a block in layers, the upper bits first: of each number, as many bits as a
float64 can add up without rounding (Demmel and Nguyen, "Fast Reproducible Floating-Point
Summation", 2013).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.state import Array, Floats, Scalable, Stored, check_factor, register

Places = npt.NDArray[np.intp]

_LOWEST = -1074  # the exponent of the smallest float64 above zero
_HUGE = 960  # an exponent above which `units_of` takes Python's integers
_BLOCK = 1 << 14  # numbers; larger arrays are made of new pages of memory each time
_BITS = 38  # of a number in a layer: the sum of a block has no more than 52


def units_of(numbers: Floats, groups: Places | None = None, count: int = 1) -> list[int]:
    """Returns the sum of the numbers of each group, in units of 2**-1074.

    Args:
        numbers: Finite numbers.
        groups: The group of each number, below `count`; None if there is only one group.
        count: The number of groups.
    """
    sums = [0] * count
    for start in range(0, len(numbers), _BLOCK):
        rest = np.asarray(numbers[start : start + _BLOCK], np.float64)
        places = None if groups is None else groups[start : start + _BLOCK]
        while most := max(rest.max(), -rest.min()):
            highest = math.frexp(most)[1]
            if highest > _HUGE:
                ratios = (each.as_integer_ratio() for each in rest.tolist())
                every = [0] * len(rest) if places is None else places.tolist()
                for group, (number, divisor) in zip(every, ratios, strict=True):
                    sums[group] += units_of_whole(number) // divisor
                break
            unit = max(highest - _BITS, _LOWEST)
            # Adding this, and taking it away, rounds to multiples of 2**unit.
            rounding = math.ldexp(1.5, 52 + unit)
            upper = rest + rounding
            upper -= rounding
            totals = [upper.sum()] if places is None else np.bincount(places, upper, count)
            for group, total in enumerate(totals):
                sums[group] += int(math.ldexp(total, -unit)) << unit - _LOWEST
            rest = rest - upper
    return sums


def units_of_whole(number: int) -> int:
    """Returns an int in units of 2**-1074."""
    return number << -_LOWEST


@register
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

    def add_whole(self, number: int) -> None:
        """Adds one int."""
        self._units += units_of_whole(number)

    def value(self) -> float:
        """Returns the sum, correctly rounded to float64; infinite if it is too large."""
        try:
            return self._units / (1 << -_LOWEST)
        except OverflowError:
            return float("inf") if self._units > 0 else float("-inf")

    def scale(self, factor: float) -> None:
        """Multiplies the sum by `factor`, rounded down to a multiple of 2**-1074."""
        numerator, denominator = check_factor(factor).as_integer_ratio()
        self._units = self._units * numerator // denominator

    def arrays(self) -> dict[str, Array]:
        """Returns the number of units, as a little-endian two's complement number of bytes."""
        size = self._units.bit_length() // 8 + 1
        data = self._units.to_bytes(size, "little", signed=True)
        return {"units": np.frombuffer(data, np.uint8).copy()}

    @classmethod
    def _restored(cls, arrays: Stored) -> ExactSum:
        data = arrays.take("units", np.uint8, (None,))
        if not 1 <= len(data) <= 1024:
            raise ValueError(three_part("The size of an exact sum", len(data), "1 to 1024 bytes"))
        return cls(int.from_bytes(data.tobytes(), "little", signed=True))
