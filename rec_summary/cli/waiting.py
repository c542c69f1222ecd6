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
        source: A directory that need not exist yet, or a URL.
        quiet: Whether to print nothing.

    Raises:
        click.UsageError: The source is a file, not a directory.
    """
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.records.remote import NoSuchPlace, Url

    try:
        find_runs(source)
    except SourceError as error:
        if isinstance(source, Url) and not isinstance(error, NoSuchPlace):
            raise  # the store cannot be reached
        if os.path.exists(source) and not os.path.isdir(source):
            raise click.UsageError(str(error)) from error
        if not quiet:
            place = one_line(source if isinstance(source, Url) else os.path.abspath(source))
            known = f"There are no records in {place} yet"
            if not isinstance(source, Url) and not os.path.exists(source):
                known = f"{place} does not exist yet"
            click.echo(f"{known}: waiting for records.", err=True)
