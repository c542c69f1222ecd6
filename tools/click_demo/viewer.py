"""TensorBoard on this machine: the command that opens it, and opening it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import webbrowser
from pathlib import Path

import click

from rec_summary.errors import RecSummaryError

_HOST = "127.0.0.1"


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
    """Shows records with `rec-summary view`, opens a browser on them, and waits for the end.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C or SIGTERM; TensorBoard has ended as well.
        RecSummaryError: TensorBoard did not start.
    """
    command = [str(script("rec-summary")), "view", str(records), "--host", _HOST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                click.echo(line, nl=False)
                if found := re.search(r"http://\S+", line):
                    webbrowser.open(found[0])
            code = server.wait()
        finally:
            server.terminate()
    if code:
        raise RecSummaryError(f"rec-summary view failed with exit code {code}")
