"""Filters and sorts the rows of a table of runs: `learning_rate<0.01`, `-auc`."""

from __future__ import annotations

import contextlib
import difflib
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rec_summary.errors import ArgumentError, three_part
from rec_summary.metrics.directions import direction_of
from rec_summary.metrics.tags import EVALUATION, PREFIX
from rec_summary.series.options import compiled, tags_named
from rec_summary.series.overview.rows import BEST, BEST_STEP, OF_ANY_RUN, Row

_PARTS: Final = re.compile(
    r"\s*(?P<name>.+?)\s*(?P<operator>(?:!=|[=<>~])[!=<>~]*)\s*(?P<value>.*?)\s*"
)
_OPERATORS: Final = ("=", "!=", "<", "<=", ">", ">=", "~")
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
_WORDS: Final[Mapping[str, str]] = {
    "greater": "greater is better",
    "less": "less is better",
    "one": "the nearest to 1 is best",
    "zero": "the nearest to 0 is best",
}
_LIFETIME: Final = "/lifetime"  # the window of all examples

_AnyRow = TypeVar("_AnyRow", bound=Mapping[str, Any])


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
            same = number == wanted or (number != number and wanted != wanted)  # NaN
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
    if match["operator"] not in _OPERATORS:
        signs = "a value that begins with such a sign needs a space before it"
        expected = f"one of {' '.join(_OPERATORS)}; {signs}"
        raise ArgumentError(three_part(f"the operator of {text!r}", match["operator"], expected))
    return Filter(match["name"], match["operator"], match["value"])


def column_of(name: str, known: Sequence[str], first: Sequence[str] = ()) -> str:
    """Returns the column that has a name, or the one tag that has it as its short name.

    `auc` is the column `recommender/auc/last_100000`, or `recommender/auc/lifetime` if it is there;
    `best/auc` is the best value of it, and `best_step/auc` the step of that one. A column that any
    run may have is empty if none has it.

    Args:
        name: The name.
        known: The columns.
        first: Metrics of which the first one is meant if several columns have that name.

    Raises:
        ArgumentError: There is no such column, or several; the message has similar names.
    """
    if name in known:
        return name
    kind, metric = _kind_and_metric(name)
    short = re.compile(tags_named(metric))
    every = [(column, *_kind_and_metric(column)) for column in known]
    matching = [column for column, its_kind, tag in every if its_kind == kind and short.search(tag)]
    of_all = [column for column in matching if column.endswith(_LIFETIME)]
    meant = [column for column in (kind + tag for tag in first) if column in matching]
    matching = of_all or matching
    if len(matching) > 1 and meant:
        return meant[0]
    if len(matching) == 1:
        return matching[0]
    if name in OF_ANY_RUN and not matching:
        return name
    names = {*known, *short_names(known).values()}
    if kind and not matching and any(short.search(tag) for _, _, tag in every):
        expected = f"a metric of which a run states which values are better: {remedy(metric)}"
        raise ArgumentError(three_part("a column", name, expected))
    near = matching or difflib.get_close_matches(name, names, 3) or known
    expected = f"one of the columns, such as {', '.join(near[:12])}"
    raise ArgumentError(three_part("a column", name, expected))


def remedy(metric: str) -> str:
    """Returns how a run states which values of a metric are better."""
    return f'metrics={{"{metric}": "greater"}}, or "less", where it is recorded'


def explained(name: str, rows: Iterable[Row]) -> str | None:
    """Returns which values of a metric that rows are sorted by are better, in a line.

    None if all of the runs state the same, of the metrics of recommenders, and of what is none.

    Args:
        name: The column.
        rows: The rows.
    """
    metric = _kind_and_metric(name)[1]
    said = {row.directions[metric] for row in rows if metric in row.directions}
    guess = direction_of(metric)
    if len({each or guess for each in said}) > 1:
        return f"{metric}: the runs state different directions, and each one's own counts"
    if "" not in said or metric.startswith(PREFIX):
        return None
    how = f"{_WORDS[guess]}, as its name says" if guess else "no direction is known"
    return f"{metric}: {how}; to state it: {remedy(metric.removeprefix(EVALUATION))}"


def short_names(known: Sequence[str]) -> dict[str, str]:
    """Returns the shortest name of each column by which `column_of` finds it."""
    candidates = {name: dict.fromkeys(_endings(name, known)) for name in known}
    counts = Counter(ending for endings in candidates.values() for ending in endings)
    return {
        name: next((ending for ending in endings if counts[ending] == 1), name)
        for name, endings in candidates.items()
    }


def _endings(name: str, known: Sequence[str]) -> Iterator[str]:
    """Yields the short names of a tag, the shortest first, and the tag itself."""
    kind, tag = _kind_and_metric(name)
    of_all = re.sub(r"/last_\d+$", _LIFETIME, tag)
    shown = tag if kind + of_all in known else of_all
    for text in (re.sub("/(?:auto|lifetime)$", "", shown), tag):
        parts = text.split("/")
        least = 2 if re.search(r"/(?:last|decayed)_\d+$", text) else 1  # no window by itself
        for count in range(least, len(parts) + 1):
            yield kind + "/".join(parts[-count:])


def _kind_and_metric(name: str) -> tuple[str, str]:
    """Returns what is before the name of a metric in that of a column, and this name."""
    kind = next((prefix for prefix in (BEST, BEST_STEP) if name.startswith(prefix)), "")
    return kind, name[len(kind) :]


def sort_rows(rows: Iterable[_AnyRow], name: str, *, descending: bool = False) -> list[_AnyRow]:
    """Returns rows sorted by a column.

    Numbers come before text, in descending order after it. Rows without a value, or with NaN, are
    last in either order.
    """
    places = [(_place(row.get(name)), row) for row in rows]
    present = [(place, row) for place, row in places if place is not None]
    present.sort(key=operator.itemgetter(0), reverse=descending)
    return [row for _, row in present] + [row for place, row in places if place is None]


def _place(value: object) -> tuple[bool, int | float, str] | None:
    """Returns what decides the place of a value in an order; None if it has no place."""
    number = _number(value)
    if value is None or (number is not None and number != number):  # a text may say `nan`
        return None
    return number is None, number or 0.0, str(value)


def _number(value: Any) -> int | float | None:
    if isinstance(value, int | float):
        return value
    for kind in (int, float):  # Python compares the two exactly
        with contextlib.suppress(TypeError, ValueError):
            return kind(value)
    return None
