"""`rec-summary watch`: alerts from records."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, awaited_runs, choose_runs, stopping, watched
from rec_summary.cli.output import (
    SHOWN,
    complain,
    console,
    count_of,
    hint,
    one_line,
    print_json,
    printing,
    say,
)

if TYPE_CHECKING:
    import threading

    from rec_summary.alerts.states import Transition
    from rec_summary.alerts.watching import WatchReport
    from rec_summary.series.discovery.run_poller import RunPoller
    from rec_summary.series.options import Since

EXAMPLES: Final = """\b
Examples:
  rec-summary watch records                       NaN loss, stall, drop of an AUC
  rec-summary watch records --rule 'calibration > 1.1 for 5m'
  rec-summary watch records --rule stall --rule 'loss rises 20% within 500 steps'
  rec-summary watch records --rules alerts.txt --log alerts.jsonl --exec ./page-me
  rec-summary watch records --once || echo 'something is wrong'

\b
A rule: TAG > NUMBER (also >= < <= == !=), TAG is nan, TAG is not finite, or
TAG drops 5% within 10m (also rises; 0.02 for 5%; 500 steps for 10m), each
optionally followed by: for 5m, for 100 steps. Or: no data for 10m, TAG no data
for 10m. NAME: in front gives the rule a name. See docs/alerts.md. Built-in
rules: nan-loss, stall, auc-drop.

