"""Units of work that fail or kill their worker, for engines of every kind."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator, Mapping, Sequence


class Odd(Exception):
    """An error that cannot be sent to another process."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def square(unit: int) -> int:
    """Returns the square of a number."""
    return unit * unit


def counted(units: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields units, each with how many there are together."""
    return ((unit, len(units)) for unit in units)


def same(unit: object) -> object:
    """Returns the unit."""
    return unit


def process(unit: object) -> int:
    """Returns the process that does the unit."""
    return os.getpid()


def threshold(unit: object) -> int:
    """Returns after how many new objects this process searches for cycles."""
    return gc.get_threshold()[0]


def _fail(unit: int, how: str) -> None:
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "odd":
        raise Odd("unit", str(unit))
    raise ValueError(f"unit {unit}")


def fails_always(fates: Mapping[int, str], unit: int) -> int:
    """Returns a unit, unless it is one that dies, or fails to `raise` an error of some kind."""
    if unit in fates:
        _fail(unit, fates[unit])
    return unit


def dies_first(folder: str, bad: Sequence[int], unit: int) -> int:
    """Returns a unit; the first time, which files in a folder tell, bad ones kill their worker."""
    if unit in bad:
        try:
            os.close(os.open(os.path.join(folder, str(unit)), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return unit
        _fail(unit, "die")
    return unit
