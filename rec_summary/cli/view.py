"""`rec-summary view`: records in TensorBoard, live, in one command."""

from __future__ import annotations

import os
import threading
import webbrowser

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, awaited_runs, stopping
from rec_summary.cli.output import one_line, print_problems
from rec_summary.errors import three_part, verbatim

WARNING = (
    "Warning: TensorBoard listens at {} without a password: everybody who can reach this machine "
    "can read all of these records and the log directory. An SSH tunnel to 127.0.0.1 avoids this "
    "(see docs/security.md)."
)
_RELOADING = (
    "Its pages reload themselves if you tick `Reload data` in its settings (the gear at the top "
    "right)."
)
EXAMPLES = """\b
Examples:
  rec-summary view records --open
  rec-summary view s3://bucket/records
  rec-summary view records --port 8080 -- --window_title "click model"
"""


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    quiet="Print only the address, errors and problems.",
    writes="logdir",
    follows=lambda params: True,
)
@options.source
@click.argument("arguments", metavar="[-- TENSORBOARD OPTIONS]", nargs=-1)
@click.option("--logdir", type=click.Path(), help="Keep the event files here. [default: a cache]")
@options.option("--host", default="127.0.0.1", help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port to listen at. [default: a free one from 6006 on]",
)
@options.runs
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
def view(
    source: str,
    arguments: tuple[str, ...],
    logdir: str | None,
    host: str,
    port: int | None,
    runs: str | None,
    opens: bool,
    quiet: bool,
) -> None:
    """Show records in TensorBoard while they are written.

    SRC is a record directory or a tree of them, or a URL; it may still be empty. The event
    files are kept in a cache, so the next start is quick. Ctrl-C ends both the export and
    TensorBoard.

    The address pins the loss, the AUC, the calibration and an evaluation to the top of the page,
    as far as there are records of them already.

    TensorBoard has no password. By default only programs on this machine can reach it; with
    another --host, everybody who can reach that address can see the records.
    """
    from rec_summary.series.options import matching_runs
    from rec_summary.tensorboard.event_files.follow import follow_tensorboard
    from rec_summary.tensorboard.first_screen import page, pinned_tags, recorded_tags
    from rec_summary.tensorboard.view import Viewer, exposed, wait_while_running

    logdir = _prepared(source, logdir)
    found = matching_runs(awaited_runs(source, quiet=quiet), runs)
    pinned = pinned_tags(recorded_tags(found))
    count = sum(len(run.ranks) for run in found)
    address = exposed(host, arguments)
    if address is not None:
        click.echo(WARNING.format(one_line(address)), err=True)
    viewer = Viewer(logdir, host=host, port=port, runs=count, arguments=arguments)
    with stopping() as stop, viewer as board:
        url = page(board.url, pinned)
        click.echo(f"TensorBoard: {url} (Ctrl-C to stop)")
        if opens:
            webbrowser.open(url)
        if not quiet:
            click.echo(_RELOADING, err=True)
        waiter = threading.Thread(target=wait_while_running, args=(board, stop), daemon=True)
        waiter.start()
        report = follow_tensorboard(source, logdir, stop=stop, runs=runs)
        ended, said = not board.running, board.said
    print_problems(report.problems, report.problem_count)
    if ended:
        raise click.ClickException(f"TensorBoard has ended. Its output:\n{said}")


def _prepared(source: str, logdir: str | None) -> str:
    """Makes the directory of the event files, before anything is shown; returns its path."""
    from rec_summary.series.options import check_apart
    from rec_summary.tensorboard.view import cache_directory, prepare_cache

    try:
        check_apart(source, logdir or cache_directory(source), "the log directory")
        if logdir is None:
            return prepare_cache(source)
        os.makedirs(logdir, exist_ok=True)
    except OSError as error:
        received = verbatim(f"{error.filename or logdir}: {error.strerror or error}")
        text = three_part("the log directory", received, "a directory that can be written to")
        raise click.ClickException(text) from error
    return logdir