\b
Exit codes: 0 no alert is firing, or stopped with Ctrl-C; 1 with --once, an
alert is firing; 2 a mistake in the arguments; 3 it failed; 130 --once was
interrupted.
"""
FIRING: Final = 1
FAILED: Final = 3  # 1 is for alerts
_PATIENCE_SECS: Final = 10.0  # for commands that still have to run after Ctrl-C
_ASK_SECS: Final = 2.0  # between two requests to end
_complain: Final = functools.partial(complain, "watch")


@click.command(cls=RecordsCommand, epilog=EXAMPLES, failure=FAILED)
@options.source
@options.rules()
@options.runs
@options.option(
    "--since WHEN",
    f"Evaluate records from {options.WHEN} on.  [default: new records; with --once or "
    "--history: all]",
)
@options.flag("--once", "Evaluate the records that exist, then exit.")
@options.flag("--history", "Also report alerts that are over.")
@options.as_json("Print alerts as lines of JSON.")
@options.option("--log FILE", "Append alerts to FILE, as lines of JSON.", options.PATH)
@options.option(
    "--exec CMD",
    "Run CMD for each alert, without a shell, with RS_STATE, RS_RUN, RS_TEXT and others in "
    "its environment, and with the alert as JSON on its standard input.",
    into="command",
)
@options.option(
    "--exec-timeout SECS", "Kill CMD if it takes longer.", options.SECONDS, default=60.0
)
@options.flag(
    "--record",
    "Write alerts into the records of the running training: a note, and alerts/RULE, 0 or 1.",
)
@options.flag("--stop-run", "End a training in good order when an alert fires.")
@options.interval
def watch(source: str, **chosen: Any) -> None:
    """Raise alerts from records while they are written.

    SRC is a record directory or a tree of them; it need not exist yet. Each alert is
    reported when it begins and when it is over. Nothing is sent over a network. Ctrl-C ends it.
    """
    code = _watch(source, **chosen)
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
    **sinks: Any,
) -> int:
    from rec_summary.alerts.rules import gather
    from rec_summary.alerts.states import Transition
    from rec_summary.cli import INTERRUPTED
    from rec_summary.series.discovery.run_poller import RunPoller

    report: WatchReport | None = None
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stopping())
        gathered = gather(rules, files)
        beginning = _beginning(since, everything=once or history)
        poller = RunPoller(source)
        if once:
            choose_runs(source, runs, poller.find)  # an error if there are none
        deliver = stack.enter_context(_delivering(poller, stop, once=once, **sinks))
        if not once:
            names = ", ".join(one_line(rule.title) for rule in gathered)
            hint(f"Watching {one_line(source)} for: {names}; Ctrl-C to stop.")
            awaited_runs(source, poller.find)
        how: dict[str, Any] = {"runs": runs, "interval": interval, "since": beginning}
        how |= {"once": once, "history": history, "stop": stop, "poller": poller}
        for news in watched("watch", source, gathered, **how):
            if isinstance(news, Transition):
                _print(news, stop)
                deliver(news)
                continue
            if report is None and not printing().quiet:
                for rule in news.unmatched if news.runs else ():
                    _complain(f"no record matches the rule {rule.title} yet")
            deliver(None)
            report = news
        if once and stop.is_set():
            return INTERRUPTED
    assert report is not None
    if report.problem_count > SHOWN:
        click.echo(f"{report.problem_count - SHOWN:,} more problems", err=True)
    if once and not report.firing:
        say(f"No alert is firing in {count_of(report.runs, 'run')}.")
    return FIRING if once and report.firing else 0


def _beginning(since: str | None, *, everything: bool) -> Since | None:
    from rec_summary.alerts.watching import EVERYTHING
    from rec_summary.series.options import read_since

    if since is not None:
        return read_since(since, time.time())
    return EVERYTHING if everything else None


@contextlib.contextmanager
def _delivering(
    poller: RunPoller,
    stop: threading.Event,
    *,
    once: bool,
    log: str | None,
    command: str | None,
    exec_timeout: float,
    record: bool,
    stop_run: bool,
) -> Iterator[Callable[[Transition | None], None]]:
    """Gives what passes alerts on; call it with None after each poll.

    The log, the command and the training get them. It waits for the command at the end.
    """
    from rec_summary.alerts.delivery import AlertLog, Command

    sinks: list[Callable[[Transition], None]] = []
    teller = None
    with contextlib.ExitStack() as stack:
        if log is not None:
            file = stack.enter_context(contextlib.closing(AlertLog(log, _complain)))
            sinks.append(file.write)
        if record or stop_run:
            _check_local(poller.source)
            teller = _Teller(poller, record=record, stop_run=stop_run, once=once)
            sinks.append(teller)
        runner = None
        if command is not None:
            runner = Command(command, _complain, exec_timeout, stop=stop if once else None)
            sinks.append(runner.queue)

        def deliver(transition: Transition | None) -> None:
            if transition is not None:
                for sink in sinks:
                    sink(transition)
            elif teller is not None:
                teller.retry()

        yield deliver
        if runner is not None:
            end = time.monotonic() + _PATIENCE_SECS
            left = runner.wait(stop.is_set if once else lambda: time.monotonic() >= end)
            if left:
                _complain(f"the command did not run for {count_of(left, 'alert')}")


def _check_local(source: str) -> None:
    from rec_summary.errors import three_part
    from rec_summary.records.remote import Url
    from rec_summary.series.options import ArgumentError

    if isinstance(source, Url):
        expected = "a local directory, for --record and --stop-run"
        raise ArgumentError(three_part("SRC", str(source), expected))


class _Teller:
    """Asks running trainings to record alerts, and to end.

    A training of several ranks can be asked to end when it is known where all of them are. Until
    then, it is asked again and again, as long as the alert fires; with `once`, it is not.
    """

    def __init__(self, poller: RunPoller, *, record: bool, stop_run: bool, once: bool) -> None:
        self._poller, self._record, self._stop_run = poller, record, stop_run
        self._once = once
        self._waiting: dict[object, Transition] = {}
        self._next = 0.0

    def __call__(self, transition: Transition) -> None:
        """Passes an alert on."""
        from rec_summary.alerts.delivery import sentence
        from rec_summary.cli.commands.control import LONGEST_NOTE
        from rec_summary.series.text import valid

        self._waiting.pop(_key(transition), None)
        # Two requests, as several ranks stop later than they record.
        if self._record:
            alerts = {valid(transition.rule.title)[:200]: int(transition.firing)}
            self._ask(transition, note=sentence(transition)[:LONGEST_NOTE], alerts=alerts)
        if self._stop_run and transition.firing:
            self._ask(transition, actions=("stop",))

    def retry(self) -> None:
        """Asks those again that could not be asked to end, every few seconds."""
        if self._waiting and time.monotonic() >= self._next:
            waiting, self._waiting = self._waiting, {}
            for transition in waiting.values():
                self._ask(transition, again=True, actions=("stop",))

    def _ask(self, transition: Transition, again: bool = False, **what: Any) -> None:
        from rec_summary.cli.commands.control import NotYetError, request_to, training_of
        from rec_summary.errors import RecSummaryError
        from rec_summary.records.control import add_request
        from rec_summary.series.lineage import lineage_of
        from rec_summary.series.report import Report
        from rec_summary.series.text import valid

        title = valid(transition.rule.title)
        try:
            for run in self._poller.runs():
                if valid(run.name) == transition.run:
                    state = training_of(run, lineage_of(run, Report()))
                    author = f"rec-summary watch: {title}"
                    add_request(run.path, request_to(run, state, author, **what))
        except NotYetError as error:
            if self._once:
                _complain(f"{error} The training was not asked to end.")
                return
            self._waiting[_key(transition)] = transition
            self._next = time.monotonic() + _ASK_SECS
            if not again:
                _complain(f"{error} This is tried again while the alert {title} fires.")
        except (RecSummaryError, OSError, ValueError) as error:
            _complain(f"the alert {title} cannot be sent to the training: {error}")


def _key(transition: Transition) -> object:
    return transition.run, transition.rank, transition.tag, transition.rule


def _print(transition: Transition, stop: threading.Event) -> None:
    """Prints an alert; ends the watch when nobody reads standard output any more."""
    from rec_summary.alerts.delivery import as_json, as_text

    try:
        if printing().as_json:
            print_json(as_json(transition), indent=None)
        elif not printing().quiet:
            console().print(as_text(transition), soft_wrap=True)
    except BrokenPipeError:
        # What is left in the buffers has to go somewhere when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        stop.set()
