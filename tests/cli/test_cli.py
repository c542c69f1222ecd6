"""The command itself: help, version, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.command import (
    HEAVY,
    python,
    run,
)


@pytest.mark.parametrize("arguments", [["--help"], ["export", "--help"], ["--version"], []])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from rec_summary.cli import main; "
        f"main({arguments!r}); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = python(code)
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_has_examples() -> None:
    for arguments in (["--help"], ["export", "-h"]):
        done = run(*arguments)
        assert done.returncode == 0
        assert "rec-summary export records logs" in done.stdout


def test_version() -> None:
    assert re.fullmatch(r"rec-summary, version \d+\.\d+\S*\n", run("--version").stdout)


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rec_summary", "--version"], capture_output=True, text=True
    )
    assert done.stdout.startswith("rec-summary, version")
