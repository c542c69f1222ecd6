"""Text of a stranger on a terminal, in tables and on pages."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.framing import frame
from rec_summary.series.text import printable, printable_lines
from rec_summary.tensorboard.dashboards.text import table
from tests.support.checkpoint_bytes import value
from tests.support.crafted import MAIN, field, run
from tests.support.quadratic import write_run
from tests.support.record_dirs import custom, event, lineage, scalar, train, write_segment

TRICKS = "\x1b]0;title\x07\x1b[2J\x9b31m\r\n\x08[red]:boom:[/red]\u202etxt\\"
SHOWN = "[red]:boom:[/red]"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in (1, 2):
        write_segment(
            tmp_path / "records" / f"run{number}",
            lineage(train_lineage=train(status=4, reason=TRICKS, host=TRICKS)),
            lineage(user_defined_info=custom({TRICKS: TRICKS + str(number), "\x1b[1mx": number})),
            event(1, scalar(TRICKS, 1), scalar("[bold]b[/bold]", 2), scalar("a\\[x]", 3)),
        )
    return tmp_path / "records"


def on_a_terminal(*arguments: object) -> str:
    """Returns what a command prints to a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        child = subprocess.Popen(
            [*MAIN, *map(str, arguments)],
            stdout=theirs,
            stderr=theirs,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "COLUMNS": "300", "TERM": "xterm"},
        )
        os.close(theirs)
        said = b""
        try:
            while block := screen.read(4096):
                said += block
        except OSError:  # the other end is closed
            pass
        child.wait()
    return said.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("lineage",),
        ("lineage", "--format", "csv"),
        ("lineage", "--format", "json"),
        ("lineage", "--columns", "\x1b[2Jnothing"),
        ("verify",),
    ],
    ids=lambda arguments: "-".join(arguments[::2]),
)
def test_a_terminal_gets_no_orders(source: Path, arguments: tuple[str, ...]) -> None:
    said = on_a_terminal(arguments[0], source, *arguments[1:])
    for order in ("\x1b]", "\x1b[2J", "\x1b[1mx", "\x9b", "\x08", "\x07", "\u202e"):
        assert order not in said
    assert "Traceback" not in said


def test_markup_is_shown_as_it_is(source: Path) -> None:
    said = run("inspect", source).stdout
    for text in (SHOWN, "[bold]b[/bold]", "a\\[x]"):
        assert text in said
    assert SHOWN in run("lineage", source).stdout


def test_errors_that_quote_a_file_give_no_orders(tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    write_run(tmp_path / "run")
    checkpoint = tmp_path / "run" / "ckpt_dir" / "Net_6_step.ckpt"
    checkpoint.write_bytes(value("table" + TRICKS, (4, 3), "Float32", bytes(48)))
    done = run("landscape", tmp_path / "run", "--model", "os:getcwd")
    assert done.returncode == 1
    assert "the parameters of a checkpoint" in done.stderr
    assert "table" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr


def test_a_file_gets_what_was_recorded(source: Path) -> None:
    found = list(csv.DictReader(io.StringIO(run("lineage", source, "--format", "csv").stdout)))
    assert {row["reason"] for row in found} == {TRICKS.replace("\r\n", "\n")} or TRICKS in {
        row["reason"] for row in found
    }
    assert json.loads(run("lineage", source, "--format", "json").stdout)[0]["reason"] == TRICKS


def test_pages_get_no_markup() -> None:
    made = table("", [("<script>alert(1)</script>", "[x](javascript:alert(1)) ![](http://x)")])
    row = made.splitlines()[-1]
    for character in "<>[]`":
        assert character not in row
    assert "&#60;script&#62;" in row


def test_a_table_of_very_many_rows_is_cut() -> None:
    made = table("", ((str(number), number) for number in range(10_500)))
    assert made.splitlines()[-1] == "| … | 500 more |"


def test_names_with_line_breaks_stay_in_their_line() -> None:
    assert printable("a\nb\u2028c") == r"a\nb\u2028c"
    assert printable_lines("a\nb\x1b[0m") == "a\nb\\x1b[0m"


def test_events_of_unknown_kinds_have_no_name_of_their_own(tmp_path: Path) -> None:
    message = lineage_pb2.LineageEvent(wall_time=1).SerializeToString() + field(77, b"\x1b[2J")
    write_segment(tmp_path / "records" / "run", event(1, scalar("loss", 1)))
    [path] = (tmp_path / "records" / "run").glob("*_lineage")
    path.write_bytes(frame(message))
    done = run("export", tmp_path / "records", tmp_path / "logs")
    assert "1 unknown" in done.stdout
    assert "\x1b" not in done.stdout
