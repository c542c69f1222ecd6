"""Runs the `rec-summary` command in a process of its own."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support import forkserver
from tests.support.waiting import PATIENCE_SECS

PROGRAM = [sys.executable, "-m", "rec_summary"]
HEAVY = ("mindspore", "tensorboard", "numpy", "rich", "google.protobuf", "filelock")
STARTED: list[subprocess.Popen[str]] = []


def run(
    *arguments: str | Path, timeout: float = PATIENCE_SECS, **options: object
) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return forkserver.run(command, popen=forkserver.Command, timeout=timeout, **options)


def on_terminal(width: int, *arguments: str | Path) -> str:
    """Returns what the command prints on a terminal of this width; it must be short."""
    leader, follower = pty.openpty()
    try:
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            stdout=follower,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(width)},
            timeout=PATIENCE_SECS,
        )
        assert done.returncode == 0, done.stderr
        return os.read(leader, 1 << 12).decode()
    finally:
        os.close(leader)
        os.close(follower)


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECS)


def flat(text: str) -> str:
    """Returns text with every run of white space as one space: click wraps lines."""
    return re.sub(r"\s+", " ", text)


def start(
    *arguments: str | Path,
    program: Sequence[str] = PROGRAM[1:],
    popen: type[subprocess.Popen[str]] | None = None,
    **options: object,
) -> subprocess.Popen[str]:
    """Starts the command, or another program of Python's, with these arguments.

    `popen` starts it; by default, the command's packages are imported already. It is killed at the
    end of the test if it is still there.
    """
    popen = popen or (forkserver.Command if program == PROGRAM[1:] else subprocess.Popen)
    process = popen(
        [sys.executable, *program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    STARTED.append(process)
    return process  # type: ignore[no-any-return]


def first_line(process: subprocess.Popen[str]) -> str:
    """Waits for the first line of a started program's standard output, and returns it."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line


def end(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str, str]:
    """Sends a signal; returns the exit code, and what was printed and not yet read."""
    process.send_signal(number)
    out, error = process.communicate(timeout=PATIENCE_SECS)
    return process.returncode, out, error


def end_all() -> None:
    """Kills what a test has started and left."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


def environment() -> dict[str, str]:
    """The environment for a process with another working directory."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
