"""Runs the `rec-summary` command in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = [sys.executable, "-m", "rec_summary.cli"]
HEAVY = ("mindspore", "tensorboard", "numpy", "rich", "google.protobuf", "filelock")


def run(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def flat(text: str) -> str:
    """Returns text with every run of white space as one space: click wraps lines."""
    return re.sub(r"\s+", " ", text)


def start(
    *arguments: str | Path, program: Sequence[str] = PROGRAM[1:], **options: object
) -> subprocess.Popen[str]:
    """Starts the command, or another program of Python's, with these arguments."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def environment() -> dict[str, str]:
    """The environment for a process with another working directory."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
