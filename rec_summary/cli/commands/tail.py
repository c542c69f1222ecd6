"""`rec-summary tail`: shows the last scalars of runs while they are written."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rec_summary.cli import options, terminal
from rec_summary.cli.command import awaited_runs, choose_runs, cli, stopping
from rec_summary.cli.text import count_of, number_of, size_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from rec_summary.alerts.states import Transition
    from rec_summary.series.options import Since
    from rec_summary.series.overview.statistics import ScalarSummary
    from rec_summary.series.overview.tail import Tail

    Judged = tuple[Sequence[Transition], Sequence[Transition]]  # what is new, what fires

EXAMPLES: Final = """\b
Examples:
  rec-summary tail records
  rec-summary tail records --tags 'loss|auc' --runs 'ctr/*' --since 0
  rec-summary tail records --once --since 2h
  rec-summary tail records --json | jq 'select(.tag == "loss").value'
"""
_NEWEST_BYTES: Final = 1 << 25  # of a run that --once reads: in less than a second
_SPARK: Final = 24
_HEADS: Final = ("run, tag", "last", "trend", "step", "age", "least", "greatest")


@cli.command(epilog=EXAMPLES, quiet="Print values, errors and problems only.")
@options.source
@options.runs
@options.tags
@options.separate_ranks
@options.option(
    "--since WHEN",
    f"Begin with {options.WHEN}.  [default: new records; with --once: the last 32 MiB of each run]",
)
@options.flag("--once", "Show what is there, and exit.")
@options.option("--limit N", "Only the first N series.", options.COUNT)
@options.interval
@options.as_json("Print values as lines of JSON.")
def tail(
    source: str,
    runs: str | None,
    tags: str | None,
    ranks: str | None,
    since: str | None,
    once: bool,
    limit: int | None,
    interval: float,
) -> None:
    """Show new scalars of runs while they are written.

    SRC is a record directory or a tree of them, or a URL; it need not exist yet. Without --tags,
    it shows the loss, the AUC and the calibration of each task, evaluations, and the alerts of the
    built-in rules that fire, but quality-change, for which whole runs are read; --tags . shows all
    series, and so does --json. On a terminal, it shows a table with sparklines. Elsewhere, and with
    --json, each new value is a line. With --since or --once, the last recorded value of each tag
    comes first. Ctrl-C ends it.
    --once reads the last 32 MiB of a run, and the whole run if no tag of that part matches --tags;
    --since 0 reads the whole run.
    """
    from rec_summary.series.new_records import PATIENCE_SECS
    from rec_summary.series.options import Since, read_since
    from rec_summary.series.overview.choice import check_ranks, check_tags
    from rec_summary.series.overview.tail import Tail

    patience = 0.0 if once else PATIENCE_SECS
    reading = Tail(source, runs=runs, tags=tags, since=since, ranks=ranks, patience=patience)
    # With --once, it is an error if there are no records; else they may come later.
    if once:
        found_runs = choose_runs(source, runs, reading.find)
        check_ranks(found_runs, ranks)
    else:
        found_runs = awaited_runs(source, runs, reading.find)
    which = f" (tags in which {tags!r} is found)" if tags else ""
    first = math.inf  # wall time of a value that was read
    if once or since is not None:
        if since is None:
            reading.skip(_NEWEST_BYTES)
        narrowed = [reading.selection.narrowed(run, newest=True) for run in found_runs]
        size = sum(run.nbytes - reading.skipped.get(run.path, 0) for run in narrowed)
        with terminal.progress_shown() as progress:
            for _, _, columns in reading.poll():
                first = float(columns.wall_times.min(initial=first))
                done = reading.report.bytes_read
                progress(source, done, max(size, done))
        if once and not reading.series:
            check_tags(map(reading.selection.narrowed, found_runs), tags)
        if reading.skipped:
            read, older = size_of(size), size_of(sum(reading.skipped.values()))
            terminal.hint(
                f"Only the newest {read} are read; --since 0 also reads the older {older}."
            )
        if found_runs and not (once or reading.series):
            terminal.hint(f"There are no values to show yet{which}: waiting for new ones.")
    elif found_runs:
        reading.skip()
        count = count_of(len(found_runs), "run")
        terminal.hint(
            f"Waiting for new values of {count}{which}; --since STEP shows recorded ones."
        )
    is_overview = tags is None and not terminal.printing().as_json
    listed = reading.overview if is_overview else reading.ordered
    default = Since(wall_time=first if reading.skipped else -math.inf) if once else None
    beginning = default if since is None else read_since(since, time.time())
    in_lines = terminal.printing().as_json or not sys.stdout.isatty()
    with contextlib.nullcontext() if once else stopping() as stop:
        is_told = is_overview and not terminal.printing().quiet
        alerts = _alerts(source, runs, beginning, stop) if is_told else iter(())
        show = _print_lines if in_lines else _show_table
        show(reading, listed, alerts, stop, interval, limit)
    if in_lines and (hidden := _hidden(reading, listed())):
        terminal.hint(hidden)
    if reading.ignored:
        left_out = count_of(reading.ignored, "value")
        terminal.hint(
            f"There are too many series: {left_out} left out; --runs and --tags choose fewer."
        )
    terminal.print_problems(reading.report.problems, reading.report.problem_count)


def _alerts(
    source: str, runs: str | None, since: Since | None, stop: threading.Event | None
) -> Iterator[Judged]:
    """Yields the news of the built-in rules that take little time, and the alerts that fire.

    Args:
        source: The records.
        runs: Which runs.
        since: From where on they are judged; None for new ones.
        stop: Ends it; None to end when what is there has been judged.
    """
    from rec_summary.alerts.last_values import WatchReport
    from rec_summary.alerts.rules import QualityChange, gather
    from rec_summary.alerts.states import Transition
    from rec_summary.alerts.watching import watch

    how: dict[str, Any] = {"once": stop is None, "since": since, "runs": runs}
    rules = [rule for rule in gather((), ()) if not isinstance(rule.condition, QualityChange)]
    new = list[Transition]()
    for news in watch(source, rules, stop=stop or threading.Event(), interval=0, **how):
        if isinstance(news, Transition):
            new.append(news)
        elif isinstance(news, WatchReport):
            yield new, news.firing
            new = []


def _print_lines(
    reading: Tail,
    listed: Callable[[], Sequence[ScalarSummary]],
    alerts: Iterator[Judged],
    stop: threading.Event | None,
    interval: float,
    limit: int | None,
) -> None:
    """Prints the last value of each series and alerts, and then new ones until it is stopped."""
    from rec_summary.alerts.delivery import as_text

    def print_alerts() -> None:
        new, _ = next(alerts, ((), ()))
        for transition in new:
            terminal.console().print(as_text(transition), soft_wrap=True)
        sys.stdout.flush()

    for series in listed()[:limit]:
        key = (series.run, series.rank, series.tag)
        _print_value(*key, series.step, series.wall_time, series.last)
    print_alerts()
    while stop is not None and not stop.wait(interval):
        for run, rank, columns in reading.poll():
            first = listed()[:limit]
            tags = {line.tag for line in first if (line.run, line.rank) == (run, rank)}
            for code, *value in zip(*(column.tolist() for column in columns[1:]), strict=True):
                if columns.tags[code] in tags:
                    _print_value(run, rank, columns.tags[code], *value)
            sys.stdout.flush()
        print_alerts()


def _print_value(run: str, rank: int, tag: str, step: int, wall_time: float, value: float) -> None:
    if terminal.printing().as_json:
        origin = {"run": run, "rank": rank, "tag": tag, "step": step}
        terminal.print_json({**origin, "wall_time": wall_time, "value": value}, indent=None)
        return
    terminal.echo(f"{_name_with_rank(run, rank)}  {tag}  step {step}  {value:.6g}")


def _show_table(
    reading: Tail,
    listed: Callable[[], Sequence[ScalarSummary]],
    alerts: Iterator[Judged],
    stop: threading.Event | None,
    interval: float,
    limit: int | None,
) -> None:
    """Shows a table until it is stopped, and prints it."""
    from rich.live import Live

    out = terminal.console()
    _, firing = next(alerts, ((), ()))
    if stop is not None:
        # On the alternate screen a table that is higher than the window would be cut anyway.
        with Live(console=out, auto_refresh=False, transient=True) as live:
            while True:
                table = _table(reading, listed(), firing, out.size.height - 2, limit)
                live.update(table, refresh=True)
                if stop.wait(interval):
                    break
                for _ in reading.poll():
                    pass
                _, firing = next(alerts, ((), ()))
    out.print(_table(reading, listed(), firing, None, limit))


def _name_with_rank(run: str, rank: int) -> str:
    return terminal.one_line(run) + (f" rank {rank}" if rank else "")


def _hidden(reading: Tail, listed: Sequence[ScalarSummary]) -> str:
    """Says how many series are not listed because no tags were chosen."""
    count = len(reading.ordered()) - len(listed)
    return f"{count:,} more series: --tags . shows all" if count else ""


def _table(
    reading: Tail,
    listed: Sequence[ScalarSummary],
    firing: Sequence[Transition],
    height: int | None,
    limit: int | None,
) -> RenderableType:
    """Returns a table of at most `limit` series and alerts, at most `height` lines high."""
    from rich.console import Group

    from rec_summary.alerts.delivery import as_text
    from rec_summary.series.text import utc

    hidden, alerts, fitting = _hidden(reading, listed), firing, listed
    if height is not None:
        alerts = firing[: height // 2]
        fitting = _fitting(listed, height - len(alerts) - bool(hidden) - 2)
    fitting = fitting[:limit]
    notes: list[RenderableType] = []
    if not listed:
        notes.append("no scalars yet")
    if len(fitting) < len(listed):
        notes.append(f"and {len(listed) - len(fitting):,} more series")
    if hidden:
        notes.append(hidden)
    for run in dict.fromkeys(series.run for series in fitting):
        if (since := reading.silent_since(run)) is not None:
            notes.append(f"{terminal.one_line(run)}: no sign of life since {utc(since)}")
    columns = terminal.columns_of(_HEADS, _rows(reading, fitting), ("run, tag", "trend"))
    return Group(
        terminal.fitted_table(columns, terminal.console().size.width)[0],
        *notes,
        *map(as_text, alerts),
    )


def _rows(reading: Tail, listed: Sequence[ScalarSummary]) -> Iterator[list[str | Text]]:
    """Yields a row for each run and rank, and below it one for each of its series."""
    from rich.text import Text

    width = _SPARK if terminal.console().size.width >= 110 else _SPARK // 2
    before, now = None, time.time()
    for series in listed:
        name = _name_with_rank(series.run, series.rank)
        if name != before:
            status = reading.status.get(series.run, "UNKNOWN").lower()
            yield [Text(f"{name} ({status})", style="bold"), *[""] * (len(_HEADS) - 1)]
            before = name
        style = "" if math.isfinite(series.last) else "bold red"
        yield [
            f"  {series.tag}",
            Text(number_of(series.last), style=style),
            Text(series.sparkline(width), style="cyan"),
            f"{series.step:,}",
            _age(now - series.wall_time),
            *map(number_of, (series.least, series.greatest)),
        ]


def _fitting(ordered: Sequence[ScalarSummary], height: int) -> Sequence[ScalarSummary]:
    """Returns the first series that fit, with a line for each run, into a window."""
    lines, before = 0, None
    for index, series in enumerate(ordered):
        lines += 1 if (series.run, series.rank) == before else 2
        before = (series.run, series.rank)
        if lines > height and index:
            return ordered[:index]
    return ordered


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s" if math.isfinite(seconds) else ""
