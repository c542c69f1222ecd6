"""`rec-summary verify`: checks records for damage."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.common import (
    SHOWN,
    choose_runs,
    count_of,
    one_line,
    print_json,
    size_of,
)
from rec_summary.cli.progress import reading_progress

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
    from rec_summary.records.format.names import parse_name
    from rec_summary.records.remote import Url, open_binary
    from rec_summary.series.overview.verify import DAMAGE, verify_file

    reports, unreadable = [], []
    is_url = isinstance(source, Url)
    if parse_name(os.path.basename(source)) if is_url else os.path.isfile(source):
        path = source if is_url else os.path.realpath(source)  # the user has named it
        with contextlib.closing(open_binary(path)) as opened:
            nbytes = opened.size
        with reading_progress(nbytes, quiet=quiet) as advance:
            reports.append(verify_file(path, functools.partial(advance, path)))
    else:
        chosen = choose_runs(source, runs)
        with reading_progress(sum(run.nbytes for run in chosen), quiet=quiet) as advance:
            for run in chosen:
                progress = functools.partial(advance, run.name)
                for file in run.files:
                    try:
                        reports.append(verify_file(file.path, progress))
                    except OSError as error:
                        unreadable.append((file.path, error.strerror or str(error)))
    if as_json:
        found = [{**dataclasses.asdict(each), "damaged": each.damaged} for each in reports]
        print_json({"files": found, "unreadable": unreadable})
    else:
        for report in reports:
            findings = [f for f in report.findings if not quiet or f.severity == DAMAGE]
            for finding in findings[:SHOWN]:
                place = f"{one_line(report.path)}, offset {finding.offset}"
                click.echo(f"{finding.severity}: {place}: {finding.text}")
            if len(findings) > SHOWN:
                click.echo(f"  and {len(findings) - SHOWN:,} more in this file")
        for path, why in unreadable:
            click.echo(f"damage: {one_line(path)}: the file cannot be read: {why}")
    damaged = sum(report.damaged for report in reports) + len(unreadable)
    if not as_json and not quiet:
        records = sum(sum(report.records.values()) for report in reports)
        size = size_of(sum(report.nbytes for report in reports))
        verdict = f"{count_of(damaged, 'damaged file')}" if damaged else "no damage"
        counts = f"{count_of(len(reports), 'file')}, {count_of(records, 'sound record')}"
        click.echo(f"{counts}, {size}: {verdict}")
    if damaged or (strict and any(report.findings for report in reports)):
        sys.exit(1)
