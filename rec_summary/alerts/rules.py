"""Rules: what an alert is raised for, and how a rule is read from text.

    rule      = [ name ":" ] ( [ tag ] "no data for" time | "quality changes within" time
                             | tag condition [ "for" time ] )
    condition = ( ">" | ">=" | "<" | "<=" | "==" | "!=" ) number
              | "is not finite"
              | ( "drops" | "rises" ) number [ "%" ] "within" time
    time      = number ( "s" | "m" | "h" | "d" )
    tag       = word | '"' characters '"'

A rule has one condition. Records hold float32 values, so a number in a rule means the nearest
float32: a learning rate that is recorded as 0.1 is `== 0.1`.
"""

from __future__ import annotations

import fnmatch
import math
import operator
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

from rec_summary.errors import ArgumentError, three_part, verbatim
from rec_summary.series.options import SECONDS, tags_named
from rec_summary.series.text import printable

ERRORS: Final = "rec_summary/errors"
"""The tag of how often telemetry has failed; the lineage says it as well, by kinds."""

BUILTIN: Final[Mapping[str, str]] = {
    "nan-loss": "*[Ll]oss* is not finite",
    "stall": "no data for 10m",
    "auc-drop": "*[Aa][Uu][Cc]* drops 5% within 1d",
    "quality-change": "quality changes within 1d",
    "troubles": f"{ERRORS} > 0",
}
"""The built-in rules, by name; all of them are watched by default."""

_NO_AUC: Final = (
    r"(?:\A|/)(?:slice/|lifetime\Z"
    r"|(?=[^/]*[Aa][Uu][Cc])[^/]*_(?:error(?:_bound)?|sampled_share)(?:/[^/]*)?\Z)"
)
"""Finds tags with a name such as `auc_error_bound`; slices, which vary more by chance; and
lifetimes, which stay low for long after a drop."""

