"""`rec-summary export`: records to what other tools read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from rec_summary.cli.common import (
    SHOWN,
    count_of,
    one_line,
    print_some,
    progress_shown,
    reporting_errors,
    size_of,
)
from rec_summary.errors import SourceError

if TYPE_CHECKING:
    from rec_summary.export.report import ExportReport

EXAMPLES: Final = """\b
Examples:
  rec-summary export records logs          then: tensorboard --logdir logs
  rec-summary export records logs --runs 'ctr/*' --tags '^loss'
"""


@click.command(epilog=EXAMPLES)
@click.argument("source", metavar="SRC", type=click.Path())
@click.argument("logdir", metavar="LOGDIR", type=click.Path())
@click.option("--tags", metavar="REGEX", help="Export only tags in which REGEX is found.")
@click.option(
    "--runs", metavar="GLOB", help="Export only runs whose name matches GLOB; * also matches /."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and problems.")
@click.option("--debug", is_flag=True, help="Show where in the program an error arose.")
def export(
    source: str, logdir: str, tags: str | None, runs: str | None, quiet: bool, debug: bool
) -> None:
    """Turn MindSpore records into TensorBoard event files.

    SRC is a record directory or a tree of them; each becomes a run in LOGDIR. Damaged
    records are skipped and listed. Exporting again replaces what was exported before, and
    never touches event files of others.
    """
    with reporting_errors(debug=debug):
        from rec_summary.export.tensorboard import ArgumentError, export_tensorboard

        try:
            with progress_shown(quiet=quiet) as progress:
                report = export_tensorboard(source, logdir, tags=tags, runs=runs, progress=progress)
        except ArgumentError as error:
            raise click.UsageError(str(error)) from error
        except SourceError as error:
            if not os.path.isdir(source):  # a mistake in the argument, not in the records
                raise click.UsageError(str(error)) from error
            raise
    if not quiet:
        _print_summary(report, source, logdir)
    print_some([str(problem) for problem in report.problems], report.problem_count)


def _print_summary(report: ExportReport, source: str, logdir: str) -> None:
    records = sum(report.records.values())
    click.echo(
        f"Exported {one_line(source)} to {one_line(logdir)}: {count_of(len(report.runs), 'run')}, "
        f"{count_of(records, 'record')} in {count_of(report.files, 'file')}, "
        f"{size_of(report.bytes_read)} read, {size_of(report.bytes_written)} written."
    )
    for what, kinds in (("exported", report.exported), ("not exported yet", report.unknown)):
        if kinds:
            click.echo(f"  {what}: " + ", ".join(f"{n:,} {_kind(k)}" for k, n in kinds.items()))
    if report.left_out:
        click.echo(f"  left out by --tags: {count_of(report.left_out, 'value')}")
    if report.repeated:
        click.echo(
            f"  recorded again at the same step, of which the last was kept: "
            f"{count_of(report.repeated, 'value')}"
        )
    if report.wall_times_replaced:
        click.echo(
            "  without a valid time, of which that of the record before was taken: "
            f"{count_of(report.wall_times_replaced, 'record')}"
        )
    for note in report.notes[:SHOWN]:
        click.echo(f"  note: {note}")
    if len(report.notes) > SHOWN:
        click.echo(f"  and {len(report.notes) - SHOWN} more notes")
    if report.replaced:
        click.echo(
            f"  {count_of(len(report.replaced), 'run')} replaced: restart a TensorBoard that is "
            "open, or it may go on showing the old event files"
        )


def _kind(field: str) -> str:
    return field.removesuffix("_value").removesuffix("_def").replace("_", " ")
