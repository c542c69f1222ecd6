"""The `rec-summary` command. Its sub-commands are in `commands`, what they share is beside it.

Only click is loaded here. What a sub-command needs is imported when it runs, so that
`rec-summary --help` answers at once.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

import click

from rec_summary.cli.command import cli

# Each adds its commands to `cli`.
from rec_summary.cli.commands import (  # noqa: F401
    control,
    diff,
    export,
    gate,
    inspect,
    landscape,
    lineage,
    mcp,
    metrics,
    plot,
    serving,
    slices,
    tail,
    upkeep,
    watch,
    why,
)

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it
_TERMINATED: Final = 143
_GARBAGE: Final = 20_000  # objects between two searches for cycles: thousands of runs have many
EXIT_CODES: Final = {
    0: "done, even if damaged records were passed over (they are listed); or a command that "
    "runs until it is stopped was stopped",
    1: "it failed; `verify` found damage; an alert is firing in "
    "`watch --once`; `diff` found a difference; or a `gate` does not hold",
    2: "a mistake in the arguments; nothing was done",
    3: "`watch`, `diff` or `gate` failed; or a `gate` cannot be judged",
    INTERRUPTED: "Ctrl-C before the end",
    _TERMINATED: "SIGTERM before the end",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: The arguments after the program's name; those of the process by default.

    Returns:
        The exit code (see `EXIT_CODES`).
    """
    _prepare_streams()
    signal.signal(signal.SIGTERM, _terminate)
    gc.set_threshold(_GARBAGE)
    # When Python exits, the work is done: Ctrl-C would only change the exit code.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        code = cli.main(arguments, prog_name="rec-summary", standalone_mode=False)
    except click.ClickException as error:
        from rec_summary.scrubbing import scrubbed
        from rec_summary.series.text import printable_lines

        # It may quote names from the records of a stranger, or a URL with a password.
        vars(error).update(message=printable_lines(scrubbed(error.message)))
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted. You can run the same command again.", err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _prepare_streams() -> None:
    """Makes each text printable: a command that runs for weeks must not end with a run's name."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed: the next file that is opened would get its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    # An exception, so that temporary files are removed on the way out.
    sys.exit(_TERMINATED)