COMPARISONS: Final[Mapping[str, Callable[[Any, float], Any]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}

_WILD: Final = frozenset("*?[")
_LONGEST: Final = 2000
_SHOWN: Final = 36  # characters of a long rule on each side of a mistake

_WORD: Final = r'[^\s()<>=!"]+'
_END: Final = rf"(?!{_WORD})"  # of a word
_NUMBER: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_BARE_NAME: Final = r"[A-Za-z][A-Za-z0-9_.-]*"
_NAME: Final = rf"(?!run:)({_BARE_NAME}):(?=\s)"
_TOKEN: Final = re.compile(rf'"(?:[^"\\]|\\.)*"|[<>=!]=|[<>()]|{_WORD}', re.DOTALL)
_BEFORE_COMMENT: Final = re.compile(r'(?:"(?:[^"\\]|\\.?)*"?|[^"#]|(?<=\S)#)*', re.DOTALL)
_JOINING: Final = ("and", "or", "(", ")")
_RESERVED: Final = ("and", "or", "for", "no", "is", "drops", "rises", "within")
_CONDITIONS: Final = (
    "`>`, `>=`, `<`, `<=`, `==`, `!=`, `is`, `drops`, `rises` or `no data` after the tag"
)
_ONE_CONDITION: Final = (
    "one condition in each rule, without `and`, `or` and brackets: write several rules instead"
)
_AUC: Final = re.compile(r"(?i:auc(?![a-z])|\[aa]\[uu]\[cc])")  # not `auctions`
_PERCENTAGE: Final = (
    "a percentage such as `{}%`, or an amount below 1: an AUC is from 0 to 1 (a tag of other "
    "values in quotation marks)"
)
_NO_RUNS: Final = "a tag: the option `--runs` chooses runs, for all rules"


class RuleError(ArgumentError):
    """A text is not a rule.

    Attributes:
        column: Where the mistake is: the index of the character in the text, from 0 on.
    """

    def __init__(self, text: str, column: int, received: str, expected: str) -> None:
        self.column = column
        received_text = received or verbatim("nothing more")
        message = three_part(f"the rule, at column {column + 1},", received_text, expected)
        first, last = max(0, column - _SHOWN), column + _SHOWN
        before = ("…" if first else "") + printable(text[first:column])
        after = printable(text[column:last]) + ("…" if last < len(text) else "")
        super().__init__(f"{message}\n  {before}{after}\n  {' ' * len(before)}^")


@dataclass(frozen=True)
class Pattern:
    """Which tags a rule is about.

    Attributes:
        text: A tag, the end of one, or a pattern for `fnmatch`.
        exact: Whether `text` is a whole tag, taken literally (it is in quotation marks).
        but: A regular expression that finds something in the tags that a pattern leaves out.
    """

    text: str
    exact: bool = False
    but: str = ""

    @property
    def is_short(self) -> bool:
        """Whether it is a short name: of several windows, or of several tasks."""
        return not self.exact and not _WILD.intersection(self.text)

    @cached_property
    def regex(self) -> str:
        """A regular expression that is found in the tags that match, and in no others.

        In quotation marks: the tag itself, nothing else. With one of `* ? [`: a pattern for
        the whole tag, where `*` also matches `/`. Otherwise a short name, see `tags_named`.
        """
        literal = re.escape(self.text)
        if self.exact:
            return rf"\A{literal}\Z"
        if self.is_short:
            return tags_named(self.text)
        left_out = rf"(?!(?s:.*){self.but})" if self.but else ""
        return rf"\A{left_out}(?:{literal}\Z|{fnmatch.translate(self.text)})"

    def matches(self, tag: str) -> bool:
        """Whether the rule is about a tag."""
        return re.search(self.regex, tag) is not None


@dataclass(frozen=True)
class Compare:
    """A value compared with a number."""

    tag: Pattern
    operator: str
    number: float


@dataclass(frozen=True)
class NotFinite:
    """A value that is NaN or infinite."""

    tag: Pattern


@dataclass(frozen=True)
class Change:
    """A value that is far from the highest, or the lowest, of those before it.

    Attributes:
        tag: The value.
        rises: Whether it rises from the lowest; else it drops from the highest.
        amount: By how much; positive.
        relative: Whether `amount` is a percentage of the size of that highest or lowest.
        within: How long before, in seconds.
    """

    tag: Pattern
    rises: bool
    amount: float
    relative: bool
    within: float


@dataclass(frozen=True)
class Silence:
    """Nothing new for a time, while the run has not ended.

    Attributes:
        tag: Values of this tag; None for records of any kind.
        seconds: For how long.
    """

    tag: Pattern | None
    seconds: float


@dataclass(frozen=True)
class QualityChange:
    """The quality of a task or a slice that moves beyond chance, as `rec-summary why` finds it.

    Attributes:
        within: For how many seconds a change counts as new.
    """

    within: float
    tag: ClassVar[None] = None  # it is about sums by slice


ValueCondition = Compare | NotFinite | Change


@dataclass(frozen=True)
class Rule:
    """What an alert is raised for.

    Attributes:
        condition: What has to hold.
        lasting: For how many seconds, without a break; None for once.
        name: What the rule is called; None if it is known by its text.
        text: The rule as it was written, without its name; two rules may be equal all the same.
    """

    condition: ValueCondition | Silence | QualityChange
    lasting: float | None = None
    name: str | None = None
    text: str = field(default="", compare=False)

    @property
    def title(self) -> str:
        """Its name, or else its text."""
        return self.text if self.name is None else self.name


def float32(number: float) -> float:
    """Returns the nearest float32, which is infinite if the number is too large."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def parse(text: str) -> Rule:
    """Returns the rule that a text states.

    Raises:
        RuleError: The text is not a rule; the message points at the mistake.
    """
    return _Parser(text).rule()


def read_rule(text: str) -> Rule:
    """Returns the rule that a text states, or the built-in rule that it names.

    Raises:
        RuleError: It does neither.
    """
    name = text.strip()
    if name in BUILTIN:
        rule = parse(f"{name}: {BUILTIN[name]}")
        if name != "auc-drop":
            return rule
        assert isinstance(rule.condition, Change)
        condition = replace(rule.condition, tag=replace(rule.condition.tag, but=_NO_AUC))
        return replace(rule, condition=condition)
    if re.fullmatch(_BARE_NAME, name):
        expected = f"one of {', '.join(BUILTIN)}, or a rule such as `{name} > 1.1 for 5m`"
        raise RuleError(text, text.index(name), name, expected)
    return parse(text)


def read_rules_file(path: str | os.PathLike[str]) -> list[Rule]:
    """Returns the rules of a file: one in each line; `#` at the start of a word begins a comment.

    Raises:
        ArgumentError: The file cannot be read or has no rule, or a line is not a rule.
    """
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        received = verbatim(f"{printable(path)} ({why})")
        raise ArgumentError(three_part("the file of rules", received, "a text file")) from error
    rules = []
    for number, line in enumerate(lines, 1):
        text = _without_comment(line)
        if text.strip():
            try:
                rules.append(read_rule(text))
            except RuleError as error:
                raise ArgumentError(f"{printable(path)}, line {number}: {error}") from error
    if not rules:
        received = verbatim(printable(path))
        raise ArgumentError(three_part("the file of rules", received, "at least one rule"))
    return rules


def gather(texts: Iterable[str], files: Iterable[str | os.PathLike[str]]) -> tuple[Rule, ...]:
    """Returns the rules that are asked for, each once, or the built-in ones if none are.

    Args:
        texts: Rules, or names of built-in ones.
        files: Files of rules.

    Raises:
        ArgumentError: A text or a line is not a rule, a file cannot be read or has no rule, or
            two rules have the same name.
    """
    rules = [read_rule(text) for text in texts]
    for path in files:
        rules += read_rules_file(path)
    named: dict[str, Rule] = {}
    for rule in dict.fromkeys(rules or map(read_rule, BUILTIN)):
        other = named.setdefault(rule.title, rule)
        if other is not rule:
            expected = f"a different name for each rule; `{other.text}` has this one"
            raise ArgumentError(three_part("the name of a rule", rule.title, expected))
    return tuple(named.values())


class _Parser:
    """Reads a rule from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        if len(text) > _LONGEST:
            raise RuleError(text, _LONGEST, text, f"at most {_LONGEST} characters")

    def rule(self) -> Rule:
        self._take(r"")  # white space
        named = self._take(_NAME)
        name = None if named is None else named[1]
        text = self._text[self._at :].strip()
        if self._took(r"quality\s+changes"):
            self._expect("within")
            change = QualityChange(self._time())
            self._end("the end")
            return Rule(change, None, name, text)
        tag = None if self._sees("no") else self._tag()
        if tag is None or self._sees("no"):
            return Rule(self._silence(tag), None, name, text)
        condition = self._condition(tag)
        lasting = self._time() if self._took("for") else None
        self._end("the end" if lasting else "the end or `for`")
        return Rule(condition, lasting, name, text)

    def _silence(self, tag: Pattern | None) -> Silence:
        self._expect("no", "data", "for")
        silence = Silence(tag, self._time())
        self._end("the end: `no data` has a time of its own")
        return silence

    def _condition(self, tag: Pattern) -> ValueCondition:
        compared = self._take("([<>=!]=|[<>])")
        if compared is not None:
            return Compare(tag, compared[1], self._number())
        if self._took("is"):
            if not self._took(r"not\s+finite"):
                raise self._wrong("`not finite`")
            return NotFinite(tag)
        rises = self._took("rises")
        if not rises and not self._took("drops"):
            raise self._wrong(_CONDITIONS)
        at, amount = self._at, self._take(f"({_NUMBER})(?:{_END}|(?=%))")
        if amount is None or not 0 < float(amount[1]) < math.inf:
            raise self._wrong("a finite positive amount, such as `5%` or `0.02`", at)
        relative = self._took("%")
        is_auc = not tag.exact and _AUC.search(tag.text) is not None
        if is_auc and not relative and float(amount[1]) >= 1:
            raise self._wrong(_PERCENTAGE.format(amount[1]), at)
        self._expect("within")
        return Change(tag, rises, float(amount[1]), relative, self._time())

    def _tag(self) -> Pattern:
        quoted = self._take(r'"((?:[^"\\]|\\.)+)"')
        if quoted is not None:
            return Pattern(re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL), exact=True)
        at, word = self._at, self._take(f"({_WORD})")
        if word is None:
            raise self._wrong("a tag or a pattern for tags")
        if word[1].lower() in _RESERVED:
            raise self._wrong("a tag (in quotation marks if that is its name)", at)
        if word[1].startswith("run:"):
            raise self._wrong(_NO_RUNS, at)
        if word[1].startswith("#") or word[1].endswith(":"):
            raise self._wrong("a tag; one like this in quotation marks", at)
        return Pattern(word[1])

    def _number(self) -> float:
        at, number = self._at, self._take(f"({_NUMBER}){_END}")
        if number is None or not math.isfinite(float32(float(number[1]))):
            raise self._wrong("a number that a float32 can hold, such as `1.1` or `-2e-3`", at)
        return float(number[1])

    def _time(self) -> float:
        """Reads a length of time; returns it in seconds."""
        at, number = self._at, self._take(f"({_NUMBER})")
        unit = number and self._take(f"(?i:([smhd])){_END}")
        if not number or not unit:
            is_apart = self._text[self._at - 1].isspace() and self._at < len(self._text)
            expected = "a time such as `30s`, `5m`, `2h` or `1d`"
            raise self._wrong(expected, self._at if is_apart else at)
        amount = float(number[1])
        if not 0 < amount < math.inf:
            raise self._wrong("a finite positive amount", at)
        return amount * SECONDS[unit[1].lower()]

    def _take(self, pattern: str) -> re.Match[str] | None:
        """Moves past a pattern, and white space, if it is next."""
        match = re.compile(rf"(?s:{pattern})\s*").match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _sees(self, word: str) -> bool:
        return re.compile(rf"(?i:{word}){_END}").match(self._text, self._at) is not None

    def _took(self, word: str) -> bool:
        return self._take(rf"(?i:{word}){_END}") is not None

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._took(word):
                raise self._wrong(f"`{word}`")

    def _end(self, expected: str) -> None:
        if self._at < len(self._text):
            raise self._wrong(expected)

    def _wrong(self, expected: str, at: int | None = None) -> RuleError:
        at = self._at if at is None else at
        token = _TOKEN.match(self._text, at)
        received = self._text[at:] if token is None else token[0]
        if token is None and received:
            if received[0] == '"':
                expected = "a closing quotation mark"
            else:
                expected = "`==` or `!=`; a tag that has `=` is in quotation marks"
        elif received.lower() in _JOINING:
            expected = _ONE_CONDITION
        return RuleError(self._text, at, received, expected)


def _without_comment(line: str) -> str:
    match = _BEFORE_COMMENT.match(line)
    assert match is not None  # it matches the empty text
    return match[0].rstrip()
