"""A sum of float64 numbers without rounding: the same in any order and split.

Every finite float64 is a whole multiple of 2**-1074. Their sum is an int in that unit, and Python's
ints have no limit. This is Kulisch's accumulator ("Computer Arithmetic and Validity", 2013). numpy
adds the numbers of a batch by exponent, without rounding: each half of a significand has at most
27 bits, so that a float64 holds the sum of 2**26 of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.state import Array, Floats, Scalable, Stored, check_factor, register

Places = npt.NDArray[np.intp]

_LOWEST = -1074  # the exponent of the smallest float64 above zero
_HALF = 26  # bits of the upper half of a significand; the lower half has 27
_MOST = 1 << 25  # numbers in one pass


def units_of(numbers: Floats, groups: Places | None = None, count: int = 1) -> list[int]:
    """Returns the sum of the numbers of each group, in units of 2**-1074.

    Args:
        numbers: 1 to 2**25 finite numbers.
        groups: The group of each number, below `count`; None if there is only one group.
        count: The number of groups.
    """
    significands, exponents = np.frexp(numbers)
    lowest = int(exponents.min())
    places = exponents.astype(np.intp) - lowest
    width = int(places.max()) + 1
    if groups is not None:
        places += groups * width
    significands *= 1 << _HALF
    whole = np.trunc(significands)
    significands -= whole
    uppers = np.bincount(places, whole, count * width).reshape(count, width)
    # Lower halves are multiples of 2**-27 of the unit of the upper halves.
    lowers = np.bincount(places, significands, count * width).reshape(count, width) * (1 << 27)
    shift = lowest - _HALF - 27 - _LOWEST
    sums = []
    for row in zip(uppers.tolist(), lowers.tolist(), strict=True):
        total = 0
        for place, (upper, lower) in enumerate(zip(*row, strict=True)):
            if upper or lower:
                total += (int(upper) << 27) + int(lower) << place
        # The shift to the right drops zeros only, those of subnormal numbers.
        sums.append(total << shift if shift >= 0 else total >> -shift)
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
        for start in range(0, len(numbers), _MOST):
            self._units += units_of(numbers[start : start + _MOST])[0]

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
