"""`rec-summary view` and `serve`: records in TensorBoard, live, without a copy of them."""

from __future__ import annotations

import contextlib
import functools
import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import awaited_runs, cli, stopping
from rec_summary.errors import three_part, verbatim

if TYPE_CHECKING:
    from rec_summary.tensorboard.provider.run_index import RunIndex

WARNING = (
    "Warning: TensorBoard listens at {} without a password: everybody who can reach this machine "
    "can read all of these records. An SSH tunnel to 127.0.0.1 avoids this (see docs/security.md)."
)
_RELOADING = (
    "Its pages reload themselves if you tick `Reload data` in its settings (the gear at the top "
    "right)."
)
# With an evaluation each, there are as many as TensorBoard shows by itself.
_SOME_RUNS = 20
_MANY_RUNS = 250
_FILTERING = (
    "Of more than 40 runs (each evaluation is one), Histograms, Images, Text and other pages show "
    "none until you filter the runs in their left column."
)
_SELECTING = (
    "Of more than 500 runs, Time Series shows none until you select them: filter the runs, then "
    "tick the box above their names. Or show fewer, with --runs."
)
VIEW_EXAMPLES = """\b
Examples:
  rec-summary view records --open
  rec-summary view s3://bucket/records
  rec-summary view records --port 8080 -- --window_title "click model"
"""
SERVE_EXAMPLES = """\b
Examples:
  rec-summary serve records --port 6007
  rec-summary serve s3://bucket/records --port 6007
  tensorboard --logdir logs --grpc_data_provider 127.0.0.1:6007
"""
_command = functools.partial(
    cli.command,
    quiet="Print only the address, errors and problems.",
)


@_command(epilog=VIEW_EXAMPLES)
@options.source
@click.argument("arguments", metavar="[-- TENSORBOARD OPTIONS]", nargs=-1)
@options.option("--host", "The address to listen at.", default="127.0.0.1")
@options.option("--port", "The port to listen at. [default: a free one from 6006 on]", options.PORT)
@options.runs
@options.group_by
@options.x
@options.separate_ranks
@options.flag("--open", "Open the page in a browser.", into="opens")
def view(
    source: str,
    arguments: tuple[str, ...],
    host: str,
    port: int | None,
    runs: str | None,
    opens: bool,
    **shown: Any,
) -> None:
    """Show records in TensorBoard while they are written.

    SRC is a record directory or a tree of them, or a URL; it may still be empty. TensorBoard
    reads the records themselves: nothing is exported or copied. Ctrl-C ends it.

    The address opens the page Recommender, or Time Series as long as there are no metrics of a
    recommender. It pins the loss, the AUC, the calibration and an evaluation to the top of Time
    Series, as far as there are records of them already.

    Runs with the same entry `group` in their lineage form a group, or those that --group-by
    chooses. A group appears as three more runs: `group/NAME/mean`, `group/NAME/min` and
    `group/NAME/max`.

    TensorBoard has no password. By default only programs on this machine can reach it; with
    another --host, everybody who can reach that address can see the records.
    """
    from rec_summary.tensorboard import first_screen
    from rec_summary.tensorboard.provider.board import Board, exposed
    from rec_summary.tensorboard.provider.run_index import RunIndex

    if any(each.startswith("--logdir") for each in arguments):
        received, expected = verbatim(" ".join(arguments)), "no --logdir: SRC is what is shown"
        raise click.UsageError(three_part("an option of TensorBoard", received, expected))
    index = RunIndex(source, runs, **shown)
    terminal.hint(f"Starting TensorBoard for {source}.")
    chosen = awaited_runs(source, runs, index.find)
    tags = first_screen.recorded_tags(chosen)
    is_recommender = first_screen.has_recommender(tags)
    shown_first = first_screen.RECOMMENDER if is_recommender else first_screen.TIME_SERIES
    count = sum(len(run.ranks) for run in chosen)
    address = exposed(host, arguments)
    if address is not None:
        terminal.echo(WARNING.format(address), err=True)
    board = Board(index, host=host, port=port, runs=count, arguments=arguments)
    with _served(index, board):
        url = first_screen.page(board.url, first_screen.pinned_tags(tags), shown_first)
        terminal.echo(f"TensorBoard: {url} (Ctrl-C to stop)")
        if opens:
            webbrowser.open(url)
        terminal.hint(_RELOADING)
        if count > _SOME_RUNS:
            terminal.hint(_FILTERING)
        if count > _MANY_RUNS:
            terminal.hint(_SELECTING)


@_command(epilog=SERVE_EXAMPLES)
@options.source
@options.option(
    "--port",
    "The port to listen at. [default: a free one]",
    options.PORT,
    default=0,
    show_default=False,
)
@options.runs
@options.group_by
@options.x
@options.separate_ranks
def serve(source: str, port: int, runs: str | None, **shown: Any) -> None:
    """Serve records to a TensorBoard that was started elsewhere.

    SRC is a record directory or a tree of them, or a URL; it may still be empty. Start TensorBoard
    with `--grpc_data_provider` and the address that is printed. Only programs on this machine
    can connect. Ctrl-C ends it.
    """
    from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
    from rec_summary.tensorboard.provider.grpc_server import GrpcServer
    from rec_summary.tensorboard.provider.run_index import RunIndex

    index = RunIndex(source, runs, **shown)
    awaited_runs(source, runs, index.find)
    server = GrpcServer(RecordDataProvider(index), port)
    with _served(index, server):
        terminal.echo(f"Serving: {server.address} (Ctrl-C to stop)")
        terminal.hint(f"Show it with: tensorboard --logdir . --grpc_data_provider {server.address}")
        terminal.hint("Its Projector shows no tables of records.")


@contextlib.contextmanager
def _served(index: RunIndex, server: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
    """Polls the runs while a server answers: from the end of the block on until Ctrl-C."""
    with stopping() as stop, server, contextlib.closing(index):
        index.start()
        yield
        stop.wait()
    terminal.print_problems(index.report.problems, index.report.problem_count)
