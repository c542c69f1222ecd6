"""`rec-summary verify`: checks records for damage."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, choose_runs
from rec_summary.cli.output import (
    count_of,
    one_line,
    print_first,
    print_json,
    reading_progress,
    size_of,
)
from rec_summary.errors import three_part

if TYPE_CHECKING:
    from rec_summary.series.overview.verify import FileReport

EXAMPLES = """\b
Examples:
  rec-summary verify records
  rec-summary verify records && rsync -a records backup:
"""


@click.command(cls=RecordsCommand, epilog=EXAMPLES, quiet="Print damage only.")
@options.source
@options.runs
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings as well.")
@options.as_json()
def verify(source: str, runs: str | None, strict: bool, as_json: bool, quiet: bool) -> None:
    """Check the checksums, contents and order of records; nothing is changed.

    SRC is a record directory, a tree of them, a single record file, or a URL. Exits with 0 if
    there is no damage, with 1 if there is. An unfinished record at the end of a file is a
    warning: a running training leaves one.
    """
    from rec_summary.series.overview.verify import DAMAGE, verify_file

    reports, unreadable = [], []
    files = _files(source, runs)
    with reading_progress(sum(files.values()), quiet=quiet) as begin:
        for path in files:
            try:
                reports.append(verify_file(path, begin(path)))
            except OSError as error:
                unreadable.append((path, error.strerror or str(error)))
    damaged = sum(report.damaged for report in reports) + len(unreadable)
    if as_json:
        found = [{**dataclasses.asdict(each), "damaged": each.damaged} for each in reports]
        print_json({"files": found, "unreadable": unreadable})
    else:
        for report in reports:
            where = f"{one_line(report.path)}, offset"
            findings = [f for f in report.findings if not quiet or f.severity == DAMAGE]
            lines = [f"{each.severity}: {where} {each.offset}: {each.text}" for each in findings]
            print_first(lines, "in this file")
        for path, why in unreadable:
            click.echo(f"damage: {one_line(path)}: the file cannot be read: {why}")
        if not quiet:
            _print_summary(reports, damaged)
    if damaged or (strict and any(report.findings for report in reports)):
        sys.exit(1)


def _files(source: str, pattern: str | None) -> dict[str, int]:
    """Returns the record files of a source, which may be one itself, and their sizes."""
    from rec_summary.records.format.names import parse_name
    from rec_summary.records.remote import Url
    from rec_summary.series.options import ArgumentError

    is_named = parse_name(os.path.basename(source)) is not None
    if isinstance(source, Url) and is_named:
        return {source: 0}  # its size is only known when it is opened
    if not isinstance(source, Url) and os.path.isfile(source):
        path = os.path.realpath(source)  # you have named the file, so it may be a link
        nbytes = os.path.getsize(path)
        if not nbytes and not is_named:
            expected = "a record file; this one is empty, and its name is not that of a record file"
            raise ArgumentError(three_part("the source of records", source, expected))
        return {path: nbytes}
    return {file.path: file.nbytes for run in choose_runs(source, pattern) for file in run.files}


def _print_summary(reports: Sequence[FileReport], damaged: int) -> None:
    records = sum(sum(report.records.values()) for report in reports)
    size = size_of(sum(report.nbytes for report in reports))
    verdict = count_of(damaged, "damaged file") if damaged else "no damage"
    counts = f"{count_of(len(reports), 'file')}, {count_of(records, 'sound record')}"
    click.echo(f"{counts}, {size}: {verdict}")
