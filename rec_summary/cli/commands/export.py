"""`rec-summary export`: records to what other tools read."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import RecordsCommand, awaited_runs, cli, stopping
from rec_summary.cli.text import count_of, counts_of, size_of
from rec_summary.errors import three_part
from rec_summary.series import DASHBOARDS

if TYPE_CHECKING:
    from rec_summary.records.reading.runs import Run
    from rec_summary.series.discovery.run_poller import RunPoller
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.series.report import Report
    from rec_summary.tables.formats import TableReport

EXAMPLES: Final = """\b
Examples:
  rec-summary export records logs    # then: tensorboard --logdir logs
  rec-summary export records logs --follow
  rec-summary export records logs --tags '^loss' --max-points 2000
  rec-summary export records tables --format parquet
  rec-summary export records --format html -o page.html
  rec-summary export s3://bucket/records s3://bucket/logs
"""
_TENSORBOARD: Final = "http://localhost:6006/"
_OF_EVENT_FILES: Final = ("plugins", "max_points", "tensors")  # options
_PROJECTOR: Final = "rec-summary view SRC: its Projector shows the tables of the newest checkpoint"
_NOT_OF_PAGES: Final = (
    *("follow", "tags", "ranks", "plugins", "since", "until"),
    *("max_points", "tensors", "engine", "jobs"),
)
_DEFAULTS: Final = {"engine": "loky"}  # of options that exclude others, if not None or False


class _Export(RecordsCommand):
    """The command; DEST is an argument or an option."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command with `destination`, whichever way it was given."""
        given = [ctx.params.pop("output"), ctx.params["destination"]]
        places = [place for place in given if place is not None]
        if len(places) != 1:
            expected = "one place to write to: export SRC DEST, or export SRC -o DEST"
            raise click.UsageError(three_part("DEST", places or None, expected), ctx)
        ctx.params["destination"] = places[0]
        # Here, since a URL is a temporary directory when the command runs.
        if ctx.params["form"] == "html" and ":/" in places[0]:
            expected = "a local file with --format html; copy it from there"
            raise click.UsageError(three_part("DEST", places[0], expected), ctx)
        return super().invoke(ctx)


@cli.command(cls=_Export, epilog=EXAMPLES, writes="destination")
@options.source
@click.argument("destination", metavar="[DEST]", type=options.PATH, required=False)
@options.option("--output -o DEST", "Write there; the same as the argument DEST.", options.PATH)
@options.option(
    "--format",
    "What to make: event files for TensorBoard, tables, or a page in one HTML file.",
    ("tensorboard", "csv", "parquet", "jsonl", "html"),
    into="form",
    default="tensorboard",
)
@options.flag(
    "--follow",
    "Keep exporting new records to event files until Ctrl-C.",
)
@options.tags
@options.runs
@options.ranks(
    "Show these ranks separately (by default all, or of more than eight only the first); in "
    "tables, only these"
)
@options.option(
    "--plugins NAMES",
    f"Only what these plugins of TensorBoard show, separated by commas: {', '.join(DASHBOARDS)}.",
)
@options.since
@options.until
@options.option(
    "--max-points N", "Downsample each series to at most N points; peaks are kept.", int
)
@options.option("--tensors", "Also write each tensor to a file below DEST/RUN/tensors.", ("npy",))
@options.removed("--projector", _PROJECTOR)
@options.removed("--checkpoint", _PROJECTOR)
@options.removed("--labels", _PROJECTOR)
@options.on_engine
@options.as_json("Print the summary as JSON.")
def export(
    source: str,
    destination: str,
    *,
    form: str,
    follow: bool,
    runs: str | None,
    engine: str,
    jobs: int | None,
    **which: Any,
) -> None:
    """Convert records into event files, tables, or a page in a file.

    SRC is a record directory or a tree of them; each becomes a run in DEST. Both may be
    URLs. Damaged records are skipped and listed. A second export adds the new records; it
    never changes event files of other programs. With --format html, DEST is a file: the page of
    recommenders with its data inside, which opens in a browser without a server.
    """
    from rec_summary.series.options import ExportOptions, Selection

    _check_combination(click.get_current_context().params)
    if form == "html":
        _write_page(source, destination, runs)
        return
    if which["plugins"] is not None:
        which["plugins"] = [name.strip() for name in which["plugins"].split(",")]
    choice = ExportOptions(**which)
    selection = Selection(dataclasses.replace(choice, ranks=None))
    report: Report | TableReport
    if follow:
        with _following(source, destination, runs, selection, choice, form) as (stop, poller):
            how: dict[str, Any] = {"options": choice, "runs": runs, "stop": stop, "poller": poller}
            from rec_summary.tensorboard.event_files.export import follow_tensorboard

            report = follow_tensorboard(source, destination, **how)
    else:
        if (choice.tags or choice.ranks) is not None:
            _check_choice(_matching(source, runs), selection, choice, form)
        with terminal.progress_shown(doing="exporting") as progress:
            how = {"runs": runs, "engine": engine, "jobs": jobs, "progress": progress}
            if form == "tensorboard":
                from rec_summary.tensorboard.event_files.export import export_tensorboard

                report = export_tensorboard(source, destination, **which, **how)
            else:
                from rec_summary.tables.formats import export_tables

                how |= {name: which[name] for name in ("tags", "ranks", "since", "until")}
                report = export_tables(source, destination, form=form, **how)
    # The summary comes last: a terminal still shows it.
    terminal.print_problems(report.problems, report.problem_count)
    if terminal.printing().as_json:
        counted = {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in vars(report).items()
        }
        terminal.print_json({"source": source, "destination": destination, **counted})
    elif not terminal.printing().quiet:
        _print_summary(report, source, destination)
        if form == "tensorboard":
            _print_first_screen(source, destination, runs, selection)


