"""`rec-summary serve`: records for a TensorBoard that is started by somebody else."""

from __future__ import annotations

import contextlib

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, awaited_runs, stopping
from rec_summary.cli.output import print_problems

EXAMPLES = """\b
Examples:
  rec-summary serve records --port 6007
  rec-summary serve s3://bucket/records --port 6007
  tensorboard --logdir logs --grpc_data_provider 127.0.0.1:6007
"""


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    quiet="Print only the address, errors and problems.",
    follows=lambda params: True,
)
@options.source
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port to listen at. [default: a free one]",
)
@options.runs
def serve(source: str, port: int, runs: str | None, quiet: bool) -> None:
    """Serve records to a TensorBoard, by its own protocol.

    SRC is a record directory or a tree of them, or a URL; it may still be empty. Start TensorBoard
    with `--grpc_data_provider` and the address that is printed. Only programs on this machine
    can connect. Ctrl-C ends it.
    """
    from rec_summary.tensorboard.provider.combined import CombinedDataProvider
    from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
    from rec_summary.tensorboard.provider.grpc_server import GrpcServer
    from rec_summary.tensorboard.provider.run_index import RunIndex

    awaited_runs(source, quiet=quiet)
    index = RunIndex(source, runs)
    server = GrpcServer(CombinedDataProvider(RecordDataProvider(index)), port)
    with stopping() as stop, server, contextlib.closing(index):
        index.start()
        click.echo(f"Serving: {server.address} (Ctrl-C to stop)")
        if not quiet:
            click.echo(
                f"Show it with: tensorboard --logdir . --grpc_data_provider {server.address}",
                err=True,
            )
            click.echo("Its Projector shows no tables of records.", err=True)
        stop.wait()
    report = index.report.result()
    print_problems(report.problems, report.problem_count)
