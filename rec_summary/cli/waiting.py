"""What commands that follow a source print while it has no records."""

from __future__ import annotations

import os

import click

from rec_summary.cli.common import one_line
from rec_summary.errors import SourceError


def tell_what_is_awaited(source: str, *, quiet: bool) -> None:
    """Prints that there are no records yet, and where the command waits for them.

    So a mistyped name is noticed.

    Args:
        source: The directory, or the local copy of a URL.
        quiet: Whether to print nothing.

    Raises:
        click.UsageError: The source is a file, not a directory.
    """
    from rec_summary.records.reading.runs import find_runs

    try:
        find_runs(source)
    except SourceError as error:
        if os.path.exists(source) and not os.path.isdir(source):
            raise click.UsageError(str(error)) from error
        if not quiet:
            place = one_line(os.path.abspath(source))
            known = f"There are no records in {place} yet"
            if not os.path.exists(source):
                known = f"{place} does not exist yet"
            click.echo(f"{known}: waiting for records.", err=True)
