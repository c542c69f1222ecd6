from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.errors import ArgumentError
from rec_summary.tables.query import Filter, column_of, parse_filter, short_names, sort_rows

ROWS: list[dict[str, Any]] = [
    {"run": "a", "lr": 0.1, "optimizer": "Adam", "auc": 0.7},
    {"run": "b", "lr": 0.01, "optimizer": "SGD", "auc": math.nan},
    {"run": "c", "lr": 1e-3, "optimizer": "adam"},
    {"run": "d", "optimizer": "LazyAdam", "auc": 0.9},
]


def chosen(text: str) -> str:
    accepts = parse_filter(text).accepts
    return "".join(row["run"] for row in ROWS if accepts(row))


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("lr<0.05", "bc"),
        ("lr <= 1e-2", "bc"),
        ("lr>0.01", "a"),
        ("lr >= .01", "ab"),
        ("lr=0.10", "a"),
        ("lr!=0.1", "bcd"),
        ("optimizer=adam", "ac"),
        ("optimizer != Adam", "bd"),
        ("optimizer~Adam$", "ad"),
        ("auc=nan", "b"),
        ("nothing!=x", "abcd"),
        ("nothing=x", ""),
    ],
)
def test_conditions(text: str, runs: str) -> None:
    assert chosen(text) == runs


def test_integers_are_compared_exactly() -> None:
    rows = [{"seed": 2**53 + 1}, {"seed": 2**53}, {"seed": str(2**64 + 1)}, {"seed": 0.5}]
    exact, above = (
        [parse_filter(f"seed{condition}").accepts(row) for row in rows]
        for condition in (f"={2**53 + 1}", f">{2**53}")
    )
    assert exact == [True, False, False, False]
    assert above == [True, False, True, False]
    assert sort_rows(rows, "seed") == [rows[3], rows[1], rows[0], rows[2]]


OPERATORS = r"the operator of .*Expected: one of = != < <= > >= ~"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "filter") for text in ("", "lr", "<5", "lr<", "lr<big", "optimizer~(")),
        *((text, OPERATORS) for text in ("lr => 3", "lr == 0.1", "lr=<3", "lr<>3", "a=~Adam")),
    ],
)
def test_what_states_no_condition(text: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("loss_fn= <lambda>", ("loss_fn", "=", "<lambda>")),  # behind a space
        ("note ~ !$", ("note", "~", "!$")),
        ("custom.my name = x y", ("custom.my name", "=", "x y")),
    ],
)
def test_names_and_values_may_hold_other_signs(text: str, parts: tuple[str, str, str]) -> None:
    assert parse_filter(text) == Filter(*parts)


def ordered(rows: list[dict[str, Any]], column: str) -> list[Any]:
    return sort_rows(rows, column.removeprefix("-"), descending=column.startswith("-"))


@pytest.mark.parametrize(("column", "runs"), [("lr", "cbad"), ("-lr", "abcd"), ("-auc", "dabc")])
def test_order(column: str, runs: str) -> None:
    assert "".join(row["run"] for row in ordered(ROWS, column)) == runs


def test_texts_are_ordered_as_they_are() -> None:
    found = "".join(row["run"] for row in ordered(ROWS, "optimizer"))
    assert found[0] == "a"
    assert sorted(found) == list("abcd")


def test_a_text_that_says_nan_is_behind_the_numbers() -> None:
    rows = [{"x": value} for value in (3.0, "nan", 1.0, 2.0)]
    assert [row["x"] for row in ordered(rows, "x")] == [1.0, 2.0, 3.0, "nan"]
    assert [row["x"] for row in ordered(rows, "-x")] == [3.0, 2.0, 1.0, "nan"]


@given(st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=3), st.booleans())))
def test_any_values_can_be_ordered(values: list[Any]) -> None:
    rows = [{"x": value} if value is not None else {} for value in values]
    for column in ("x", "-x"):
        assert len(ordered(rows, column)) == len(rows)


TASKS = ["click", "purchase"]


def test_an_unknown_column_names_near_ones() -> None:
    with pytest.raises(ArgumentError, match=r"Received: 'learning_rat'.*learning_rate"):
        column_of("learning_rat", ["run", "learning_rate"])
    with pytest.raises(ArgumentError, match=r"such as click/auc.$"):
        column_of("klick/auc", ["run", *(f"recommender/{t}/auc/lifetime" for t in TASKS)])
    assert column_of("run", ["run"]) == "run"


METRICS = ["run", "recommender/auc/lifetime", "best/recommender/auc/lifetime", "eval/loss/auto"]


@pytest.mark.parametrize(
    ("name", "known", "column"),
    [
        ("auc", METRICS, METRICS[1]),
        ("best/auc", METRICS, METRICS[2]),
        ("recommender/auc", METRICS, METRICS[1]),
        ("auc", [*METRICS, "auc"], "auc"),  # the column of that name
        ("loss", ["run", "eval/loss", "best/eval/loss"], "eval/loss"),
        ("loss", ["run", "auc"], "loss"),  # of any run, which is empty
    ],
)
def test_a_short_name_finds_the_column_of_a_metric(
    name: str, known: list[str], column: str
) -> None:
    assert column_of(name, known) == column


def test_a_task_of_a_recommender_is_part_of_a_short_name() -> None:
    known = [f"recommender/{task}/auc/lifetime" for task in ("ctr", "cvr")]
    assert column_of("cvr/auc", known) == known[1]
    assert short_names(known) == {known[0]: "ctr/auc", known[1]: "cvr/auc"}
    with pytest.raises(ArgumentError, match=r"ctr/auc/lifetime, recommender/cvr/auc"):
        column_of("auc", known)


def test_of_several_windows_a_short_name_is_that_of_all_examples() -> None:
    last = "recommender/auc/last_100"
    assert column_of("auc", ["run", last]) == last
    assert short_names(["run", last])[last] == "auc"
    both = [last, *METRICS]
    assert column_of("auc", both) == METRICS[1]
    assert column_of("auc/last_100", both) == last
    assert (short_names(both)[last], short_names(both)[METRICS[1]]) == ("auc/last_100", "auc")
    several = [last, "recommender/auc/last_200", "recommender/auc/decayed_9"]
    assert [*short_names(several).values()] == ["auc/last_100", "auc/last_200", "auc/decayed_9"]
    with pytest.raises(ArgumentError, match=r"auc/last_100, recommender/auc/last_200"):
        column_of("auc", [last, "recommender/auc/last_200"])


def test_a_short_name_of_several_columns_is_refused_with_all_of_them() -> None:
    with pytest.raises(ArgumentError, match=r"a/loss, b/loss"):
        column_of("loss", ["a/loss", "b/loss"])


def test_short_names_are_those_that_are_found() -> None:
    known = [*METRICS, "a/x", "b/x", "x", "c/y"]
    found = short_names(known)
    assert list(found.values()) == ["run", "auc", "best/auc", "loss", "a/x", "b/x", "x", "y"]
    assert [column_of(short, known) for short in found.values()] == known
