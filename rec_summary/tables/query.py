"""Filters and sorts the rows of a table of runs: `learning_rate<0.01`, `-auc`."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.errors import three_part
from rec_summary.series.options import ArgumentError, compiled

_PARTS: Final = re.compile(r"\s*(?P<name>.+?)\s*(?P<operator>!=|<=|>=|=|<|>|~)\s*(?P<value>.*?)\s*")
_NUMERIC: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXPECTED: Final = (
    "a name, one of = != < <= > >= ~, and a value: `learning_rate<0.01`, `optimizer=Adam`, "
    "`network~Deep`"
)


@dataclass(frozen=True)
class Filter:
    """A condition on rows.

    Attributes:
        name: The column.
        operator: `=`, `!=`, `<`, `<=`, `>`, `>=`, or `~` for a regular expression.
        value: The value to compare with, as text.
    """

    name: str
    operator: str
    value: str

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            ArgumentError: The operator needs a number or a regular expression, and the value is
                another text.
        """
        if self.operator == "~":
            compiled(self.value, f"the filter of {self.name}")
        elif self.operator in _NUMERIC and _number(self.value) is None:
            raise ArgumentError(
                three_part(f"the filter of {self.name}", self.value, "a number after the operator")
            )

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Whether a row meets the condition; a row without a value meets `!=` only."""
        value = row.get(self.name)
        if value is None:
            return self.operator == "!="
        if self.operator == "~":
            return re.search(self.value, str(value)) is not None
        number, wanted = _number(value), _number(self.value)
        if self.operator in _NUMERIC:
            return number is not None and _NUMERIC[self.operator](number, wanted)
        if number is not None and wanted is not None:
            same = number == wanted or (math.isnan(number) and math.isnan(wanted))
        else:
            same = str(value).casefold() == self.value.casefold()
        return same == (self.operator == "=")


def parse_filter(text: str) -> Filter:
    """Returns the condition of a text such as `learning_rate<0.01`.

    Raises:
        ArgumentError: The text is not a condition.
    """
    match = _PARTS.fullmatch(text)
    if match is None:
        raise ArgumentError(three_part("a filter", text, _EXPECTED))
    return Filter(match["name"], match["operator"], match["value"])


def check_columns(names: Iterable[str], known: Sequence[str]) -> None:
    """Checks that columns exist.

    Raises:
        ArgumentError: A column does not exist; the message has similar names.
    """
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3) or known
            expected = f"one of the columns, such as {', '.join(near[:12])}"
            raise ArgumentError(three_part("a column", name, expected))


def sort_rows(rows: Iterable[Mapping[str, Any]], column: str) -> list[Mapping[str, Any]]:
    """Returns rows sorted by a column; in descending order if its name begins with `-`.

    Numbers come before text; rows without a value, or with NaN, are last in either order.
    """
    name = column.removeprefix("-")

    def missing(row: Mapping[str, Any]) -> bool:
        value = row.get(name)
        return value is None or (isinstance(value, float) and math.isnan(value))

    def key(row: Mapping[str, Any]) -> tuple[bool, float, str]:
        value = row[name]
        number = _number(value)
        return (number is None, 0.0 if number is None else number, str(value))

    found = list(rows)
    present = [row for row in found if not missing(row)]
    present.sort(key=key, reverse=column.startswith("-"))
    return [*present, *(row for row in found if missing(row))]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
