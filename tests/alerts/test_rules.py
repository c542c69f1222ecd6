"""Rules as text, with mistakes that are pointed at; built-in rules and files of rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.alerts.rules import (
    BUILTIN,
    COMPARISONS,
    Change,
    Compare,
    NotFinite,
    Pattern,
    Rule,
    RuleError,
    Silence,
    gather,
    parse,
    read_rule,
)
from rec_summary.errors import ArgumentError

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
CONDITIONS = st.one_of(
    st.builds(Compare, TAGS, st.sampled_from(list(COMPARISONS)), NUMBERS),
    st.builds(NotFinite, TAGS),
    st.builds(Change, TAGS, st.booleans(), AMOUNTS, st.booleans(), AMOUNTS),
)
NAMES = st.none() | st.from_regex(r"[A-Za-z][A-Za-z0-9_.\-]{0,8}", fullmatch=True).filter(
    lambda name: name != "run"
)
RULES = st.one_of(
    st.builds(Rule, CONDITIONS, st.none() | AMOUNTS, NAMES),
    st.builds(Rule, st.builds(Silence, st.none() | TAGS, AMOUNTS), st.none(), NAMES),
)


def written(part: Any) -> str:
    """Returns the text of a rule, or of a part of one."""
    match part:
        case None:
            return ""
        case float():
            return repr(part).removesuffix(".0")
        case Pattern(text, exact=True):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case Pattern(text):
            return text
        case Compare(tag, operator, number):
            return f"{written(tag)} {operator} {written(number)}"
        case NotFinite(tag):
            return f"{written(tag)} is not finite"
        case Change(tag, rises, amount, relative, within):
            change = f"{'rises' if rises else 'drops'} {written(amount)}{'%' if relative else ''}"
            return f"{written(tag)} {change} within {written(within)} s"
        case Silence(tag, seconds):
            return f"{written(tag)} no data for {written(seconds)} s".strip()
    name = f"{part.name}: " if part.name else ""
    lasting = f" for {written(part.lasting)} s" if part.lasting else ""
    return name + written(part.condition) + lasting


@given(RULES)
def test_a_rule_is_read_as_it_is_written(rule: Rule) -> None:
    found = parse(written(rule))
    assert found == rule
    assert found.text == written(replace(rule, name=None))
    assert found.title == (rule.name or found.text)


@given(st.text(alphabet=st.sampled_from('abuno rdif"()<>=!%:\\.15smh*#\n'), max_size=40))
def test_any_text_is_a_rule_or_a_mistake_within_it(text: str) -> None:
    try:
        rule = parse(text)
    except RuleError as error:
        assert 0 <= error.column <= len(text)  # noqa: PT017  # any other text is a rule
    else:
        assert parse(written(rule)) == rule


LOSS = Pattern("loss")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("loss>1", Rule(Compare(LOSS, ">", 1))),
        ("  loss\t>=  -2e-3 ", Rule(Compare(LOSS, ">=", -0.002))),
        ("LOSS IS Not Finite", Rule(NotFinite(Pattern("LOSS")))),
        ("loss > 1 for 1.5 h", Rule(Compare(LOSS, ">", 1), 5400)),
        ("loss > 1 for 5M", Rule(Compare(LOSS, ">", 1), 300)),
        ("auc drops 5 % within 10m", Rule(Change(Pattern("auc"), False, 5, True, 600))),
        ("auc rises 0.02 within 30s", Rule(Change(Pattern("auc"), True, 0.02, False, 30))),
        ("no data for 10m", Rule(Silence(None, 600))),
        ("loss no data for 2d", Rule(Silence(LOSS, 172_800))),
        ('"no" no data for 2d', Rule(Silence(Pattern("no", exact=True), 172_800))),
        (r'hot: "x \"y\"" == 1', Rule(Compare(Pattern('x "y"', exact=True), "==", 1), name="hot")),
    ],
)
def test_what_a_rule_means(text: str, rule: Rule) -> None:
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
        ("loss < 1e999", 7, "float32"),
        ("loss is nan", 8, "`not finite`"),
        ("loss = 1", 5, "`==`"),
        ("slice/country=Peru/auc < 0.7", 13, "a tag that has `=` is in quotation marks"),
        ('"loss > 1', 0, "closing quotation mark"),
        ('"" > 1', 0, "a tag"),
        ("loss > 1 for 5", 13, "a time"),
        ("loss > 1 for 5 weeks", 15, "a time"),
        ("loss > 1 for 5weeks", 13, "a time"),
        ("loss > 1 for 5 ", 13, "a time"),
        ("loss > 1 high", 9, "the end or `for`"),
        ("loss > 1 for 0m", 13, "positive"),
        ("loss > 1 for 1e999m", 13, "positive"),
        ("loss > 1 for 5 steps", 15, "a time"),
        ("loss > 1 for 5m for 5m", 16, "the end"),
        ("loss drops within 5m", 11, "positive amount"),
        ("loss drops 0% within 5m", 11, "positive amount"),
        ("loss drops 1e999 within 5m", 11, "positive amount"),
        ("loss drops 5% for 5m", 14, "`within`"),
        ("auc drops 5 within 1d", 10, "a percentage such as `5%`, or an amount below 1"),
        ("*[Aa][Uu][Cc]* drops 1 within 1d", 21, "a percentage such as `1%`"),
        ("eval/val_AUC_2 rises 2.5 within 9h", 21, "a percentage such as `2.5%`"),
        ("loss no data for 5m for 5m", 20, "a time of its own"),
        ("for > 1", 0, "quotation marks"),
        ("#loss > 1", 0, "quotation marks"),
        ("hot: loss: > 1", 5, "quotation marks"),
        ("loss > 1 and auc < 1", 9, "write several rules instead"),
        ("loss > 1 for 5m OR auc < 1", 16, "write several rules instead"),
        ("(loss > 1)", 0, "write several rules instead"),
        ("loss high ! 1", 5, "after the tag"),
        ("loss > 1)", 8, "write several rules instead"),
        ("run:prod/* loss > 1", 0, "the option `--runs`"),
        ('hot: run:"a b" loss > 1', 5, "the option `--runs`"),
        ("run: loss > 1", 0, "the option `--runs`"),
        ("loss > " + "1" * 2000, 2000, "2000 characters"),
        ("__import__('os').system('true')", 10, "write several rules"),
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


def mistake_of(text: str) -> list[str]:
    """Returns the lines of the error about a rule."""
    with pytest.raises(RuleError) as caught:
        parse(text)
    return str(caught.value).split("\n")


def test_of_a_long_rule_the_part_around_the_mistake_is_shown() -> None:
    text = "a" * 50 + " high " + "b" * 50
    assert mistake_of(text)[1:] == [f"  …{text[15:87]}…", " " * 39 + "^"]
    whole = "loss high " + "b" * 31
    assert mistake_of(whole)[1] == f"  {whole}"  # nothing is left out
    assert "`for`" not in mistake_of("loss > 1 for 5m for 5m")[0].partition("Expected: ")[2]
    assert parse("loss > " + "1".zfill(1993)) == parse("loss > 1")
    first, excerpt, _ = mistake_of("loss >")
    assert "Received: nothing more" in first
    assert excerpt == "  loss >"


@pytest.mark.parametrize("tag", ["auctions", '"auc"'])
def test_an_amount_of_1_or_more_of_what_is_no_auc(tag: str) -> None:
    condition = parse(f"{tag} drops 5 within 1h").condition
    assert isinstance(condition, Change)
    assert (condition.amount, condition.relative) == (5, False)


def test_what_cannot_be_printed_does_not_move_the_caret() -> None:
    first, excerpt, caret = mistake_of("\x1b[1mloss ! 1")
    assert excerpt[caret.index("^")] == "!"
    assert "\x1b" not in first + excerpt


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
        (
            Pattern("auc"),
            ["eval/auc", "recommender/auc/lifetime", "recommender/auc/last_100"],
            ["recommender/auc/decayed_100", "recommender/auc/last_100/x"],
        ),
        (Pattern("*loss*"), ["loss", "eval/loss/auto", "total_loss"], ["auc"]),
        (Pattern("loss*"), ["loss/auto"], ["eval/loss"]),
        (Pattern("w[0]"), ["w[0]", "w0"], ["w", "x/w0"]),
        (Pattern("a.b"), ["a.b", "x\ny/a.b"], ["aXb", "a.b\n", "x/a.b/auto/auto"]),
        (Pattern("loss", exact=True), ["loss"], ["loss/auto", "eval/loss"]),
        (Pattern("*", exact=True), ["*"], ["loss"]),
    ],
)
def test_which_tags_a_pattern_matches(pattern: Pattern, yes: list[str], no: list[str]) -> None:
    assert [tag for tag in yes if not pattern.matches(tag)] == []
    assert [tag for tag in no if pattern.matches(tag)] == []


def test_without_rules_the_built_in_ones_are_watched() -> None:
    assert (
        [rule.name for rule in gather([], [])]
        == list(BUILTIN)
        == [*("nan-loss", "stall", "auc-drop", "quality-change", "troubles")]
    )


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("nan-loss", ["loss/auto", "eval/Loss", "total_loss"]),
        ("auc-drop", ["eval/auc", "AUC", "auc_2", "metrics/gauc/auto", "a/gauc_by_user/last_9"]),
        ("auc-drop", ["eval/price_error_bound/auc", "a_slice/AUC"]),
        ("troubles", ["rec_summary/errors"]),
    ],
)
def test_which_tags_the_built_in_rules_are_about(name: str, tags: list[str]) -> None:
    pattern = read_rule(name).condition.tag
    assert pattern is not None
    assert all(pattern.matches(tag) for tag in tags)
    assert not pattern.matches("learning_rate/auto")


@pytest.mark.parametrize(
    "tag",
    [
        "recommender/slice/country/auc_gap/last_100",
        "recommender/slice/country/auc_gap_error/lifetime",
        "recommender/slice/country/auc_error_bound/lifetime",
        "recommender/macro_auc_error_bound/lifetime",
        "recommender/xauc_sampled_share/lifetime",
        "recommender/slice/country=Japan/auc/last_100",
        "recommender/ctr/slice/country/auc_worst/lifetime",
        "recommender/auc/lifetime",  # it stays low for long after the cause has gone
    ],
)
def test_the_drop_of_a_slice_or_an_error_is_no_drop_of_the_auc(tag: str) -> None:
    assert parse("*auc* drops 5% within 1d").condition.tag.matches(tag)
    assert not read_rule("auc-drop").condition.tag.matches(tag)


def test_rules_add_up_and_the_same_one_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(
        "# what matters\n"
        "\n"
        "hot: calibration > 1.1 for 5m  # for too long\n"
        '"loss # 1" > 1\n'
        '"a \\" # b" > 1\n'
        "loss#2 > 1\r\n"
        "stall\n",
        encoding="utf-8",
    )
    rules = gather(["stall", "loss > 2"], [path])
    assert [rule.title for rule in rules] == [
        *("stall", "loss > 2", "hot", '"loss # 1" > 1', '"a \\" # b" > 1', "loss#2 > 1"),
    ]


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["nanloss"], RuleError, f"one of {', '.join(BUILTIN)}, or a rule such as"),
        (["a: loss > 1", "a: loss > 2"], ArgumentError, "`loss > 1` has this one"),
    ],
    ids=["an unknown name", "two rules of one name"],
)
def test_names_that_are_no_rules(
    texts: list[str], error: type[ArgumentError], message: str
) -> None:
    with pytest.raises(error, match=message):
        gather(texts, [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"\xff", "it is not UTF-8"),
        (b"# nothing\n", "at least one rule"),
        (b"stall\n\n  loss >\n", r"rules.txt, line 3: the rule, at column 9"),
    ],
)
def test_files_that_are_no_rules(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "rules.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=message):
        gather([], [path])
