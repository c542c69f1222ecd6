"""The count of lines of code, and of what tests hold of the inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.checks import size

MODULE = b'''"""A module
of two lines."""

# A comment.
import os


def half(x):
    """Returns the half."""
    text = """two
lines"""
    return (
        x / 2  # a number
    )
'''
TEST = b"""
def test(monkeypatch, x):
    x._inside.y = x.__class__
    monkeypatch.setattr(x, "_limit", 1)
    monkeypatch.setattr("a.b._limit", 1)
    monkeypatch.setattr(x, "limit", "_value")
class A:
    def f(self):
        return self._own
"""


def test_lines_of_code_are_no_docstrings_comments_or_blanks() -> None:
    assert size.lines_of_code(MODULE) == 7


def test_private_names_are_attributes_and_patches() -> None:
    assert size.private_names(TEST) == (1, 3)


@pytest.mark.parametrize(("count", "code"), [(1, 0), (size.MOST_LINES + 1, 1)])
def test_a_project_that_is_too_large_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, code: int
) -> None:
    for folder, text in (("rec_summary/a", "x = 1\n" * count), ("rec_summary/_pb", "x = 1\n")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "module.py").write_text(text)
    assert size.main(tmp_path) == code
    assert f"{count:,} lines of code in 1 modules" in capsys.readouterr().out


def test_more_private_names_than_are_allowed_fail(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    test = tmp_path / "tests" / "test_a.py"
    patch = "monkeypatch.setattr(os, 'fsync', fail)\n"  # of a public name
    test.write_text(patch + "x._y\n" * (size.MOST_PRIVATE - 1))
    assert size.main(tmp_path) == 0
    test.write_text(patch + "x._y\n" * size.MOST_PRIVATE)
    assert size.main(tmp_path) == 1