def _check_combination(given: Mapping[str, Any]) -> None:
    """Raises a usage error for options that exclude each other."""
    form, follow = given["form"], given["follow"]
    if form == "parquet" and follow:
        expected = "--format parquet alone: run it again for the values since then"
        raise click.UsageError(three_part("--follow", "--format parquet --follow", expected))
    for applies, what, names in (
        (form == "html", "--format html", _NOT_OF_PAGES),
        (form != "tensorboard", f"--format {form}", _OF_EVENT_FILES),
        (form in ("csv", "jsonl"), f"--format {form}", ("follow",)),
        (follow, "--follow", ("engine",)),
    ):
        for name in names if applies else ():
            if given[name] not in (None, False, _DEFAULTS.get(name)):
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} cannot be combined with {what}")
    destination = given["destination"]
    if form != "html" and destination.endswith(".html") and not os.path.isdir(destination):
        expected = "a directory; with --format html, a file whose name ends in .html"
        raise click.UsageError(three_part("DEST", destination, expected))
    # Dask and Spark name directories of Parquet files like that.
    of_files = (".csv", ".jsonl") if form == "parquet" else (".csv", ".jsonl", ".parquet")
    if form != "html" and destination.endswith(of_files) and not os.path.isdir(destination):
        expected = "a directory; with --format csv, jsonl or parquet, it gets a file for each table"
        raise click.UsageError(three_part("DEST", destination, expected))


def _write_page(source: str, path: str, runs: str | None) -> None:
    """Writes the page in a file, and prints what was written."""
    from rec_summary.tensorboard.page.static import write_page

    with terminal.progress_shown(counted="runs") as progress:
        report = write_page(source, path, runs, progress=progress)
    terminal.print_problems(report.problems, report.problem_count)
    if terminal.printing().as_json:
        terminal.print_json({"source": source, **vars(report)})
    read = f"{count_of(len(report.runs), 'run')}, {size_of(report.bytes_written)}"
    terminal.say(f"Wrote {report.path}: {read}. Open it in a browser.")


