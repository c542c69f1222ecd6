"""`rec-summary export`: records to what other tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.common import (
    SHOWN,
    called,
    count_of,
    is_wrong_source,
    one_line,
    print_json,
    print_some,
    reporting_errors,
    size_of,
    stopping,
)
from rec_summary.cli.progress import progress_shown
from rec_summary.cli.waiting import tell_what_is_awaited
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
@click.argument("source", metavar="SRC", type=click.Path())
@click.argument("destination", metavar="DEST", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(("tensorboard", *_TABLES)),
    default="tensorboard",
    show_default=True,
    help="What to make: event files for TensorBoard, or tables.",
)
@click.option("--follow", is_flag=True, help="Go on with whatever is written, until Ctrl-C.")
@click.option("--tags", metavar="REGEX", help="Export only tags in which REGEX is found.")
@click.option(
    "--runs", metavar="GLOB", help="Export only runs whose name matches GLOB; * also matches /."
)
@click.option(
    "--plugins",
    metavar="NAMES",
    help="Export only for these plugins of TensorBoard, with commas between them: "
    f"{', '.join(DASHBOARDS)}.",
)
@click.option("--since", metavar="STEP", type=int, help="Export only this step and later ones.")
@click.option("--until", metavar="STEP", type=int, help="Export only this step and earlier ones.")
@click.option(
    "--max-points",
    metavar="N",
    type=int,
    help="Keep at most N points of a series; no peak gets lost.",
)
@click.option(
    "--tensors",
    type=click.Choice(("npy",)),
    help="Write each tensor to a file of its own besides, below DEST/RUN/tensors.",
)
@click.option(
    "--projector",
    metavar="REGEX",
    help="Write embedding tables whose name matches REGEX for the Projector, from the last "
    "checkpoint or tensor of each run.",
)
@click.option("--checkpoint", type=click.Path(), help="Take the tables from this checkpoint.")
@click.option("--labels", type=click.Path(), help="Label the tables' rows with this TSV file.")
@click.option(
    "--jobs",
    metavar="N",
    type=int,
    default=1,
    show_default=True,
    help="Work at N runs at the same time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and problems.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def export(source: str, destination: str, quiet: bool, debug: bool, **chosen: Any) -> None:
    """Turn MindSpore records into TensorBoard event files, or into tables.

    SRC is a record directory or a tree of them; each becomes a run in DEST. Both may be
    URLs. Damaged records are skipped and listed. Exporting again adds what is new, and
    never touches event files of others.
    """
    with reporting_errors(debug=debug):
        try:
            _export(source, destination, quiet=quiet, **chosen)
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
    from rec_summary.tensorboard.event_files.export import ArgumentError

    tables = {"checkpoint": checkpoint, "labels": labels}
    _check_projector(projector, follow=follow, **tables)
    if selection["plugins"] is not None:
        selection["plugins"] = [name.strip() for name in selection["plugins"].split(",")]
    try:
        if follow:
            report = _follow(source, destination, quiet=quiet, **selection)
        else:
            report = _export_once(source, destination, jobs=jobs, quiet=quiet, **selection)
        if projector is not None:
            silent = quiet or as_json
            _project(source, destination, projector, selection["runs"], quiet=silent, **tables)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json({"source": called(source), "destination": called(destination), **vars(report)})
    elif not quiet:
        _print_summary(report, source, destination)
    print_some([str(problem) for problem in report.problems], report.problem_count)


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
    tell_what_is_awaited(source, quiet=quiet)
    with stopping() as stop:
        return follow_tensorboard(source, logdir, stop=stop, options=options, runs=runs)


def _refuse(form: str, **options: Any) -> None:
    """Tells of options that mean nothing for tables."""
    for name in ("follow", "jobs", "plugins", "max_points", "tensors", "projector"):
        if options[name]:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} goes with --format tensorboard, not {form}")


def _export_tables(
    source: str, destination: str, form: str, *, quiet: bool, as_json: bool, **selection: Any
) -> None:
    from rec_summary.series.options import ArgumentError
    from rec_summary.tables.formats import export_tables

    choice = {name: selection[name] for name in ("tags", "runs", "since", "until")}
    try:
        with progress_shown(quiet=quiet, doing="exporting") as progress:
            report = export_tables(source, destination, form=form, progress=progress, **choice)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error
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
    print_some([str(problem) for problem in report.problems], report.problem_count)


def _check_projector(pattern: str | None, *, follow: bool, **tables: str | None) -> None:
    """Tells of options that do not go together."""
    if pattern is not None and follow:
        raise click.UsageError("--projector takes what is there now; it does not go with --follow")
    for name, value in tables.items():
        if value is not None and pattern is None:
            raise click.UsageError(f"--{name} goes with --projector")


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
        click.echo("  nothing new since the last export")
    for what, kinds in (("exported", report.exported), ("not exported", report.unknown)):
        if kinds:
            click.echo(f"  {what}: " + ", ".join(f"{n:,} {_kind(k)}" for k, n in kinds.items()))
    if report.left_out:
        click.echo(f"  left out by your choice: {count_of(report.left_out, 'value')}")
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
        click.echo(f"  note: {one_line(note)}")
    if len(report.notes) > SHOWN:
        click.echo(f"  and {len(report.notes) - SHOWN} more notes")
    if report.replaced:
        click.echo(
            f"  {count_of(len(report.replaced), 'run')} replaced: restart a TensorBoard that is "
            "open, or it may go on showing the old event files"
        )


def _kind(field: str) -> str:
    return field.removesuffix("_value").removesuffix("_def").replace("_", " ")
