"""TensorBoard on this machine: the command that opens it, and opening it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from rec_summary.errors import RecSummaryError


def script(name: str) -> Path:
    """Returns a command of the environment that runs this."""
    return Path(sys.executable).with_name(name)


def command_line(records: Path) -> str:
    """Returns what the user types to see records in TensorBoard."""
    return shlex.join([shown(script("rec-summary")), "view", shown(records)])


def shown(path: Path) -> str:
    """Returns a path as the user would type it from where they are."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def view(records: Path) -> None:
    """Shows records with `rec-summary view`, in a browser too, and waits for the end.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C or SIGTERM; TensorBoard has ended as well.
        RecSummaryError: TensorBoard did not start.
    """
    with subprocess.Popen([script("rec-summary"), "view", records, "--open"]) as server:
        try:
            code = server.wait()
        finally:
            server.terminate()
    if code:
        raise RecSummaryError(f"rec-summary view failed with exit code {code}")
