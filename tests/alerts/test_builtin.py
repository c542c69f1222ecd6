"""Rules with names of their own, and files of rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from rec_summary.alerts.builtin import BUILTIN, gather, read_rules_file
from rec_summary.alerts.conditions import patterns
from rec_summary.alerts.grammar import parse
from rec_summary.alerts.tokens import RuleError
from rec_summary.series.options import ArgumentError


def test_without_rules_the_built_in_ones_are_watched() -> None:
    assert [rule.name for rule in gather([], [])] == ["nan-loss", "stall", "auc-drop"]


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("nan-loss", ["loss/auto", "eval/Loss", "total_loss"]),
        ("auc-drop", ["eval/auc", "AUC", "metrics/gauc/auto"]),
    ],
)
def test_what_the_built_in_rules_are_about(name: str, tags: list[str]) -> None:
    [pattern] = patterns(parse(BUILTIN[name]).condition)
    assert all(pattern.matches_tag(tag) for tag in tags)
    assert not pattern.matches_tag("learning_rate/auto")


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


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(RuleError, match="one of nan-loss, stall, auc-drop, or a rule such as"):
        gather(["nanloss"], [])


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text("stall\n\n  loss >\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"rules.txt, line 3: the rule, at column 9"):
        read_rules_file(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"\xff", "it is not UTF-8"),
        (b"# nothing\n", "at least one rule"),
    ],
)
def test_files_that_are_no_rules(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "rules.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=message):
        gather([], [path])


def test_two_rules_cannot_have_one_name() -> None:
    with pytest.raises(ArgumentError, match="it is the name of `loss > 1` already"):
        gather(["a: loss > 1", "a: loss > 2"], [])
