"""`rec-summary export`: records to what other tools read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, awaited_runs, stopping
from rec_summary.cli.output import (
    SHOWN,
    called,
    count_of,
    counts_of,
    one_line,
    print_json,
    print_problems,
    progress_shown,
    size_of,
)
from rec_summary.series import DASHBOARDS

if TYPE_CHECKING:
    from rec_summary.records.reading.runs import Run
    from rec_summary.series.report import ExportReport
    from rec_summary.tables.formats import TableReport

EXAMPLES: Final = """\b
Examples:
  rec-summary export records logs          then: tensorboard --logdir logs
  rec-summary export records logs --follow
  rec-summary export records logs --runs 'ctr/*' --tags '^loss' --max-points 2000
  rec-summary export records tables --format parquet
  rec-summary export s3://bucket/records s3://bucket/logs --follow
"""
_TENSORBOARD: Final = "http://localhost:6006/"
_TABLES: Final = ("csv", "parquet", "jsonl")
_EVENTS_ONLY: Final = ("follow", "jobs", "plugins", "max_points", "tensors", "projector")


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    writes="destination",
    follows=lambda params: bool(params["follow"]),
)
@options.source
@click.argument("destination", metavar="DEST", type=click.Path())
@options.option(
    "--format",
    "form",
    type=click.Choice(("tensorboard", *_TABLES)),
    default="tensorboard",
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
@options.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    help="Export N runs at the same time.",
)
@options.as_json("Print the summary as JSON.")
def export(source: str, destination: str, **chosen: Any) -> None:
    """Convert MindSpore records into TensorBoard event files, or into tables.

    SRC is a record directory or a tree of them; each becomes a run in DEST. Both may be
    URLs. Damaged records are skipped and listed. A second export adds the new records; it
    never changes event files of other programs.
    """
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.series.overview.choice import check_tags

    form, quiet, as_json = (chosen.pop(name) for name in ("form", "quiet", "as_json"))
    _check_combination(form, {**chosen, "jobs": chosen["jobs"] > 1})
    if chosen["tags"] is not None and not chosen["follow"]:
        selection = Selection(ExportOptions(since=chosen["since"]))
        runs = map(selection.narrowed, _matching(source, chosen["runs"]))
        check_tags(runs, chosen["tags"], scalars=False)
    report: ExportReport | TableReport
    if form != "tensorboard":
        report = _export_tables(source, destination, form, quiet=quiet, **chosen)
        summary = _table_summary(report)
    else:
        silent = quiet or as_json
        report = _export_events(source, destination, quiet=quiet, silent=silent, **chosen)
        summary = _event_summary(report, source, destination, chosen)
    if as_json:
        print_json({"source": called(source), "destination": called(destination), **vars(report)})
    elif not quiet:
        for line in summary:
            click.echo(line)
    print_problems(report.problems, report.problem_count)


def _check_combination(form: str, given: Mapping[str, Any]) -> None:
    """Raises a usage error for options that exclude each other."""
    for name in _EVENTS_ONLY if form != "tensorboard" else ():
        if given[name]:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} cannot be combined with --format {form}")
    if given["projector"] is not None and given["follow"]:
        raise click.UsageError("--projector cannot be combined with --follow")
    for name in ("checkpoint", "labels"):
        if given[name] is not None and given["projector"] is None:
            raise click.UsageError(f"--{name} needs --projector")


def _export_events(
    source: str,
    logdir: str,
    *,
    quiet: bool,
    silent: bool,
    follow: bool,
    jobs: int,
    runs: str | None,
    projector: str | None,
    checkpoint: str | None,
    labels: str | None,
    **selection: Any,
) -> ExportReport:
    from rec_summary.series.discovery.run_poller import RunPoller
    from rec_summary.series.options import ExportOptions
    from rec_summary.tensorboard.event_files.export import export_tensorboard
    from rec_summary.tensorboard.event_files.follow import follow_tensorboard
    from rec_summary.tensorboard.event_files.projector import export_projector

    if selection["plugins"] is not None:
        selection["plugins"] = [name.strip() for name in selection["plugins"].split(",")]
    options = ExportOptions(**selection)
    if follow:
        if not quiet:
            places = f"{one_line(source)} into {one_line(logdir)}"
            click.echo(f"Following {places}; Ctrl-C to stop.", err=True)
        poller = RunPoller(source)
        awaited_runs(source, quiet=quiet, find=poller.find)
        with stopping() as stop:
            return follow_tensorboard(
                source, logdir, stop=stop, options=options, runs=runs, poller=poller
            )
    if projector is not None:
        # Before everything else: if nothing matches, nothing is written.
        tables = {"checkpoint": checkpoint, "labels": labels}
        found = export_projector(source, logdir, projector, runs=runs, **tables)
        for run, names in found.items() if not silent else ():
            click.echo(f"Projector: {one_line(run)}: {', '.join(map(one_line, names))}")
    with progress_shown(quiet=quiet, doing="exporting") as progress:
        return export_tensorboard(
            source, logdir, jobs=jobs, runs=runs, progress=progress, **selection
        )


def _event_summary(
    report: ExportReport, source: str, logdir: str, chosen: Mapping[str, Any]
) -> Iterator[str]:
    records = sum(report.records.values())
    yield (
        f"Exported {one_line(source)} to {one_line(logdir)}: {count_of(len(report.runs), 'run')}, "
        f"{count_of(records, 'record')} in {count_of(report.files, 'file')}, "
        f"{size_of(report.bytes_read)} read, {size_of(report.bytes_written)} written."
    )
    if not records and not report.problems:
        yield "  no new records since the last export"
    if report.exported:
        yield f"  exported: {counts_of(report.exported)}"
    if report.unknown:
        yield f"  not exported: {counts_of(report.unknown)}"
    if report.left_out:
        yield f"  left out by your options: {count_of(report.left_out, 'value')}"
    if report.repeated:
        values = count_of(report.repeated, "value")
        yield f"  recorded more than once at a step, only the last kept: {values}"
    if report.wall_times_replaced:
        replaced = count_of(report.wall_times_replaced, "record")
        yield f"  without a valid time, replaced by the time of the record before: {replaced}"
    for note in report.notes[:SHOWN]:
        yield f"  note: {one_line(note)}"
    if len(report.notes) > SHOWN:
        yield f"  and {len(report.notes) - SHOWN} more notes"
    if report.replaced:
        runs = count_of(len(report.replaced), "run")
        yield (
            f"  {runs} replaced: restart a running TensorBoard, "
            "or it may still show the old event files"
        )
    yield from _first_screen(source, logdir, chosen["runs"], chosen["tags"], chosen["since"])


def _first_screen(
    source: str, logdir: str, pattern: str | None, tags: str | None, since: str | None
) -> Iterator[str]:
    """Yields how to see the event files, with the most important tags at the top."""
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.tensorboard.first_screen import page, pinned_tags, recorded_tags

    selection = Selection(ExportOptions(tags=tags, since=since))
    recorded = recorded_tags(map(selection.narrowed, _matching(source, pattern)))
    pinned = pinned_tags(tag for tag in recorded if selection.tag(tag))
    if pinned:
        yield f"To see it: tensorboard --logdir {shlex.quote(one_line(called(logdir)))}"
        yield f"  {page(_TENSORBOARD, pinned)}"


def _matching(source: str, pattern: str | None) -> list[Run]:
    from rec_summary.series.options import matching_runs

    return matching_runs(awaited_runs(source, quiet=True), pattern)


def _export_tables(
    source: str, destination: str, form: str, *, quiet: bool, **chosen: Any
) -> TableReport:
    from rec_summary.tables.formats import export_tables

    choice = {name: chosen[name] for name in ("tags", "runs", "since", "until")}
    try:
        with progress_shown(quiet=quiet, doing="exporting") as progress:
            return export_tables(source, destination, form=form, progress=progress, **choice)
    except ImportError as error:
        raise click.ClickException(str(error)) from error


def _table_summary(report: TableReport) -> Iterator[str]:
    for path, count in report.tables.items():
        yield f"{one_line(path)}: {count_of(count, 'row')}"
    if report.left_out:
        yield f"  without a table: {counts_of(report.left_out)}"
