"""`rec-summary watch`: alerts from records."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.common import (
    SHOWN,
    choose_runs,
    console,
    count_of,
    one_line,
    reporting_errors,
    stopping,
)
from rec_summary.cli.waiting import tell_what_is_awaited

if TYPE_CHECKING:
    import threading

    from rec_summary.alerts.states import Transition
    from rec_summary.alerts.watching import Seen, Since
    from rec_summary.series.report import Problem

EXAMPLES: Final = """\b
Examples:
  rec-summary watch records                       NaN loss, stall, drop of an AUC
  rec-summary watch records --rule 'calibration > 1.1 for 5m'
  rec-summary watch records --rule stall --rule 'run:prod/* loss rises 20% within 500 steps'
  rec-summary watch records --rules alerts.txt --log alerts.jsonl --exec ./page-me
  rec-summary watch records --once || echo 'something is wrong'

\b
A rule: TAG > NUMBER (also >= < <= == !=), TAG is nan, TAG is not finite,
TAG drops 5% within 10m (also rises; 0.02 for 5%; 500 steps for 10m), joined
with and, or, ( ); then perhaps: for 5m, for 100 steps. Or: no data for 10m,
TAG no data for 10m. In front, perhaps: NAME: and run:GLOB. docs/alerts.md has
all of it. Built-in: nan-loss, stall, auc-drop.

