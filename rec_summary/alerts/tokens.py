"""The words of a rule, and pointing at the one that is wrong."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rec_summary.errors import three_part, verbatim
from rec_summary.series.options import ArgumentError
from rec_summary.series.words import printable

_SHOWN: Final = 36  # characters of a long rule that are shown on each side of a mistake
_TOKEN: Final = re.compile(
    r"""
    (?P<quoted> "(?:[^"\\]|\\.)*" )
    | (?P<operator> >= | <= | == | != | > | < )
    | (?P<bracket> [()] )
    | (?P<run> run:(?=") )
    | (?P<word> [^\s()<>=!"]+ )
    """,
    re.VERBOSE | re.DOTALL,
)


class RuleError(ArgumentError):
    """A text is no rule.

    Attributes:
        column: Where the mistake is: the index of the character in the text, from 0 on.
    """

    def __init__(self, text: str, column: int, received: str, expected: str) -> None:
        self.column = column
        shown = received or verbatim("nothing more")
        message = three_part(f"the rule, at column {column + 1},", shown, expected)
        super().__init__(f"{message}\n{_pointed_at(text, column)}")


class Token(NamedTuple):
    kind: str  # the name of a group of _TOKEN, or "end"
    text: str
    column: int


def tokens(text: str, start: int) -> list[Token]:
    """Splits a rule; the last token is its end."""
    found: list[Token] = []
    at = start
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if at == len(text):
            return [*found, Token("end", "", at)]
        match = _TOKEN.match(text, at)
        if match is None:
            expected = "a closing quotation mark" if text[at] == '"' else "`==` or `!=`"
            raise RuleError(text, at, text[at:], expected)
        assert match.lastgroup is not None  # every alternative is a group
        found.append(Token(match.lastgroup, match[0], at))
        at = match.end()


def unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _pointed_at(text: str, column: int) -> str:
    """Returns the part of a text around a column, and a line with a caret below that."""
    first, last = max(0, column - _SHOWN), column + _SHOWN
    before = ("…" if first else "") + printable(text[first:column])
    after = printable(text[column:last]) + ("…" if last < len(text) else "")
    return f"  {before}{after}\n  {' ' * len(before)}^"