def _check_choice(
    runs: Sequence[Run], selection: Selection, choice: ExportOptions, form: str
) -> None:
    """Raises an error that lists the ranks or tags if none of them is chosen."""
    from rec_summary.series.options import Selection
    from rec_summary.series.overview.choice import check_ranks, check_tags

    of_ranks = Selection(choice)
    check_ranks(runs, choice.ranks)
    for_board = form == "tensorboard"  # which shows the only rank of a run in any case
    parts = (
        (selection if for_board and len(run.ranks) == 1 else of_ranks).narrowed(run) for run in runs
    )
    which: dict[str, Any] = {"scalars": False, "evaluated": for_board, "ranks": choice.ranks}
    check_tags(parts, choice.tags, **which, whole=list(map(selection.narrowed, runs)))


@contextlib.contextmanager
def _following(
    source: str, destination: str, runs: str | None, *choice: Any
) -> Iterator[tuple[threading.Event, RunPoller]]:
    """Gives an event that Ctrl-C sets, and the poller of the runs; prints what is followed.

    It also prints what no run has yet of a choice, as of `_check_choice`.
    """
    from rec_summary.errors import ArgumentError
    from rec_summary.series.discovery.run_poller import RunPoller

    terminal.hint(f"Following {source} into {destination}; Ctrl-C to stop.")
    poller = RunPoller(source)
    found = awaited_runs(source, runs, poller.find)
    with stopping() as stop:
        try:
            _check_choice(found, *choice)
        except ArgumentError as error:
            terminal.hint(f"{error} Waiting for it.")
        yield stop, poller


def _print_summary(report: Report | TableReport, source: str, destination: str) -> None:
    from rec_summary.series.report import Report

    if not isinstance(report, Report):
        for path, count in report.tables.items():
            terminal.echo(f"{path}: {count_of(count, 'row')}")
        if report.left_out:
            terminal.echo(f"  without a table: {counts_of(report.left_out)}")
        return
    records = sum(report.records.values())
    terminal.echo(
        f"Exported {source} to {destination}: "
        f"{count_of(len(report.runs), 'run')}, "
        f"{count_of(records, 'record')} in {count_of(report.files, 'file')}, "
        f"{size_of(report.bytes_read)} read, {size_of(report.bytes_written)} written."
    )
    values = count_of(report.repeated, "value")
    times = count_of(report.wall_times_replaced, "record")
    for is_so, fact in (
        (not records, "no new records" + " since the last export" * (not report.problems)),
        (report.exported, f"exported: {counts_of(report.exported)}"),
        (report.unknown, f"not exported: {counts_of(report.unknown)}"),
        (
            report.left_out,
            f"left out by your options: {count_of(report.left_out, 'value')}",
        ),
        (report.repeated, f"recorded more than once at a step, only the last kept: {values}"),
        (
            report.wall_times_replaced,
            f"without a valid time, replaced by the time of the record before: {times}",
        ),
    ):
        if is_so:
            terminal.echo(f"  {fact}")
    terminal.print_first([f"  note: {note}" for note in report.notes], "notes")
    if report.replaced:
        terminal.echo(
            f"  {count_of(len(report.replaced), 'run')} replaced: restart a running TensorBoard, "
            "or it may still show the old event files"
        )


def _print_first_screen(source: str, logdir: str, runs: str | None, selection: Selection) -> None:
    """Prints how to see the event files, with the most important tags at the top."""
    from rec_summary.tensorboard.first_screen import page, pinned_tags, recorded_tags

    recorded = recorded_tags(map(selection.narrowed, _matching(source, runs)))
    pinned = pinned_tags(tag for tag in recorded if selection.tag(tag))
    if pinned:
        terminal.echo(f"To see it: tensorboard --logdir {shlex.quote(terminal.one_line(logdir))}")
        terminal.echo(f"  {page(_TENSORBOARD, pinned)}")


def _matching(source: str, pattern: str | None) -> list[Run]:
    """Returns the runs that match; none if the source does not exist."""
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.records.remote import NotFoundError
    from rec_summary.series.options import matching_runs

    try:
        return matching_runs(find_runs(source), pattern)
    except NotFoundError:
        return []
