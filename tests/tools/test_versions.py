"""tools/versions: what is asked of pip, which Python is taken, what is kept, what is told."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.version_matrix import outcome, pythons, table, venvs
from tools.version_matrix.environments import (
    ENVIRONMENTS,
    ROOT,
    Wanted,
    dependencies,
    lower_bound,
    named,
    packages,
    wanted,
)

SETUP_CFG = """
[options]
install_requires =
    click >=8.1,<9
    # a comment
    numpy >=1.24,<3
[options.extras_require]
mindspore =
    mindspore >=2.7,<3
    numpy >=1.24,<2  # another
tables =
    pandas >=2,<4
landscape =
    scipy >=1.10,<2
pictures =
    matplotlib >=3.7
"""


def test_the_oldest_end_has_every_dependency_at_its_lower_bound() -> None:
    [oldest, newest] = named(["oldest", "newest"])
    bounds = ("click==8.1", "matplotlib==3.7", "numpy==1.24", "pandas==2", "scipy==1.10")
    assert wanted(oldest, SETUP_CFG).constraints == bounds
    assert wanted(newest, SETUP_CFG).constraints == ()
    assert wanted(oldest, SETUP_CFG).requirements == wanted(newest, SETUP_CFG).requirements


def test_mindspore_is_asked_for_on_the_training_side_only() -> None:
    for environment in ENVIRONMENTS:
        asked = wanted(environment, SETUP_CFG)
        package = f"--editable={ROOT}[" + ("mindspore," if "mindspore" in environment.name else "")
        assert asked.requirements[0] == f"{package}tables,landscape,pictures]"
    [oldest] = named(["mindspore-2.7"])
    assert "mindspore==2.7" in wanted(oldest, SETUP_CFG).constraints


def test_a_pin_stands_in_for_the_lower_bound_of_its_package() -> None:
    [oldest] = named(["oldest"])
    asked = wanted(dataclasses.replace(oldest, pins=("numpy==1.25",)), SETUP_CFG)
    assert "numpy==1.25" in asked.requirements
    assert asked.constraints == ("click==8.1", "matplotlib==3.7", "pandas==2", "scipy==1.10")


def test_all_that_setup_cfg_promises_has_a_lower_bound() -> None:
    stated = dependencies(
        Path(ROOT, "setup.cfg").read_text(), ("mindspore", "tables", "landscape", "pictures")
    )
    assert len(stated) > 10
    assert all(lower_bound(requirement) for requirement in stated)


def test_a_dependency_without_a_lower_bound_is_told() -> None:
    with pytest.raises(ValueError, match=r"Received: 'click <9'. Expected: one with >="):
        lower_bound("click <9")


def test_an_unknown_environment_is_told() -> None:
    with pytest.raises(ValueError, match=r"Received: 'eldest'. Expected: one of oldest, newest"):
        named(["eldest"])


def test_every_package_is_shown_once() -> None:
    names = ["mindspore", "click", "numpy", "pandas", "scipy", "matplotlib"]
    assert packages(SETUP_CFG) == names


@pytest.fixture
def no_pythons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine where Pythons are only in the folder returned, which is on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PYENV_ROOT", "PYTHON3_0"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def pretend(path: Path, script: str) -> str:
    """Writes a program that does what a Python of some version would do when asked for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_is_taken_from_path(no_pythons: Path) -> None:
    pretend(no_pythons / "python3.0", "echo 3.0")
    assert pythons.find_python("3.0") == ("python3.0", "")


