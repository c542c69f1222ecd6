"""Reading rules: `run:prod/* calibration > 1.1 and auc < 0.7 for 5m`.

    rule       = [ name ":" ] [ "run:" pattern ] ( silence | any [ "for" span ] )
    silence    = [ tag ] "no data for" time
    any        = all { "or" all }
    all        = part { "and" part }
    part       = "(" any ")" | tag test
    test       = ( ">" | ">=" | "<" | "<=" | "==" | "!=" ) number
               | "is nan" | "is not finite"
               | ( "drops" | "rises" ) number [ "%" ] "within" span
    span       = time | number "steps"
    time       = number ( "s" | "m" | "h" | "d" )
    tag        = word | '"' characters '"'

Text from a user is only ever compared with this; nothing of it is executed.
"""

from __future__ import annotations

import math
import re
from typing import Final

from rec_summary.alerts.conditions import (
    SECONDS,
    STEPS,
    AllOf,
    AnyOf,
    Change,
    Compare,
    Condition,
    IsNan,
    NotFinite,
    Pattern,
    Rule,
    Silence,
    Span,
    float32,
)
from rec_summary.alerts.tokens import RuleError, Token, tokens, unquoted

_LONGEST: Final = 2000
_DEEPEST: Final = 20

_NAME: Final = re.compile(r"\s*([A-Za-z][\w.-]*):(?=\s)", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_AMOUNT: Final = re.compile(rf"({_NUMBER.pattern})([a-z%]*)", re.ASCII)
_RESERVED: Final = frozenset(("and", "or", "for", "no", "is", "drops", "rises", "within"))
_TEST: Final = "`>`, `>=`, `<`, `<=`, `==`, `!=`, `is`, `drops`, `rises` or `no data` after the tag"


def parse(text: str) -> Rule:
    """Returns the rule that a text states; `parse(str(rule)) == rule`.

    Raises:
        RuleError: It states none; the message points at the place.
    """
    return _Parser(text).rule()


class _Parser:
    """Goes through a rule's tokens from left to right, with one of them in view."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > _LONGEST:
            raise RuleError(text, _LONGEST, text, f"at most {_LONGEST} characters")
        name = _NAME.match(text)
        self._name = None if name is None else name[1]
        self._tokens = tokens(text, 0 if name is None else name.end())
        self._at = 0
        if name is not None and name[1] == "run":
            column = name.start(1)
            raise RuleError(text, column, "run:", "a run's name or pattern right behind `run:`")

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def rule(self) -> Rule:
        run = self._run()
        condition: Condition | Silence
        silence = self._silence()
        if silence is not None:
            condition, lasting = silence, None
            self._end("the end: `no data` is a rule of its own, with a time of its own")
        else:
            condition = self._any(0)
            lasting = self._span() if self._took("for") else None
            once = "the end: `for` stands there, once, for the whole rule"
            self._end(once if lasting else "the end, `and`, `or` or `for`")
        return Rule(condition, lasting, run, self._name)

    def _run(self) -> Pattern | None:
        token = self._next
        if token.kind == "run":
            self._at += 1
            quoted = self._next
            if quoted.kind != "quoted" or quoted.text == '""':
                raise self._wrong("a run's name in quotation marks")
            self._at += 1
            return Pattern(unquoted(quoted.text), exact=True)
        if token.kind == "word" and token.text.startswith("run:"):
            if token.text == "run:":
                raise self._wrong("a run's name or pattern right behind `run:`")
            self._at += 1
            return Pattern(token.text.removeprefix("run:"))
        return None

    def _silence(self) -> Silence | None:
        """Takes a whole `no data` rule, if this is one."""
        start = self._at
        tag = None
        if not self._is("no"):
            if self._next.kind not in ("word", "quoted") or self._is(*_RESERVED):
                return None
            tag = self._tag()
            if not self._is("no"):
                self._at = start
                return None
        self._expect("no", "data", "for")
        column = self._next
        span = self._span()
        if span.seconds is None:
            raise self._wrong("a time such as `10m`; steps do not pass without data", column)
        return Silence(tag, span)

    def _any(self, depth: int) -> Condition:
        parts = [self._all(depth)]
        while self._took("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self, depth: int) -> Condition:
        parts = [self._part(depth)]
        while self._took("and"):
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _part(self, depth: int) -> Condition:
        if self._next.text == "(" and self._next.kind == "bracket":
            if depth == _DEEPEST:
                raise self._wrong(f"at most {_DEEPEST} brackets within each other")
            self._at += 1
            inner = self._any(depth + 1)
            if self._next.kind != "bracket" or self._next.text != ")":
                raise self._wrong("`)`, `and` or `or`")
            self._at += 1
            return inner
        tag = self._tag()
        token = self._next
        if token.kind == "operator":
            self._at += 1
            return Compare(tag, token.text, self._number())
        if self._took("is"):
            return self._kind(tag)
        if self._is("drops", "rises"):
            self._at += 1
            return self._change(tag, rises=token.text.lower() == "rises")
        if self._is("no"):
            raise self._wrong(f"{_TEST}; `no data` only in a rule of its own")
        raise self._wrong(_TEST)

    def _kind(self, tag: Pattern) -> Condition:
        if self._took("nan"):
            return IsNan(tag)
        if self._is("not"):
            self._expect("not", "finite")
            return NotFinite(tag)
        raise self._wrong("`nan` or `not finite`")

    def _change(self, tag: Pattern, *, rises: bool) -> Change:
        token = self._next
        match = _AMOUNT.fullmatch(token.text) if token.kind == "word" else None
        expected = "a positive amount, such as `5%` or `0.02`"
        if match is None or match[2] not in ("", "%"):
            raise self._wrong(expected)
        amount = float(match[1])
        if not 0 < amount < math.inf:
            raise self._wrong(expected)
        self._at += 1
        relative = match[2] == "%"
        if not relative and self._took("%"):
            relative = True
        self._expect("within")
        return Change(tag, rises, amount, relative, self._span())

    def _tag(self) -> Pattern:
        token = self._next
        if token.kind == "quoted":
            self._at += 1
            if token.text == '""':
                raise self._wrong("a tag", token)
            return Pattern(unquoted(token.text), exact=True)
        if token.kind != "word" or self._is(*_RESERVED):
            reserved = " (in quotation marks if that is its name)" if token.kind == "word" else ""
            raise self._wrong(f"a tag or a pattern for tags{reserved}")
        if token.text.startswith(("#", "run:")) or token.text.endswith(":"):
            raise self._wrong("a tag; one like this in quotation marks, `run:` only in front")
        self._at += 1
        return Pattern(token.text)

    def _number(self) -> float:
        token = self._next
        if token.kind == "word" and _NUMBER.fullmatch(token.text):
            number = float(token.text)
            try:
                float32(number)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                self._at += 1
                return number
        raise self._wrong("a number that a float32 can hold, such as `1.1` or `-2e-3`")

    def _span(self) -> Span:
        token = self._next
        expected = "a time or a number of steps, such as `30s`, `5m`, `2h`, `1d` or `100 steps`"
        match = _AMOUNT.fullmatch(token.text) if token.kind == "word" else None
        if match is None:
            raise self._wrong(expected)
        amount, unit = float(match[1]), match[2]
        if not unit and self._tokens[self._at + 1].kind == "word":
            self._at += 1
            unit = self._next.text.lower()
        unit = STEPS if unit in ("step", STEPS) else unit
        if unit not in SECONDS and unit != STEPS:
            raise self._wrong(expected)
        if not 0 < amount < math.inf or (unit == STEPS and amount != int(amount)):
            raise self._wrong("a positive amount, and a whole number of steps", token)
        self._at += 1
        return Span(amount, unit)

    def _is(self, *words: str) -> bool:
        return self._next.kind == "word" and self._next.text.lower() in words

    def _took(self, word: str) -> bool:
        found = self._is(word)
        self._at += found
        return found

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._took(word):
                raise self._wrong(f"`{word}`")

    def _end(self, expected: str) -> None:
        if self._next.kind != "end":
            raise self._wrong(expected)

    def _wrong(self, expected: str, token: Token | None = None) -> RuleError:
        token = token or self._next
        return RuleError(self._text, token.column, token.text, expected)
