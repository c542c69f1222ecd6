"""`rec-summary export`: records to what other tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.common import (
    SHOWN,
    called,
    count_of,
    is_wrong_source,
    one_line,
    print_json,
    print_problems,
    print_waiting,
    size_of,
    stopping,
)
from rec_summary.cli.progress import progress_shown
from rec_summary.errors import SourceError
from rec_summary.series.plugins import DASHBOARDS

if TYPE_CHECKING:
    from rec_summary.series.report import ExportReport

EXAMPLES: Final = """\b
Examples:
  rec-summary export records logs          then: tensorboard --logdir logs
  rec-summary export records logs --follow
  rec-summary export records logs --runs 'ctr/*' --tags '^loss' --max-points 2000
  rec-summary export records tables --format parquet
  rec-summary export s3://bucket/records s3://bucket/logs --follow
"""
_TABLES: Final = ("csv", "parquet", "jsonl")


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    writes="destination",
    follows=lambda params: bool(params["follow"]),
)
@options.source
@click.argument("destination", metavar="DEST", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(("tensorboard", *_TABLES)),
    default="tensorboard",
    show_default=True,
    help="What to make: event files for TensorBoard, or tables.",
)
@click.option("--follow", is_flag=True, help="Go on with new records, until Ctrl-C.")
@options.tags
@options.runs
@click.option(
    "--plugins",
    metavar="NAMES",
    help="Only what these plugins of TensorBoard show, separated by commas: "
    f"{', '.join(DASHBOARDS)}.",
)
@options.since
@options.until
@click.option(
    "--max-points",
    metavar="N",
    type=int,
    help="Downsample each series to at most N points; peaks are kept.",
)
@click.option(
    "--tensors",
    type=click.Choice(("npy",)),
    help="Also write each tensor to a file below DEST/RUN/tensors.",
)
@click.option(
    "--projector",
    metavar="REGEX",
    help="Write embedding tables whose name matches REGEX for the Projector, from the last "
    "checkpoint or the last tensor of each run.",
)
@click.option("--checkpoint", type=click.Path(), help="Read the tables from this checkpoint.")
@click.option(
    "--labels", type=click.Path(), help="Label the rows of the tables with this TSV file."
)
@click.option(
    "--jobs",
    metavar="N",
    type=int,
    default=1,
    show_default=True,
    help="Export N runs at the same time.",
)
@options.as_json("Print the summary as JSON.")
def export(source: str, destination: str, **chosen: Any) -> None:
    """Convert MindSpore records into TensorBoard event files, or into tables.

    SRC is a record directory or a tree of them; each becomes a run in DEST. Both may be
    URLs. Damaged records are skipped and listed. A second export adds the new records; it
    never changes event files of other programs.
    """
    try:
        _export(source, destination, **chosen)
    except SourceError as error:
        if is_wrong_source(source, error):
            raise click.UsageError(str(error)) from error
        raise


def _export(
    source: str,
    destination: str,
    *,
    quiet: bool,
    as_json: bool,
    form: str,
    follow: bool,
    jobs: int,
    projector: str | None,
    checkpoint: str | None,
    labels: str | None,
    **selection: Any,
) -> None:
    if form != "tensorboard":
        _refuse(form, follow=follow, projector=projector, jobs=jobs > 1, **selection)
        _export_tables(source, destination, form, quiet=quiet, as_json=as_json, **selection)
        return
    tables = {"checkpoint": checkpoint, "labels": labels}
    _check_projector(projector, follow=follow, **tables)
    if selection["plugins"] is not None:
        selection["plugins"] = [name.strip() for name in selection["plugins"].split(",")]
    if follow:
        report = _follow(source, destination, quiet=quiet, **selection)
    else:
        report = _export_once(source, destination, jobs=jobs, quiet=quiet, **selection)
    if projector is not None:
        silent = quiet or as_json
        _project(source, destination, projector, selection["runs"], quiet=silent, **tables)
    if as_json:
        print_json({"source": called(source), "destination": called(destination), **vars(report)})
    elif not quiet:
        _print_summary(report, source, destination)
    print_problems(report.problems, report.problem_count)


def _export_once(
    source: str, logdir: str, *, jobs: int, quiet: bool, **selection: Any
) -> ExportReport:
    from rec_summary.tensorboard.event_files.export import export_tensorboard

    with progress_shown(quiet=quiet, doing="exporting") as progress:
        return export_tensorboard(source, logdir, jobs=jobs, progress=progress, **selection)


def _follow(
    source: str, logdir: str, *, quiet: bool, runs: str | None, **selection: Any
) -> ExportReport:
    from rec_summary.series.options import ExportOptions
    from rec_summary.tensorboard.event_files.follow import follow_tensorboard

    options = ExportOptions(**selection)
    if not quiet:
        click.echo(
            f"Following {one_line(source)} into {one_line(logdir)}; Ctrl-C to stop.", err=True
        )
    print_waiting(source, quiet=quiet)
    with stopping() as stop:
        return follow_tensorboard(source, logdir, stop=stop, options=options, runs=runs)


def _refuse(form: str, **options: Any) -> None:
    """Raises a usage error for options that have no meaning for tables."""
    for name in ("follow", "jobs", "plugins", "max_points", "tensors", "projector"):
        if options[name]:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} cannot be combined with --format {form}")


def _export_tables(
    source: str, destination: str, form: str, *, quiet: bool, as_json: bool, **selection: Any
) -> None:
    from rec_summary.tables.formats import export_tables

    choice = {name: selection[name] for name in ("tags", "runs", "since", "until")}
    try:
        with progress_shown(quiet=quiet, doing="exporting") as progress:
            report = export_tables(source, destination, form=form, progress=progress, **choice)
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json({"source": called(source), "destination": called(destination), **vars(report)})
    elif not quiet:
        for path, count in report.tables.items():
            click.echo(f"{one_line(path)}: {count_of(count, 'row')}")
        if report.left_out:
            kinds = ", ".join(f"{n:,} {_kind(k)}" for k, n in report.left_out.items())
            click.echo(f"  without a table: {kinds}")
    print_problems(report.problems, report.problem_count)


def _check_projector(pattern: str | None, *, follow: bool, **tables: str | None) -> None:
    """Raises a usage error for options that exclude each other."""
    if pattern is not None and follow:
        raise click.UsageError("--projector cannot be combined with --follow")
    for name, value in tables.items():
        if value is not None and pattern is None:
            raise click.UsageError(f"--{name} needs --projector")


def _project(
    source: str, logdir: str, pattern: str, runs: str | None, *, quiet: bool, **tables: str | None
) -> None:
    from rec_summary.tensorboard.event_files.projector import export_projector

    for run, names in export_projector(source, logdir, pattern, runs=runs, **tables).items():
        if not quiet:
            shown = ", ".join(one_line(name) for name in names)
            click.echo(f"Projector: {one_line(run)}: {shown}")


def _print_summary(report: ExportReport, source: str, logdir: str) -> None:
    records = sum(report.records.values())
    click.echo(
        f"Exported {one_line(source)} to {one_line(logdir)}: {count_of(len(report.runs), 'run')}, "
        f"{count_of(records, 'record')} in {count_of(report.files, 'file')}, "
        f"{size_of(report.bytes_read)} read, {size_of(report.bytes_written)} written."
    )
    if not records and not report.problems:
        click.echo("  no new records since the last export")
    for what, kinds in (("exported", report.exported), ("not exported", report.unknown)):
        if kinds:
            click.echo(f"  {what}: " + ", ".join(f"{n:,} {_kind(k)}" for k, n in kinds.items()))
    if report.left_out:
        click.echo(f"  left out by your options: {count_of(report.left_out, 'value')}")
    if report.repeated:
        click.echo(
            f"  recorded more than once at a step, only the last kept: "
            f"{count_of(report.repeated, 'value')}"
        )
    if report.wall_times_replaced:
        click.echo(
            "  without a valid time, replaced by the time of the record before: "
            f"{count_of(report.wall_times_replaced, 'record')}"
        )
    for note in report.notes[:SHOWN]:
        click.echo(f"  note: {one_line(note)}")
    if len(report.notes) > SHOWN:
        click.echo(f"  and {len(report.notes) - SHOWN} more notes")
    if report.replaced:
        click.echo(
            f"  {count_of(len(report.replaced), 'run')} replaced: restart a running TensorBoard, "
            "or it may still show the old event files"
        )


def _kind(field: str) -> str:
    return field.removesuffix("_value").removesuffix("_def").replace("_", " ")
