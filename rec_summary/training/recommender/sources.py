"""The places of inputs: what an option may be that names one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rec_summary.checks import check_type
from rec_summary.errors import three_part

Function = Callable[[Any, Any], Any]
Place = int | str | Function
Source = Place | tuple[Place, int]
"""The place of an input; see `RecommenderMetrics`."""

_SOURCE: Final = (
    "an int, a str, a function of (inputs, outputs), or a pair of one of these and a column"
)


def check_source(name: str, value: object) -> None:
    """Checks an option that names a place.

    Raises:
        TypeError: It has the wrong type.
        ValueError: It is empty, or a tuple of anything but a place and a column.
    """
    place = value
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(three_part(name, value, _SOURCE))
        place, column = value
        check_type(f"the column of {name}", column, int, "an int")
    if isinstance(place, bool) or not (isinstance(place, int | str) or callable(place)):
        raise TypeError(three_part(name, value, _SOURCE))
    if isinstance(place, str) and not place:
        raise ValueError(three_part(name, value, _SOURCE))
