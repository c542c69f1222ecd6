"""Rules with a name of their own, and gathering rules from the command line and files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from rec_summary.alerts.conditions import Rule
from rec_summary.alerts.grammar import parse
from rec_summary.alerts.tokens import RuleError
from rec_summary.errors import three_part, verbatim
from rec_summary.series.options import ArgumentError
from rec_summary.series.words import printable

BUILTIN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nan-loss": "*[Ll]oss* is not finite",
        "stall": "no data for 10m",
        "auc-drop": "*[Aa][Uu][Cc]* drops 5% within 1d",
    }
)
"""What `nan-loss` and the other names stand for; all of them are watched by default."""

_BARE_NAME: Final = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


def read_rule(text: str) -> Rule:
    """Returns the rule that a text states or names.

    Raises:
        RuleError: It does neither.
    """
    name = text.strip()
    if name in BUILTIN:
        return parse(f"{name}: {BUILTIN[name]}")
    try:
        return parse(text)
    except RuleError as error:
        if not _BARE_NAME.fullmatch(name):
            raise
        column = text.index(name)
        expected = f"one of {', '.join(BUILTIN)}, or a rule such as `{name} > 1.1 for 5m`"
        raise RuleError(text, column, name, expected) from error


def read_rules_file(path: str | os.PathLike[str]) -> list[Rule]:
    """Returns the rules of a file: one in each line; `#` at the start of a word begins a comment.

    Raises:
        ArgumentError: The file cannot be read, or a line is no rule; the line is named.
    """
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        received = verbatim(f"{printable(path)} ({why})")
        raise ArgumentError(three_part("the file of rules", received, "a text file")) from error
    found = []
    for number, line in enumerate(lines, 1):
        text = _without_comment(line).rstrip()
        if not text.strip():
            continue
        try:
            found.append(read_rule(text))
        except RuleError as error:
            raise ArgumentError(f"{printable(path)}, line {number}: {error}") from error
    return found


def gather(texts: Iterable[str], files: Iterable[str | os.PathLike[str]]) -> tuple[Rule, ...]:
    """Returns the rules that are asked for, or the built-in ones if none are.

    The same rule twice is taken once.

    Args:
        texts: Rules, or names of built-in ones.
        files: Files of rules.

    Raises:
        ArgumentError: A text or a line is no rule, a file cannot be read or holds no rule, or
            two rules have the same name.
    """
    rules = [read_rule(text) for text in texts]
    asked = bool(rules)
    for path in files:
        asked = True
        more = read_rules_file(path)
        if not more:
            received = verbatim(printable(os.fspath(path)))
            raise ArgumentError(three_part("the file of rules", received, "at least one rule"))
        rules += more
    if not asked:
        rules = [read_rule(name) for name in BUILTIN]
    rules = list(dict.fromkeys(rules))
    named: dict[str, Rule] = {}
    for rule in rules:
        other = named.setdefault(rule.title, rule)
        if other is not rule:
            expected = f"names that differ; it is the name of `{other.text}` already"
            raise ArgumentError(three_part("the name of a rule", rule.title, expected))
    return tuple(rules)


def _without_comment(line: str) -> str:
    quoted = escaped = False
    for at, character in enumerate(line):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line
