"""The sessions of `tools/check versions`: their dependencies, and the table of their results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nox")

from tests.support.waiting import PATIENCE_SECS
from tools import noxfile
from tools.noxfile import BOTH_SIDES, READ_SIDE, Environment, constraints, dependencies

SESSIONS = ("oldest", "newest", "mindspore-2.7", "mindspore-2.10")


def test_every_dependency_has_a_lower_bound() -> None:
    stated = dependencies(BOTH_SIDES)
    assert len(stated) > 10
    for requirement in stated:
        assert ">=" in {each.operator for each in requirement.specifier}, requirement


def test_the_oldest_environment_has_every_dependency_at_its_lower_bound() -> None:
    bounds = constraints(Environment(READ_SIDE, oldest=True))
    assert {"click==8.1", "numpy==1.24", "tensorboard==2.20", "pandas==2"} <= set(bounds)
    assert len(bounds) == len(dependencies(READ_SIDE))
    assert not any(bound.startswith("mindspore") for bound in bounds)
    assert "mindspore==2.7" in constraints(Environment(BOTH_SIDES, oldest=True))


def test_the_newest_environment_has_no_constraints() -> None:
    assert constraints(Environment(BOTH_SIDES, pins=("mindspore==2.10.*",))) == []


def test_a_pin_replaces_the_lower_bound_of_its_package() -> None:
    bounds = constraints(Environment(READ_SIDE, oldest=True, pins=("pillow==9.3",)))
    assert [bound for bound in bounds if bound.startswith("pillow")] == ["pillow==9.3"]


REPORT = """
import pytest
def test_good(): pass
def test_bad(): assert False
@pytest.fixture
def broken(): raise OSError
def test_error(broken): pass
def test_skipped(): pytest.skip("not here")
"""


def test_errors_count_as_failures(tmp_path: Path) -> None:
    Path(tmp_path, "test_it.py").write_text(REPORT)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    subprocess.run([*command, f"--junit-xml={report}"], cwd=tmp_path, capture_output=True)
    assert noxfile.count(report) == {"passed": 1, "failed": 2, "skipped": 1}


def test_columns_of_other_sessions_stay(tmp_path: Path) -> None:
    results, page = tmp_path / "versions.json", tmp_path / "versions.md"
    results.write_text('{"oldest": {"Python": "3.10.1"}, "newest": {}}')
    page.write_text(f"before\n{noxfile.BEGIN}\nold\n{noxfile.END}\nafter\n")
    column = {"Python": "3.12.1", "numpy": "2.4.6", "passed": "9"}
    noxfile.record("newest", column, results, page)
    assert list(json.loads(results.read_text())) == ["oldest", "newest"]
    first, *lines, last = page.read_text().splitlines()
    assert (first, last, "old" in lines) == ("before", "after", False)
    rows = ("|  | oldest | newest |", "| Python | 3.10.1 | 3.12.1 |", "| numpy | – | 2.4.6 |")
    assert set(rows) <= set(lines)


def test_the_page_has_the_table_of_the_stored_results() -> None:
    columns = json.loads(noxfile.RESULTS.read_text())
    assert tuple(columns) == SESSIONS
    assert noxfile.table(columns) in noxfile.PAGE.read_text()


def test_nox_finds_the_sessions() -> None:
    command = [sys.executable, "-m", "nox", "--noxfile", noxfile.__file__, "--list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECS)
    assert tuple(each["session"] for each in json.loads(done.stdout)) == SESSIONS
