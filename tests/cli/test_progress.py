"""Progress where standard error is not a terminal."""

from __future__ import annotations

import pytest

from rec_summary.cli.progress import progress_shown, reading_progress


def test_a_line_when_the_next_name_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown(quiet=False, doing="copying") as show:
        for name, done in (("a", 0), ("a", 1500), ("b\n", 2000), ("b\n", 4000)):
            show(name, done, 4000)
    assert capsys.readouterr().err.splitlines() == [
        "copying a (0 bytes of 4.0 kB read)",
        "copying b\\n (2.0 kB of 4.0 kB read)",
    ]


def test_a_line_for_each_tenth_of_what_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown(quiet=False, counted="points") as show:
        for done in range(21):
            show("surface", done, 20)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["surface: 0 of 20 points", "surface: 2 of 20 points"]
    assert len(lines) == 11


def test_nothing_if_quiet_or_only_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_shown(quiet=True, doing="copying") as show:
        show("a", 0, 1)
    with reading_progress(10, quiet=False) as advance:
        advance("a", 5)
        advance("a", 7)
    assert capsys.readouterr().err == ""
