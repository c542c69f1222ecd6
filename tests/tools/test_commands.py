"""The commands of tools/, as their users meet them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECS

TOOLS = Path(__file__).resolve().parents[2] / "tools"
COMMANDS = ["bench", "check", "demo", "docs", "proto", "release", "test"]


def test_each_file_without_a_suffix_is_a_command() -> None:
    commands = [path for path in TOOLS.iterdir() if path.is_file() and not path.suffix]
    assert sorted(path.name for path in commands) == COMMANDS


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [TOOLS / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECS)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])  # by its options
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_says_what_it_does_and_how_long_it_takes(name: str, flag: str) -> None:
    done = run(name, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"tools/{name}" in done.stdout
    assert re.search(r"\b(seconds?|minutes|hours?)\b", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"), [([], "tools/check fuzz"), (["x"], "Received: x.")]
)
def test_a_check_must_be_named(arguments: list[str], words: str) -> None:
    done = run("check", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    "path",
    [*(TOOLS / name for name in COMMANDS), TOOLS.parent / ".ci" / "run"],
    ids=lambda path: path.name,
)
def test_modules_and_commands_that_are_called_exist(path: Path) -> None:
    text = path.read_text()
    for module in re.findall(r"python -m (tools\.[\w.]+)", text):
        program = TOOLS.parent / module.replace(".", "/")
        assert program.with_suffix(".py").is_file() or (program / "__main__.py").is_file(), module
    for command in re.findall(r"(?<![\w-])tools/(\w+)(?![\w.])", text):
        assert (TOOLS / command).exists(), command
