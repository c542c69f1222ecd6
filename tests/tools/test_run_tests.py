"""What fails beside other tests is run once more, alone, and never hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECOND = "passed only the second time, alone; each is a defect to mend:"
MODULE = """
from pathlib import Path

import pytest

def test_good():
    pass

def test_bad():
    assert False

@pytest.mark.parametrize("name", ["a b", "c[d]"])
def test_racy(name):
    ran = Path(name)
    if not ran.exists():
        ran.touch()
        raise OSError
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["-q", f"--rootdir={folder}", "--config-file=/dev/null", "--import-mode=importlib"]
    if "-n" in arguments:
        options += ["-p", "xdist.plugin"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": " ".join(options),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take most of the time
    }
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        [sys.executable, "-m", "tools.run_tests", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(MODULE)
    return tmp_path


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_passes_alone_is_listed_at_the_very_end(folder: Path, processes: str) -> None:
    pytest.importorskip("xdist")
    done = run(folder, "-n", processes, "-k", "good or racy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "once more, alone: 2 failed" in done.stdout
    head, *listed = done.stdout.splitlines()[-3:]
    assert head == SECOND
    assert sorted(listed) == ["  test_it.py::test_racy[a b]", "  test_it.py::test_racy[c[d]]"]


def test_what_fails_twice_fails_the_run(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 1
    assert "once more, alone: 3 failed" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert done.stdout.splitlines()[-3] == SECOND
    assert "test_bad" not in done.stdout.rpartition(SECOND)[2]


@pytest.mark.parametrize(
    ("arguments", "more", "code"),
    [
        (["-x"], "", 1),  # not all tests were run
        (["--maxfail=2"], "", 1),
        ([], "raise OSError", 2),
        (["--no-such-option"], "", 4),
        (["-k", "good"], "", 0),
        (["-k", "nothing"], "", 5),
        (["-k", "many"], "@pytest.mark.parametrize('n', range(11))\ndef test_many(n): assert 0", 1),
        ([], "def test_stop(): raise KeyboardInterrupt", 2),
    ],
)
def test_other_ends_are_not_repeated(
    folder: Path, arguments: list[str], more: str, code: int
) -> None:
    (folder / "test_it.py").write_text(f"{MODULE}\n{more}\n")
    done = run(folder, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "once more" not in done.stdout


def test_a_process_that_dies_is_a_failure(folder: Path) -> None:
    pytest.importorskip("xdist")
    (folder / "test_it.py").write_text("import os\ndef test_dies(): os._exit(7)\n")
    done = run(folder, "-n", "2")
    assert done.returncode not in (0, 5)
