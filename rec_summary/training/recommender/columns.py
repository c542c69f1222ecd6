"""Where inputs come from: places, and `Feature`, a column with what is known of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rec_summary.checks import check_that, check_type
from rec_summary.errors import three_part

Function = Callable[[Any, Any], Any]
Place = int | str | Function
Source = Place | tuple[Place, int]
"""The place of an input; see `RecommenderMetrics`."""

ColumnT = TypeVar("ColumnT", bound=Any)
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
        check_that(len(value) == 2, name, value, _SOURCE)
        place, column = value
        check_type(f"the column of {name}", column, int, "an int")
    if isinstance(place, bool) or not (isinstance(place, int | str) or callable(place)):
        raise TypeError(three_part(name, value, _SOURCE))
    check_that(not isinstance(place, str) or place, name, value, _SOURCE)


@dataclass(frozen=True)
class Feature:
    """A column for `RecommenderMetrics(features={"age": Feature("age", low=0, high=120)})`.

    Attributes:
        column: The place of the column.
        default: The value that stands for an unknown one, such as 0 or ``"unknown"``: its share is
            recorded.
        low: The least value; the share of smaller ones is recorded as out of range.
        high: The largest value.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    column: Source
    default: float | str | None = None
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        """Checks the options."""
        check_source("column", self.column)
        check_type("default", self.default, (int, float, str, type(None)), "a number, str or None")
        for name in ("low", "high"):
            check_type(name, getattr(self, name), (int, float), "a number")
        check_that(self.low <= self.high, "low, high", (self.low, self.high), "low at most high")


def columns_of(option: str, columns: Mapping[str, Any], kind: type[ColumnT]) -> dict[str, ColumnT]:
    """Returns the columns of an option by name; places become columns with default options.

    Raises:
        TypeError: One is neither of this kind nor a place.
        ValueError: A place is invalid.
    """
    checked = {}
    for name, column in columns.items():
        if not isinstance(column, kind):
            check_source(f"{option}[{name!r}]", column)
            column = kind(column)
        checked[name] = column
    return checked
