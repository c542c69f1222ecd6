"""`rec-summary export`: records to what other tools read."""

from __future__ import annotations

import contextlib
import shlex
import threading
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
    from rec_summary.series.discovery.run_poller import RunPoller
    from rec_summary.series.report import ExportReport
    from rec_summary.tables.formats import TableReport

EXAMPLES: Final = """\b
Examples:
  rec-summary export records logs          then: tensorboard --logdir logs
  rec-summary export records logs --follow
  rec-summary export records logs --runs 'ctr/*' --tags '^loss' --max-points 2000
  rec-summary export records tables --format parquet
  rec-summary export records dataset --format parquet --follow
  rec-summary export s3://bucket/records s3://bucket/logs --follow
"""
_TENSORBOARD: Final = "http://localhost:6006/"
_TABLES: Final = ("csv", "parquet", "jsonl")
_EVENTS_ONLY: Final = ("plugins", "max_points", "tensors", "projector")


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
@click.option(
    "--follow",
    is_flag=True,
    help="Keep exporting new records until Ctrl-C. With --format parquet, write the scalars as a "
    "dataset with a partition for each run and day.",
)
@click.option(
    "--every",
    metavar="SECS",
    type=click.FloatRange(0, min_open=True),
    help="With --format parquet --follow: the time between two new files.  [default: 60]",
)
@options.tags
@options.runs
@options.separate_ranks
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
@options.on_engine
@options.as_json("Print the summary as JSON.")
def export(source: str, destination: str, **chosen: Any) -> None:
    """Convert MindSpore records into TensorBoard event files, or into tables.

    SRC is a record directory or a tree of them; each becomes a run in DEST. Both may be
    URLs. Damaged records are skipped and listed. A second export adds the new records; it
    never changes event files of other programs.
    """
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.series.overview.choice import check_ranks, check_tags

    form, quiet, as_json = (chosen.pop(name) for name in ("form", "quiet", "as_json"))
    _check_combination(form, destination, chosen)
    every = chosen.pop("every")
    if (chosen["tags"] or chosen["ranks"]) is not None and not chosen["follow"]:
        selection = Selection(ExportOptions(since=chosen["since"], until=chosen["until"]))
        runs = _matching(source, chosen["runs"])
        check_ranks(runs, chosen["ranks"])
        check_tags(map(selection.narrowed, runs), chosen["tags"], scalars=False)
    report: ExportReport | TableReport
    if form == "parquet" and chosen["follow"]:
        report = _follow_dataset(source, destination, every, quiet=quiet, **chosen)
        summary = _export_counts(report, source, destination)
    elif form != "tensorboard":
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


def _check_combination(form: str, destination: str, given: Mapping[str, Any]) -> None:
    """Raises a usage error for options that exclude each other."""
    is_dataset = form == "parquet" and given["follow"]
    if given["follow"] and form not in ("tensorboard", "parquet"):
        raise click.UsageError(f"--follow cannot be combined with --format {form}")
    if given["every"] is not None and not is_dataset:
        raise click.UsageError("--every needs --format parquet --follow")
    if is_dataset and called(destination) != destination:
        raise click.UsageError("--format parquet --follow needs a local DEST; copy it from there")
    if is_dataset and given["ranks"] is not None:
        raise click.UsageError("--ranks cannot be combined with --format parquet --follow")
    for name in _EVENTS_ONLY if form != "tensorboard" else ():
        if given[name]:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} cannot be combined with --format {form}")
    if given["follow"] and given["engine"] != "loky":
        raise click.UsageError("--engine cannot be combined with --follow")
    if is_dataset and given["jobs"] is not None:
        raise click.UsageError("--jobs cannot be combined with --format parquet --follow")
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
    jobs: int | None,
    engine: str,
    runs: str | None,
    projector: str | None,
    checkpoint: str | None,
    labels: str | None,
    **selection: Any,
) -> ExportReport:
    from rec_summary.series.options import ExportOptions
    from rec_summary.tensorboard.event_files.export import export_tensorboard
    from rec_summary.tensorboard.event_files.follow import follow_tensorboard
    from rec_summary.tensorboard.event_files.projector import export_projector

    if selection["plugins"] is not None:
        selection["plugins"] = [name.strip() for name in selection["plugins"].split(",")]
    options = ExportOptions(**selection)
    if follow:
        with _following(source, logdir, quiet=quiet) as (stop, poller):
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
            source,
            logdir,
            jobs=jobs,
            engine=engine,
            runs=runs,
            progress=progress,
            **selection,
        )


