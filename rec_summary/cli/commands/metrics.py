"""`rec-summary metrics`: the last values for Prometheus."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, awaited_runs, choose_runs, stopping
from rec_summary.cli.output import SHOWN, one_line

if TYPE_CHECKING:
    import threading

    from rec_summary.alerts.last_values import LastValues
    from rec_summary.series.discovery.run_poller import RunPoller
    from rec_summary.series.options import Since

EXAMPLES: Final = """\b
Examples:
  rec-summary metrics records --port 9464
  rec-summary metrics records --port 9464 --rule 'calibration > 1.1 for 5m'
  rec-summary metrics records --once
  rec-summary metrics records -o /var/lib/node_exporter/rec_summary.prom
"""
_LOOPBACK: Final = "127.0.0.1"
_MODE: Final = 0o644  # node_exporter has a user of its own


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    quiet="Print only the address, errors and problems.",
    follows=lambda params: not (params["once"] or params["output"]),
)
@options.source
@options.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), default=9464, help="The port."
)
@options.option(
    "--host", metavar="ADDRESS", default=_LOOPBACK, help="The address of this machine to listen at."
)
@click.option("--once", is_flag=True, help="Print the metrics of the records that exist, and exit.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the metrics of the records that exist to FILE, which is replaced as a whole, and "
    "exit.",
)
@options.runs
@options.tags
@click.option(
    "--since",
    metavar="WHEN",
    default="1d",
    show_default=True,
    help=f"Only what was recorded from {options.WHEN} on.",
)
@click.option(
    "--rule",
    "rules",
    metavar="RULE",
    multiple=True,
    help="Raise an alert for this, as in watch. May be given several times.  [default: nan-loss, "
    "stall, auc-drop]",
)
@click.option(
    "--rules",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Read rules from FILE, one in each line, with # comments.",
)
@options.interval
def metrics(
    source: str,
    *,
    port: int,
    host: str,
    once: bool,
    output: str | None,
    runs: str | None,
    quiet: bool,
    **chosen: Any,
) -> None:
    """Serve the last values of series to Prometheus, with alerts and the state of runs.

    SRC is a record directory or a tree of them, or a URL; it may still be empty. Prometheus scrapes
    http://127.0.0.1:9464/metrics. With --once or -o, the metrics are printed or written once, for
    the textfile collector of node_exporter. Nothing is added to the training. Ctrl-C ends it.
    """
    from rec_summary.errors import required

    required("prometheus_client", "`rec-summary metrics`", "metrics")
    from rec_summary.alerts.prometheus import MetricsServer, text_of
    from rec_summary.series.discovery.run_poller import RunPoller

    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stopping())
        once = once or output is not None
        poller = RunPoller(source)
        if once:
            choose_runs(source, runs, poller.find)  # an error if there are none
            values = _read(poller, stop, once=True, runs=runs, **chosen)
            text = text_of(values)
            if output is None:
                click.echo(text, nl=False)
            else:
                _write(output, text)
            return
        values = _values(chosen["tags"])
        server = stack.enter_context(contextlib.closing(MetricsServer(values, host, port)))
        click.echo(f"Serving: {server.address} (Ctrl-C to stop)")
        if not quiet and host != _LOOPBACK:
            click.echo("Every machine that reaches this address can read the metrics.", err=True)
        awaited_runs(source, quiet=quiet, find=poller.find)
        _read(poller, stop, once=False, runs=runs, values=values, **chosen)


def _values(tags: str | None) -> LastValues:
    from rec_summary.alerts.last_values import LastValues
    from rec_summary.series.options import ExportOptions, Selection

    return LastValues(Selection(ExportOptions(tags=tags)))


def _read(
    poller: RunPoller,
    stop: threading.Event,
    *,
    once: bool,
    runs: str | None,
    tags: str | None,
    since: str,
    rules: Sequence[str],
    files: Sequence[str],
    interval: float,
    values: LastValues | None = None,
) -> LastValues:
    """Reads records into the last values, once or until it is stopped."""
    import time

    from rec_summary.alerts.rules import gather
    from rec_summary.alerts.states import Transition
    from rec_summary.alerts.watching import WatchReport, watch
    from rec_summary.series.options import read_since

    values = _values(tags) if values is None else values
    beginning: Since = read_since(since, time.time())
    problems = 0
    for news in watch(
        poller.source,
        gather(rules, files),
        stop=stop,
        once=once,
        since=beginning,
        runs=runs,
        interval=interval,
        values=values,
        poller=poller,
    ):
        if isinstance(news, Transition):
            values.judge(news)
        elif not isinstance(news, WatchReport):
            problems += 1
            if problems <= SHOWN:
                click.echo(f"rec-summary metrics: {one_line(str(news))}", err=True)
    return values


def _write(path: str, text: bytes) -> None:
    from rec_summary.errors import DestinationError, os_errors_as
    from rec_summary.records.files import write_atomically

    place = os.path.abspath(path)
    expected = "a file in a directory that can be written to"
    with (
        os_errors_as(DestinationError, "the file of metrics", place, expected),
        write_atomically(place, _MODE) as file,
    ):
        file.write(text)
        os.fchmod(file.fileno(), _MODE)  # whatever the umask is
