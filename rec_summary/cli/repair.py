"""`rec-summary repair`: copies readable records."""

from __future__ import annotations

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.output import (
    count_of,
    one_line,
    print_first,
    print_json,
    progress_shown,
    size_of,
)

EXAMPLES = """\b
Examples:
  rec-summary repair records records-repaired
  rec-summary repair records records-repaired --json | jq '.files[].lost'
"""


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    quiet="Print losses only.",
    writes="destination",
    empty=True,
)
@options.source
@click.argument("destination", metavar="DEST", type=click.Path())
@options.as_json()
def repair(source: str, destination: str, as_json: bool, quiet: bool) -> None:
    """Copy all readable records to DEST; SRC is not changed.

    Records behind damaged bytes are found, too. DEST must be empty or new. Other files of a
    record directory, such as checkpoints, are not copied. Both may be URLs.
    """
    from rec_summary.records.reading.repair import repair as copy

    with progress_shown(quiet=quiet, doing="copying") as progress:
        report = copy(source, destination, progress=progress)
    if as_json:
        print_json(report)
        return
    places = [
        f"{one_line(file.source)}, offset {offset}: {size_of(size)} could not be read"
        for file in report.files
        for offset, size in file.lost
    ]
    places += [f"{one_line(path)}: cannot be opened: {why}" for path, why in report.unreadable]
    print_first(places, "places")
    if quiet:
        return
    records = sum(file.records for file in report.files)
    size = size_of(sum(file.nbytes for file in report.files))
    lost = sum(size for file in report.files for _, size in file.lost)
    files = count_of(len(report.files), "file")
    click.echo(
        f"Copied {count_of(records, 'record')} ({size}) in {files} to "
        f"{one_line(destination)}; {size_of(lost)} could not be read."
    )
    if report.other:
        click.echo(f"  {count_of(report.other, 'other file')} not copied")