@contextlib.contextmanager
def _following(
    source: str, destination: str, *, quiet: bool
) -> Iterator[tuple[threading.Event, RunPoller]]:
    """Gives an event that Ctrl-C sets, and what finds the runs; says what is followed."""
    from rec_summary.series.discovery.run_poller import RunPoller

    if not quiet:
        places = f"{one_line(source)} into {one_line(destination)}"
        click.echo(f"Following {places}; Ctrl-C to stop.", err=True)
    poller = RunPoller(source)
    awaited_runs(source, quiet=quiet, find=poller.find)
    with stopping() as stop:
        yield stop, poller


def _export_counts(report: ExportReport, source: str, logdir: str) -> Iterator[str]:
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


def _event_summary(
    report: ExportReport, source: str, logdir: str, chosen: Mapping[str, Any]
) -> Iterator[str]:
    yield from _export_counts(report, source, logdir)
    if report.replaced:
        runs = count_of(len(report.replaced), "run")
        yield (
            f"  {runs} replaced: restart a running TensorBoard, "
            "or it may still show the old event files"
        )
    yield from _first_screen(source, logdir, chosen)


def _first_screen(source: str, logdir: str, chosen: Mapping[str, Any]) -> Iterator[str]:
    """Yields how to see the event files, with the most important tags at the top."""
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.tensorboard.first_screen import page, pinned_tags, recorded_tags

    selection = Selection(
        ExportOptions(tags=chosen["tags"], since=chosen["since"], until=chosen["until"])
    )
    recorded = recorded_tags(map(selection.narrowed, _matching(source, chosen["runs"])))
    pinned = pinned_tags(tag for tag in recorded if selection.tag(tag))
    if pinned:
        yield f"To see it: tensorboard --logdir {shlex.quote(one_line(called(logdir)))}"
        yield f"  {page(_TENSORBOARD, pinned)}"


def _matching(source: str, pattern: str | None) -> list[Run]:
    from rec_summary.series.options import matching_runs

    return matching_runs(awaited_runs(source, quiet=True), pattern)


def _follow_dataset(
    source: str, directory: str, every: float | None, *, quiet: bool, **chosen: Any
) -> ExportReport:
    from rec_summary.series.options import ExportOptions
    from rec_summary.tables.dataset import EVERY_SECS, follow_dataset

    options = ExportOptions(**{name: chosen[name] for name in ("tags", "since", "until")})
    every = EVERY_SECS if every is None else every
    with _needing_packages(), _following(source, directory, quiet=quiet) as following:
        stop, poller = following
        chosen = {"options": options, "runs": chosen["runs"], "every": every}
        return follow_dataset(source, directory, stop=stop, poller=poller, **chosen)


def _export_tables(
    source: str, destination: str, form: str, *, quiet: bool, **chosen: Any
) -> TableReport:
    from rec_summary.tables.formats import export_tables

    choice = {
        name: chosen[name] for name in ("tags", "runs", "ranks", "since", "until", "engine", "jobs")
    }
    with _needing_packages(), progress_shown(quiet=quiet, doing="exporting") as progress:
        return export_tables(source, destination, form=form, progress=progress, **choice)


@contextlib.contextmanager
def _needing_packages() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise click.ClickException(str(error)) from error


def _table_summary(report: TableReport) -> Iterator[str]:
    for path, count in report.tables.items():
        yield f"{one_line(path)}: {count_of(count, 'row')}"
    if report.left_out:
        yield f"  without a table: {counts_of(report.left_out)}"