\b
Exit codes: 0 no alert is firing, or stopped with Ctrl-C; 1 with --once, an
alert is firing; 2 a mistake in the arguments; 3 it failed; 130 --once was
interrupted.
"""
FIRING: Final = 1
FAILED: Final = 3
_PATIENCE_SECS: Final = 10.0  # for alerts that are still to be handed over after Ctrl-C
_DEFAULT_AGE: Final = "1d"


@click.command(cls=RecordsCommand, epilog=EXAMPLES, follows=lambda params: not params["once"])
@click.argument("source", metavar="SRC", type=click.Path())
@click.option(
    "--rule",
    "rules",
    metavar="RULE",
    multiple=True,
    help="What to raise an alert for. May be given several times.  [default: nan-loss, stall, "
    "auc-drop]",
)
@click.option(
    "--rules",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Take rules from FILE, one in each line, with # comments.",
)
@click.option("--runs", metavar="GLOB", help="Watch only runs whose name matches GLOB.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Judge only records from here on: a step (5000), an age (2h), or a date and time.  "
    f"[default: {_DEFAULT_AGE}; with --once: all]",
)
@click.option("--once", is_flag=True, help="Judge what is there, and end.")
@click.option("--history", is_flag=True, help="Tell also of alerts that are over already.")
@click.option("--json", "as_json", is_flag=True, help="Print alerts as lines of JSON.")
@click.option(
    "--log", metavar="FILE", type=click.Path(), help="Append alerts to FILE, as lines of JSON."
)
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="Run CMD for each alert, without a shell, with RS_STATE, RS_RUN, RS_TEXT and others in "
    "its environment.",
)
@click.option(
    "--exec-timeout",
    metavar="SECS",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Kill CMD when it takes longer.",
)
@click.option(
    "--webhook", metavar="URL", help="POST each alert as JSON to URL; nothing else is ever sent."
)
@click.option(
    "--interval",
    metavar="SECS",
    type=click.FloatRange(0.05),
    default=1.0,
    show_default=True,
    help="Look at the records so often.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and problems.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def watch(source: str, debug: bool, **chosen: Any) -> None:
    """Raise alerts from records while they are written.

    SRC is a record directory or a tree of them; it need not exist yet. Alerts are told
    when they begin and when they are over; of what was there before, those that are not
    over. Nothing goes to a network unless --webhook is given. Ctrl-C ends it.
    """
    try:
        with reporting_errors(debug=debug):
            code = _watch(source, **chosen)
    except click.UsageError:
        raise
    except click.ClickException as error:
        error.show()
        code = FAILED  # 1 is for alerts
    if code:
        sys.exit(code)


def _watch(
    source: str,
    *,
    rules: Sequence[str],
    files: Sequence[str],
    since: str | None,
    runs: str | None,
    once: bool,
    history: bool,
    interval: float,
    quiet: bool,
    **outlets: Any,
) -> int:
    from rec_summary.alerts.builtin import gather
    from rec_summary.alerts.watching import watch as watch_records
    from rec_summary.cli import INTERRUPTED
    from rec_summary.series.options import ArgumentError

    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stopping())
        try:
            gathered = gather(rules, files)
            beginning = _beginning(since, once=once)
            if once:
                choose_runs(source, runs)  # which tells if there are none
            tell = stack.enter_context(_tellers(stop, once=once, quiet=quiet, **outlets))
        except ArgumentError as error:
            raise click.UsageError(str(error)) from error
        if not quiet and not once:
            names = ", ".join(one_line(rule.title) for rule in gathered)
            click.echo(f"Watching {one_line(source)} for: {names}; Ctrl-C to stop.", err=True)
        if not once:
            tell_what_is_awaited(source, quiet=quiet)
        seen = watch_records(
            source,
            gathered,
            tell,
            stop=stop,
            once=once,
            history=history,
            since=beginning,
            runs=runs,
            interval=interval,
            caught_up=_silent if quiet else _print_unmatched,
            problem=_Problems(),
        )
        if once and stop.is_set():
            return INTERRUPTED
    if seen.problem_count > SHOWN:
        click.echo(f"{seen.problem_count - SHOWN:,} more problems", err=True)
    if once and not seen.firing and not quiet and not outlets["as_json"]:
        click.echo(f"No alert is firing in {count_of(seen.runs, 'run')}.")
    return FIRING if once and seen.firing else 0


def _beginning(since: str | None, *, once: bool) -> Since | None:
    from rec_summary.alerts.watching import read_since

    if since is None and once:
        return None
    return read_since(since or _DEFAULT_AGE, time.time())


@contextlib.contextmanager
def _tellers(
    stop: threading.Event,
    *,
    once: bool,
    quiet: bool,
    as_json: bool,
    log: str | None,
    command: str | None,
    exec_timeout: float,
    webhook: str | None,
) -> Iterator[Callable[[Transition], None]]:
    """Gives what tells of an alert in all the ways that are asked for."""
    from rec_summary.alerts.actions import InJson, InWords, ToLog
    from rec_summary.alerts.delivery import Command, Delivery, Outlet, Webhook, until

    tellers: list[Callable[[Transition], None]] = []
    if as_json:
        tellers.append(_while_read(InJson(sys.stdout), stop))
    elif not quiet:
        tellers.append(_while_read(InWords(console()), stop))
    with contextlib.ExitStack() as stack:
        if log is not None:
            tellers.append(file := ToLog(log, _report))
            stack.callback(file.close)
        outlets: list[Outlet] = []
        if command is not None:
            outlets.append(Command(command, exec_timeout))
        if webhook is not None:
            outlets.append(Webhook(webhook))
        deliveries = [Delivery(outlet, _report) for outlet in outlets]
        tellers += deliveries

        def tell(transition: Transition) -> None:
            for teller in tellers:
                teller(transition)

        yield tell
        enough = until(_PATIENCE_SECS)
        given_up = stop.is_set if once else enough
        left = sum(delivery.close(given_up) for delivery in deliveries)
        if left:
            _report(f"{count_of(left, 'alert')} not handed over")


def _while_read(
    teller: Callable[[Transition], None], stop: threading.Event
) -> Callable[[Transition], None]:
    """Returns what ends watching when nobody reads standard output any more."""

    def tell(transition: Transition) -> None:
        try:
            teller(transition)
        except BrokenPipeError:
            # What is left in the buffers has to go somewhere when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            stop.set()

    return tell


class _Problems:
    """Prints the first problems as they turn up."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, problem: Problem) -> None:
        self._count += 1
        if self._count <= SHOWN:
            _report(str(problem))


def _print_unmatched(seen: Seen) -> None:
    for rule in seen.unmatched:
        if seen.runs:
            _report(f"nothing is recorded yet that the rule {rule.title} is about")


def _silent(_seen: Seen) -> None:
    pass


def _report(text: str) -> None:
    click.echo(f"rec-summary watch: {one_line(text)}", err=True)
