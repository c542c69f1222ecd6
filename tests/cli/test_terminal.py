"""What commands print: JSON, and progress where standard error is not a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Iterator

import click
import pytest
from rich.console import Console

from rec_summary.cli.terminal import (
    Column,
    Printing,
    fitted_table,
    print_json,
    print_table,
    progress_shown,
    reading_progress,
)
from rec_summary.series.overview.statistics import TagSummary


@contextlib.contextmanager
def command(**options: bool) -> Iterator[None]:
    """Runs the block as a command with these options."""
    with click.Context(click.Command("inspect")) as context:
        context.obj = Printing(**options)
        yield


def test_json_has_strings_for_floats_that_are_not_finite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tag = TagSummary("loss", "scalar", 3, 1, 3, 9, math.nan, -math.inf, math.inf, 3)
    print_json({"tags": (tag,), "none": None})
    [found] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["tags"]
    assert (found["last"], found["least"], found["greatest"]) == ("NaN", "-Infinity", "Infinity")
    assert math.isnan(float(found["last"]))


def test_a_line_when_the_next_name_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown(doing="copying") as show:
        for name, done in (("a", 0), ("a", 1500), ("b\n", 2000), ("b\n", 3000), ("", 4000)):
            show(name, done, 4000)
    assert capsys.readouterr().err.splitlines() == [
        "copying a (0 bytes of 4.0 kB read)",
        "copying b\\n (2.0 kB of 4.0 kB read)",
    ]


def test_a_thousand_names_make_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown(doing="copying") as show:
        for number in range(1000):
            show(f"run_{number}", number, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "copying run_100 (100 bytes of 1.0 kB read)"
    assert len(lines) == 10


def test_a_line_for_each_tenth_of_what_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown(counted="points") as show:
        for done in range(21):
            show("surface", done, 20)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["surface: 0 of 20 points", "surface: 2 of 20 points"]
    assert len(lines) == 11


def test_lines_of_what_has_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown(counted="steps") as show:
        for step in range(1, 1200):
            show("loss 0.5", step, 0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "loss 0.5: 1 steps"
    assert lines[-1] == "loss 0.5: 1,024 steps"
    assert len(lines) == 11


def test_no_lines_if_quiet_or_json_or_only_for_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for how in ({"quiet": True}, {"as_json": True}):
        with command(**how), progress_shown(doing="copying") as show:
            show("a", 0, 1)
    with reading_progress("a", []) as report:
        report.bytes_read += 5
    assert capsys.readouterr().err == ""


NAMES = Column("run", False, [f"experiments/deepfm-lr{rate}-2026" for rate in ("0.1", "0.01")])
NUMBERS = Column("a_long_name", True, ["123456789", "1"])


def drawn(columns: list[Column], width: int) -> tuple[list[str], list[str]]:
    out = Console(width=width, file=io.StringIO())
    table, left_out = fitted_table(columns, width)
    out.print(table)
    return out.file.getvalue().splitlines(), left_out  # type: ignore[attr-defined]


def test_a_table_fits_with_whole_numbers_and_names_that_differ() -> None:
    lines, left_out = drawn([NAMES, NUMBERS, NUMBERS], 36)
    assert max(map(len, lines)) <= 36
    assert lines[1].endswith("123456789 ")
    assert lines[1].split()[0] != lines[2].split()[0]
    assert left_out == ["a_long_name"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_names_that_differ_in_their_middle_are_distinguished_beside_numbers(width: int) -> None:
    ends = "experiment/deepfm-2026-11/" * 2, "/seed-1/first-attempt/records-of-training" * 2
    names = [f"{ends[0]}lr={rate}{ends[1]}" for rate in ("0.1", "0.2")]
    lines, left_out = drawn([Column("run", False, names), NUMBERS], width)
    assert max(map(len, lines)) <= width
    assert left_out == []
    cells = [line.split() for line in lines[1:]]
    starts = [row for row, cell in enumerate(cells) if cell[-1] in NUMBERS.cells]
    assert len(starts) == 2
    first, second = cells[: starts[1]], cells[starts[1] :]
    assert ["".join(cell[0] for cell in part) for part in (first, second)] == names


def test_names_are_whole_if_half_of_the_width_is_enough() -> None:
    names = [f"2022/team_{team}/trial_0210" for team in range(2)]
    lines, left_out = drawn([Column("run", False, names), *[NUMBERS] * 6], 60)
    assert [line.split()[0] for line in lines] == ["run", *names]
    assert max(map(len, lines)) <= 60
    assert left_out != []


def test_a_wide_table_is_whole() -> None:
    lines, left_out = drawn([NAMES, NUMBERS, NUMBERS], 200)
    assert lines[1].split() == [NAMES.cells[0], "123456789", "123456789"]
    assert left_out == []


def test_a_pipe_has_the_columns_of_80_characters_and_whole_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "x" * 90
    columns = [Column("run", False, [name]), *(Column(f"m{i}", True, ["0.5"]) for i in range(40))]
    left_out = print_table(columns, piped=80)
    head, row = capsys.readouterr().out.splitlines()
    assert name in row
    assert 1 <= len(left_out) < 40
    assert head.split() == ["run", *(f"m{i}" for i in range(40 - len(left_out)))]
    assert print_table(columns) == []
    with command(wide=True):
        assert print_table(columns, piped=80) == []
    assert capsys.readouterr().out.count("m39") == 2


def test_a_pipe_has_lines_of_80_characters_beside_names_of_40(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [f"2022/team/trial/seed_0210/attempt-{number}" for number in range(2)]
    with command():
        assert print_table([Column("run", False, names), *[NUMBERS] * 4], piped=80) == [
            NUMBERS.head
        ]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", *names]
    assert max(map(len, lines)) <= 80
