"""`rec-summary watch`: alerts from records."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rec_summary.cli import options, terminal
from rec_summary.cli.command import (
    awaited_runs,
    choose_runs,
    cli,
    name_unmatched,
    stopping,
    watched,
)
from rec_summary.cli.text import count_of

if TYPE_CHECKING:
    import threading

    from rec_summary.alerts.delivery import Delivery
    from rec_summary.alerts.last_values import WatchReport
    from rec_summary.alerts.rules import Rule
    from rec_summary.alerts.states import Transition

EXAMPLES: Final = """\b
Examples:
  rec-summary watch records    # NaN loss, stall, drop of an AUC, troubles
  rec-summary watch records --rule '*/calibration/last_* > 1.1 for 5m'
  rec-summary watch records --rule stall --rule 'loss rises 20% within 1h'
  rec-summary watch records --rules alerts.txt --exec ./page-me
  rec-summary watch records --notify lark://TOKEN
  rec-summary watch records --once || echo 'something is wrong'

\b
Rules: TAG > NUMBER (or >= < <= == !=); TAG is not finite; TAG drops 5% within
10m (or rises; or by a number such as 0.02). Each may end with: for 5m.
Also: no data for 10m; TAG no data for 10m; quality changes within 1d.
NAME: before a rule names it.
See docs/alerts.md.
Built-in rules: nan-loss, stall, auc-drop, quality-change, troubles.

\b
Exit codes: 0 no alert is firing, or stopped with Ctrl-C; 1 with --once, an
alert is firing; 2 a mistake in the arguments, or with --once and without
--since, no record matches a rule; 3 it failed; 130 --once was interrupted.
"""
FIRING: Final = 1
MISTAKE: Final = 2
FAILED: Final = 3  # 1 is for alerts
_MOST_TAGS: Final = 8  # that are named
_PATIENCE_SECS: Final = 10.0  # for commands that still have to run after Ctrl-C
_complain: Final = functools.partial(terminal.complain, "watch")


@cli.command(epilog=EXAMPLES, failure=FAILED)
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
    "its environment, and with the alert as JSON on its standard input. It may take 60 seconds.",
    into="command",
)
@options.option(
    "--notify URL",
    "Send alerts to URL, as Apprise has it: a chat, such as lark://TOKEN, e-mail and many more; or "
    "to the URLs in a file. May be given several times.",
    multiple=True,
)
@options.interval
def watch(
    source: str,
    *,
    rules: Sequence[str],
    files: Sequence[str],
    since: str | None,
    runs: str | None,
    once: bool,
    history: bool,
    interval: float,
    log: str | None,
    command: str | None,
    notify: Sequence[str],
) -> int:
    """Raise alerts from records while they are written.

    SRC is a record directory or a tree of them; it need not exist yet. Each alert is
    reported when it begins and when it is over. Only --notify sends it over a network. Ctrl-C ends
    it.
    """
    from rec_summary.alerts.delivery import AlertLog, Command, Notification
    from rec_summary.alerts.rules import gather
    from rec_summary.alerts.states import Transition
    from rec_summary.alerts.watching import EVERYTHING
    from rec_summary.cli import INTERRUPTED
    from rec_summary.series.discovery.run_poller import RunPoller
    from rec_summary.series.options import read_since

    report: WatchReport | None = None
    is_asked = bool(rules or files)
    named: set[Rule] = set()  # rules whose tags were named
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stopping())
        gathered = gather(rules, files)
        default = EVERYTHING if once or history else None
        beginning = default if since is None else read_since(since, time.time())
        poller = RunPoller(source)
        if once:
            choose_runs(source, runs, poller.find)  # an error if there are none
        sinks: list[Callable[[Transition], None]] = [functools.partial(_print, stop=stop)]
        if log is not None:
            file = stack.enter_context(contextlib.closing(AlertLog(log, _complain)))
            sinks.append(file.write)
        waits = stop if once else None  # no alert is dropped
        deliveries: list[Delivery] = [Notification(url, _complain, stop=waits) for url in notify]
        if command is not None:
            deliveries.append(Command(command, _complain, stop=waits))
        sinks += [delivery.queue for delivery in deliveries]
        if not once:
            names = ", ".join(rule.title for rule in gathered)
            terminal.hint(f"Watching {source} for: {names}; Ctrl-C to stop.")
            awaited_runs(source, runs, poller.find)
        how: dict[str, Any] = {"runs": runs, "interval": interval, "since": beginning}
        how |= {"once": once, "history": history, "stop": stop, "poller": poller}
        for news in watched("watch", source, gathered, **how):
            if isinstance(news, Transition):
                for sink in sinks:
                    sink(news)
                continue
            is_first = report is None and news.runs > 0
            if is_first and beginning is None:
                terminal.hint(
                    "Earlier values are not judged; --since 1d judges those of the last day."
                )
            elif is_first and is_asked and not once:
                name_unmatched("watch", news, " yet")
            _name_tags(news, named)
            report = news
        _finish(deliveries, waits)
        if once and stop.is_set():
            return INTERRUPTED
    assert report is not None
    unmatched = is_asked and name_unmatched("watch", report)
    if report.problem_count > terminal.SHOWN:
        terminal.echo(f"{report.problem_count - terminal.SHOWN:,} more problems", err=True)
    return _conclude(report, unmatched and since is None) if once else 0


def _conclude(report: WatchReport, unmatched: bool) -> int:
    """Says how `--once` ended; returns the exit code."""
    if report.firing:
        return FIRING
    terminal.say(f"No alert is firing in {count_of(report.runs, 'run')}.")
    return MISTAKE if unmatched else 0


def _name_tags(report: WatchReport, named: set[Rule]) -> None:
    """Names the tags of each rule with a short name of several, once; adds it to `named`."""
    for rule, tags in report.matched.items():
        pattern = rule.condition.tag
        if pattern is not None and pattern.is_short and len(tags) > 1 and rule not in named:
            named.add(rule)
            shown = sorted(filter(None, tags))
            more = f" and {len(shown) - _MOST_TAGS} more" if len(shown) > _MOST_TAGS else ""
            terminal.hint(
                f"The rule {rule.title} applies to each of {', '.join(shown[:_MOST_TAGS])}{more}; "
                "quotation marks choose one tag."
            )


def _finish(deliveries: Sequence[Delivery], stop: threading.Event | None) -> None:
    """Waits for deliveries: with `--once` until all are done or `stop` is set."""
    end = time.monotonic() + _PATIENCE_SECS
    for delivery in deliveries:
        left = delivery.wait(stop.is_set if stop else lambda: time.monotonic() >= end)
        if left:
            _complain(f"{delivery.what} did not get {count_of(left, 'alert')}")


def _print(transition: Transition, stop: threading.Event) -> None:
    """Prints an alert; ends the watch when nobody reads standard output any more."""
    from rec_summary.alerts.delivery import as_json, as_text

    try:
        if terminal.printing().as_json:
            terminal.print_json(as_json(transition), indent=None)
        elif not terminal.printing().quiet:
            terminal.console().print(as_text(transition), soft_wrap=True)
    except BrokenPipeError:
        # What is left in the buffers has to go somewhere when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        stop.set()
