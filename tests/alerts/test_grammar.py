"""Rules as text: what is said is what is meant, and mistakes are pointed at."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.alerts.conditions import (
    COMPARISONS,
    AllOf,
    AnyOf,
    Change,
    Compare,
    IsNan,
    NotFinite,
    Pattern,
    Rule,
    Silence,
    Span,
)
from rec_summary.alerts.grammar import parse
from rec_summary.alerts.tokens import RuleError

WORDS = st.from_regex(r"[A-Za-z0-9_*?/.\-\[\]%:äß]{1,12}", fullmatch=True).filter(
    lambda text: (
        text.lower() not in ("and", "or", "for", "no", "is", "drops", "rises", "within")
        and not text.startswith("run:")
        and not text.endswith(":")
    )
)
TAGS = st.one_of(
    st.builds(Pattern, WORDS),
    st.builds(Pattern, st.text(min_size=1, max_size=12), exact=st.just(True)),
)
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)
AMOUNTS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
TIMES = st.builds(Span, AMOUNTS, st.sampled_from("smhd"))
STEPS = st.builds(Span, st.integers(min_value=1, max_value=10**20).map(float), st.just("steps"))
SPANS = TIMES | STEPS
LEAVES = st.one_of(
    st.builds(Compare, TAGS, st.sampled_from(list(COMPARISONS)), NUMBERS),
    st.builds(IsNan, TAGS),
    st.builds(NotFinite, TAGS),
    st.builds(Change, TAGS, st.booleans(), AMOUNTS, st.booleans(), SPANS),
)


def joined(parts: st.SearchStrategy) -> st.SearchStrategy:
    several = st.lists(parts, min_size=2, max_size=4).map(tuple)
    return st.builds(AllOf, several) | st.builds(AnyOf, several)


CONDITIONS = st.recursive(LEAVES, joined, max_leaves=8)
NAMES = st.none() | st.from_regex(r"[A-Za-z][A-Za-z0-9_.\-]{0,8}", fullmatch=True).filter(
    lambda name: name != "run"
)
RUNS = st.one_of(
    st.none(),
    st.builds(Pattern, st.from_regex(r"[A-Za-z0-9_*?/.\-:]{1,12}", fullmatch=True)),
    st.builds(Pattern, st.text(min_size=1, max_size=12), exact=st.just(True)),
)
RULES = st.one_of(
    st.builds(Rule, CONDITIONS, st.none() | SPANS, RUNS, NAMES),
    st.builds(Rule, st.builds(Silence, st.none() | TAGS, TIMES), st.none(), RUNS, NAMES),
)


@given(RULES)
def test_a_rule_is_read_as_it_is_written(rule: Rule) -> None:
    assert parse(str(rule)) == rule


@given(st.text(alphabet=st.sampled_from('abuno rdif"()<>=!%:\\.15smh*#\n'), max_size=40))
def test_any_text_is_a_rule_or_a_mistake_within_it(text: str) -> None:
    mistake = None
    try:
        rule = parse(text)
    except RuleError as error:
        mistake = error
    if mistake is None:
        assert parse(str(rule)) == rule
    else:
        assert 0 <= mistake.column <= len(text)


LOSS = Pattern("loss")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("loss>1", Rule(Compare(LOSS, ">", 1))),
        ("  loss\t>=  -2e-3 ", Rule(Compare(LOSS, ">=", -0.002))),
        ("LOSS IS NAN", Rule(IsNan(Pattern("LOSS")))),
        ("loss is not finite for 100 STEPS", Rule(NotFinite(LOSS), Span(100, "steps"))),
        ("loss > 1 for 1 step", Rule(Compare(LOSS, ">", 1), Span(1, "steps"))),
        ("loss > 1 for 1.5 h", Rule(Compare(LOSS, ">", 1), Span(1.5, "h"))),
        (
            "auc drops 5 % within 10m",
            Rule(Change(Pattern("auc"), False, 5, True, Span(10, "m"))),
        ),
        (
            "auc rises 0.02 within 500 steps",
            Rule(Change(Pattern("auc"), True, 0.02, False, Span(500, "steps"))),
        ),
        ("no data for 10m", Rule(Silence(None, Span(10, "m")))),
        ("loss no data for 2d", Rule(Silence(LOSS, Span(2, "d")))),
        ('"no" no data for 2d', Rule(Silence(Pattern("no", exact=True), Span(2, "d")))),
        (
            "run:prod/* loss/auto > 1",
            Rule(Compare(Pattern("loss/auto"), ">", 1), run=Pattern("prod/*")),
        ),
        (
            'hot: run:"a \\"b\\"" "x y" == 1',
            Rule(
                Compare(Pattern("x y", exact=True), "==", 1),
                run=Pattern('a "b"', exact=True),
                name="hot",
            ),
        ),
        (
            "a > 1 or b > 2 and c > 3",
            Rule(
                AnyOf(
                    (
                        Compare(Pattern("a"), ">", 1),
                        AllOf((Compare(Pattern("b"), ">", 2), Compare(Pattern("c"), ">", 3))),
                    )
                )
            ),
        ),
        (
            "(a > 1 or b > 2) and c > 3",
            Rule(
                AllOf(
                    (
                        AnyOf((Compare(Pattern("a"), ">", 1), Compare(Pattern("b"), ">", 2))),
                        Compare(Pattern("c"), ">", 3),
                    )
                )
            ),
        ),
    ],
)
def test_what_is_meant(text: str, rule: Rule) -> None:
    assert parse(text) == rule


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 0, "a tag"),
        ("loss", 4, "after the tag"),
        ("loss >", 6, "a number"),
        ("loss > high", 7, "a number"),
        ("loss > nan", 7, "a number"),
        ("loss > 1e39", 7, "float32"),
        ("loss = 1", 5, "`==`"),
        ('"loss > 1', 0, "closing quotation mark"),
        ('"" > 1', 0, "a tag"),
        ("loss > 1 for 5", 13, "a time"),
        ("loss > 1 for 5 weeks", 15, "a time"),
        ("loss > 1 for 0m", 13, "positive"),
        ("loss > 1 for 1.5 steps", 13, "whole number"),
        ("loss > 1 for 5m and auc < 1", 16, "for the whole rule"),
        ("loss drops within 5m", 11, "positive amount"),
        ("loss drops 0% within 5m", 11, "positive amount"),
        ("loss drops 5% for 5m", 14, "`within`"),
        ("loss no data for 5 steps", 17, "steps do not pass"),
        ("loss no data for 5m for 5m", 20, "a rule of its own"),
        ("loss > 1 or auc no data for 5m", 16, "a rule of its own"),
        ("(loss > 1", 9, "`)`"),
        ("loss > 1)", 8, "the end"),
        ("for > 1", 0, "quotation marks"),
        ("loss > 1 and run:a b > 1", 13, "`run:` only in front"),
        ("run: loss > 1", 0, "right behind `run:`"),
        ("(" * 30 + "a > 1" + ")" * 30, 20, "brackets"),
        ("a > 1 or " * 300 + "a > 1", 2000, "2000 characters"),
        ("__import__('os').system('true')", 10, "after the tag"),
    ],
)
def test_a_mistake_is_pointed_at(text: str, column: int, expected: str) -> None:
    with pytest.raises(RuleError, match=r"is invalid\. Received: ") as caught:
        parse(text)
    assert caught.value.column == column
    first, excerpt, caret = str(caught.value).split("\n")
    assert expected in first.partition("Expected: ")[2]
    place = caret.index("^")
    assert excerpt[place : place + 1] == text[column : column + 1]


def test_what_cannot_be_printed_does_not_move_the_caret() -> None:
    with pytest.raises(RuleError) as caught:
        parse("\x1b[1mloss ! 1")
    _, excerpt, caret = str(caught.value).split("\n")
    assert excerpt[caret.index("^")] == "!"
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            Pattern("loss"),
            ["loss", "loss/auto", "eval/loss", "a/b/loss/auto"],
            ["loss/x", "total_loss", "Loss", "loss/auto/x", "auto"],
        ),
        (
            Pattern("calibration"),
            ["rec_summary/calibration", "calibration/auto", "rec/ctr/calibration"],
            ["rec_summary/calibration/user", "calibration_error"],
        ),
        (Pattern("ctr/loss"), ["ctr/loss", "a/ctr/loss/auto"], ["loss", "xctr/loss"]),
        (Pattern("loss/auto"), ["loss/auto", "x/loss/auto"], ["loss"]),
        (Pattern("*loss*"), ["loss", "eval/loss/auto", "total_loss"], ["auc"]),
        (Pattern("loss*"), ["loss/auto"], ["eval/loss"]),
        (Pattern("w[0]"), ["w[0]", "w0"], ["w", "x/w0"]),
        (Pattern("loss", exact=True), ["loss"], ["loss/auto", "eval/loss"]),
        (Pattern("*", exact=True), ["*"], ["loss"]),
    ],
)
def test_which_tags_are_meant(pattern: Pattern, yes: list[str], no: list[str]) -> None:
    assert [tag for tag in yes if not pattern.matches_tag(tag)] == []
    assert [tag for tag in no if pattern.matches_tag(tag)] == []


def test_which_runs_are_meant() -> None:
    rule = parse("run:prod/* loss > 1")
    assert rule.matches_run("prod/a/b")
    assert not rule.matches_run("test/prod/a")
    assert parse('run:"a*" loss > 1').matches_run("a*")
    assert not parse('run:"a*" loss > 1').matches_run("ab")
    assert parse("loss > 1").matches_run("anything")


def test_a_number_beyond_float64_is_no_number() -> None:
    assert math.isinf(float("1e999"))
    with pytest.raises(RuleError):
        parse("loss < 1e999")