def test_the_variable_comes_first(no_pythons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(no_pythons / "python3.0", "echo 3.0")
    mine = pretend(no_pythons / "mine", "echo 3.0")
    monkeypatch.setenv("PYTHON3_0", mine)
    assert pythons.find_python("3.0") == (mine, "")


def test_pyenvs_newest_is_taken_where_its_shim_fails(no_pythons: Path) -> None:
    pretend(no_pythons / "python3.0", "echo 'pyenv: python3.0: command not found' >&2; exit 127")
    versions = no_pythons.parent / ".pyenv" / "versions"
    pretend(versions / "3.0.9" / "bin" / "python", "echo 3.0")
    newest = pretend(versions / "3.0.13" / "bin" / "python", "echo 3.0")
    assert pythons.find_python("3.0") == (newest, "")


def test_without_that_python_the_running_one_is_taken_and_told(no_pythons: Path) -> None:
    pretend(no_pythons / "python3.0", "echo 3.1")
    python, note = pythons.find_python("3.0")
    assert python == sys.executable
    assert "no Python 3.0" in note


def wheel(folder: Path, version: str) -> str:
    """Writes the smallest wheel there is, for pip to install without a network."""
    path = folder / f"tiny-{version}-py3-none-any.whl"
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        archive.writestr(f"{info}/RECORD", "")
    return str(path)


def test_an_environment_is_made_again_only_when_something_else_is_wanted(tmp_path: Path) -> None:
    home = tmp_path / "environment"

    def ensure(version: str, *, constraint: str = "", fresh: bool = False) -> bool:
        asked = Wanted((wheel(tmp_path, version),), (constraint,) if constraint else ())
        return venvs.ensure(home, sys.executable, asked, fresh=fresh)

    assert ensure("1.0")
    assert venvs.installed(home, ["tiny", "absent"]).items() >= {"tiny": "1.0"}.items()
    (home / "mine").touch()
    assert not ensure("1.0")
    assert (home / "mine").exists()
    assert ensure("2.0")
    assert not (home / "mine").exists()
    assert venvs.installed(home, ["tiny", "absent"])["tiny"] == "2.0"
    # pip's refusal is told, and half an environment is not taken for a whole one
    with pytest.raises(venvs.InstallError, match="tiny"):
        ensure("2.0", constraint="tiny==1.0", fresh=True)
    assert ensure("2.0")


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
    counts, failures = outcome.count(report)
    assert counts == {"passed": 1, "failed": 2, "skipped": 1}
    assert failures == ("test_it::test_bad", "test_it::test_error")


@pytest.mark.parametrize(
    ("passed", "failed", "trouble", "good"),
    [(1, 0, "", True), (1, 1, "", False), (0, 0, "", False), (1, 0, "it hung", False)],
)
def test_good_is_only_what_ran_to_the_end_and_passed(
    passed: int, failed: int, trouble: str, good: bool
) -> None:
    counts = {"passed": passed, "failed": failed, "skipped": 0}
    ended = outcome.Outcome({}, counts, 1.0, trouble)
    assert ended.good is good
    assert trouble in table.column(ended, "2024-05-01")["failed"]


def test_columns_of_other_environments_stay(tmp_path: Path) -> None:
    document = tmp_path / "versions.md"
    document.write_text("before\n<!-- table -->\n<!-- end of the table -->\nafter\n")
    rows, order = ["Python", "numpy", "passed"], ["oldest", "newest"]
    newest = {"Python": "3.12.1", "numpy": "2.4.6", "passed": "9"}
    oldest = {"Python": "3.10.13", "passed": "8"}
    table.update(document, {"newest": newest}, order, rows)
    table.update(document, {"oldest": oldest}, order, rows)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert table.parse(text) == {"oldest": oldest, "newest": newest}
    assert "|        | oldest  | newest |\n" in text
    assert "| numpy  | –       | 2.4.6  |\n" in text
    table.update(document, {"oldest": {"Python": "3.11.7"}}, ["oldest"], rows)
    assert table.parse(document.read_text()) == {"oldest": {"Python": "3.11.7"}}


def test_a_document_without_the_tables_place_is_told(tmp_path: Path) -> None:
    document = tmp_path / "versions.md"
    document.write_text("<!-- table -->")
    with pytest.raises(ValueError, match="end of the table"):
        table.update(document, {}, [], [])


def test_the_command_lists_its_environments_and_refuses_others() -> None:
    command = [str(ROOT / "tools" / "versions")]
    listed = subprocess.run([*command, "--list"], capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        it.name for it in ENVIRONMENTS
    ]
    refused = subprocess.run([*command, "eldest"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "'eldest'" in refused.stderr
