"""`rec-summary metrics`: the last values for Prometheus."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import (
    awaited_runs,
    choose_runs,
    cli,
    name_unmatched,
    stopping,
    watched,
)

EXAMPLES: Final = """\b
Examples:
  rec-summary metrics records --port 9464
  rec-summary metrics records --rule '*/calibration/last_* > 1.1 for 5m'
  rec-summary metrics records --once
  rec-summary metrics records -o /var/lib/node_exporter/rec_summary.prom
"""
_LOOPBACK: Final = "127.0.0.1"
_MODE: Final = 0o644  # node_exporter has a user of its own


@cli.command(epilog=EXAMPLES, quiet="Print only the address, errors and problems.")
@options.source
@options.option("--port PORT", "The port to listen at.", options.PORT, default=9464)
@options.option("--host ADDRESS", "The address to listen at.", default=_LOOPBACK)
@options.flag("--once", "Print the metrics of the records that exist, and exit.")
@options.option(
    "--output -o FILE",
    "Write the metrics of the records that exist to FILE, which is replaced as a whole, and exit.",
    options.Path(dir_okay=False),
)
@options.runs
@options.tags
@options.option("--since WHEN", f"Only what was recorded from {options.WHEN} on.", default="1d")
@options.rules(", as in watch")
@options.interval
def metrics(
    source: str,
    *,
    port: int,
    host: str,
    once: bool,
    output: str | None,
    tags: str | None,
    since: str,
    rules: Sequence[str],
    files: Sequence[str],
    **chosen: Any,
) -> None:
    """Serve last values, alerts and the state of runs to Prometheus.

    SRC is a record directory or a tree of them, or a URL; it may still be empty. Prometheus scrapes
    http://127.0.0.1:9464/metrics. With --once or -o, the metrics are printed or written once, for
    the textfile collector of node_exporter. Nothing is added to the training. Ctrl-C ends it.
    """
    from rec_summary.errors import required

    required("prometheus_client", "`rec-summary metrics`", "metrics")
    from rec_summary.alerts.last_values import LastValues
    from rec_summary.alerts.prometheus import MetricsServer, text_of
    from rec_summary.alerts.rules import gather
    from rec_summary.alerts.states import Transition
    from rec_summary.series.discovery.run_poller import RunPoller
    from rec_summary.series.options import ExportOptions, Selection, read_since

    once = once or output is not None
    poller, judged = RunPoller(source), gather(rules, files)
    with contextlib.ExitStack() as stack:
        chosen["stop"] = stack.enter_context(stopping())
        if once:
            choose_runs(source, chosen["runs"], poller.find)  # an error if there are none
        values = LastValues(Selection(ExportOptions(tags=tags)))
        if not once:
            server = stack.enter_context(contextlib.closing(MetricsServer(values, host, port)))
            terminal.echo(f"Serving: {server.address} (Ctrl-C to stop)")
            if host != _LOOPBACK:
                terminal.hint("Every machine that reaches this address can read the metrics.")
            awaited_runs(source, chosen["runs"], poller.find)
        chosen.update(since=read_since(since, time.time()), values=values, poller=poller)
        for news in watched("metrics", source, judged, once=once, **chosen):
            if once and (rules or files) and not isinstance(news, Transition):
                name_unmatched("metrics", news)
    if output is not None:
        _write(output, text_of(values))
    elif once:
        click.echo(text_of(values), nl=False)


def _write(path: str, text: bytes) -> None:
    from rec_summary.errors import DestinationError, os_errors_as
    from rec_summary.records.files import write_atomically

    location = os.path.abspath(path)
    expected = "a file in a directory that can be written to"
    with (
        os_errors_as(DestinationError, "the file of metrics", location, expected),
        write_atomically(location, _MODE) as file,
    ):
        file.write(text)
        os.fchmod(file.fileno(), _MODE)  # whatever the umask is
