"""`rec-summary tail`: shows the last scalars of runs while they are written."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.common import (
    choose_runs,
    console,
    one_line,
    print_json,
    print_problems,
    print_waiting,
    stopping,
)
from rec_summary.cli.progress import progress_shown

if TYPE_CHECKING:
    import threading

    from rich.console import RenderableType

    from rec_summary.records.reading.runs import Run
    from rec_summary.series.overview.statistics import ScalarSeries
    from rec_summary.series.overview.tail import Tail

EXAMPLES: Final = """\b
Examples:
  rec-summary tail records
  rec-summary tail records --tags 'loss|auc' --runs 'ctr/*'
  rec-summary tail records --once
  rec-summary tail records --json | jq 'select(.tag == "loss").value'
"""
_SPARK: Final = 24


@click.command(cls=RecordsCommand, epilog=EXAMPLES, quiet="Print values, errors and problems only.")
@options.source
@options.runs
@options.tags
@click.option("--once", is_flag=True, help="Show what is there, and exit.")
@options.interval
@options.as_json("Print values as lines of JSON.")
def tail(
    source: str,
    runs: str | None,
    tags: str | None,
    once: bool,
    interval: float,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show the last scalars of runs, with sparklines, while they are written.

    SRC is a record directory or a tree of them, or a URL; it need not exist yet. On a
    terminal, a table is kept up to date. Elsewhere, and with --json, the last value of each
    tag comes first, then each new value, one in a line. Ctrl-C ends it.
    """
    from rec_summary.series.overview.tail import Tail

    reading = Tail(source, runs=runs, tags=tags)
    # With --once, it is an error if there are no records; else they may come later.
    known = choose_runs(source, runs) if once else _runs_so_far(source, runs)
    table = sys.stdout.isatty() and not as_json
    size = sum(run.nbytes for run in known)
    with progress_shown(quiet=quiet) as progress:
        for _ in reading.poll() if known else ():
            progress(source, reading.bytes_read, max(size, reading.bytes_read))
    if once:
        _print_all(reading, table=table, as_json=as_json)
    else:
        print_waiting(source, quiet=quiet)
        with stopping() as stop:
            if table:
                _show_live(reading, stop, interval)
            else:
                _print_lines(reading, stop, interval, as_json=as_json)
    print_problems(reading.report.problems, reading.report.problem_count)


def _runs_so_far(source: str, pattern: str | None) -> list[Run]:
    from rec_summary.errors import SourceError
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.series.options import matching_runs

    try:
        return matching_runs(find_runs(source), pattern)
    except SourceError:
        return []


def _print_all(reading: Tail, *, table: bool, as_json: bool) -> None:
    if table:
        console().print(_table(reading, None))
        return
    for series in _ordered(reading):
        place = (series.run, series.rank, series.tag)
        _print_value(*place, series.step, series.wall_time, series.last, as_json=as_json)


def _print_lines(reading: Tail, stop: threading.Event, interval: float, *, as_json: bool) -> None:
    _print_all(reading, table=False, as_json=as_json)
    sys.stdout.flush()
    while not stop.wait(interval):
        for run, rank, columns in reading.poll():
            for code, *value in zip(*(each.tolist() for each in columns[1:]), strict=True):
                _print_value(run, rank, columns.tags[code], *value, as_json=as_json)
            sys.stdout.flush()


def _show_live(reading: Tail, stop: threading.Event, interval: float) -> None:
    from rich.live import Live

    out = console()
    # On the alternate screen a table that is higher than the window would be cut anyway.
    with Live(console=out, auto_refresh=False, transient=True) as live:
        while True:
            live.update(_table(reading, out.size.height - 2), refresh=True)
            if stop.wait(interval):
                break
            for _ in reading.poll():
                pass
    out.print(_table(reading, None))


def _print_value(
    run: str, rank: int, tag: str, step: int, wall_time: float, value: float, *, as_json: bool
) -> None:
    if as_json:
        names: dict[str, Any] = {"run": run, "rank": rank, "tag": tag}
        print_json({**names, "step": step, "wall_time": wall_time, "value": value}, indent=None)
        return
    name = one_line(run) + (f" rank {rank}" if rank else "")
    click.echo(f"{name}  {one_line(tag)}  step {step}  {value:.6g}")


def _ordered(reading: Tail) -> list[ScalarSeries]:
    return [series for _, series in sorted(reading.series.items())]


def _table(reading: Tail, height: int | None) -> RenderableType:
    """Returns the table, at most `height` lines high."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    width = _SPARK if console().size.width >= 110 else _SPARK // 2
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run, tag", overflow="ellipsis")
    for name in ("step", "last", "least", "greatest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("trend", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    ordered = _ordered(reading)
    shown = ordered if height is None else _fitting(ordered, height - 2)
    before, now = None, time.time()
    for series in shown:
        name = one_line(series.run) + (f" rank {series.rank}" if series.rank else "")
        if name != before:
            status = reading.status.get(series.run, "UNKNOWN").lower()
            table.add_row(Text(f"{name} ({status})", style="bold", no_wrap=True))
            before = name
        style = "bold red" if not math.isfinite(series.last) else ""
        table.add_row(
            Text(f"  {one_line(series.tag)}", no_wrap=True),
            f"{series.step:,}",
            Text(f"{series.last:.6g}", style=style),
            "" if series.least is None else f"{series.least:.4g}",
            "" if series.greatest is None else f"{series.greatest:.4g}",
            Text(series.sparkline(width), style="cyan"),
            _age(now - series.wall_time),
        )
    notes = []
    if not ordered:
        notes.append("no scalars yet")
    if len(shown) < len(ordered):
        notes.append(f"and {len(ordered) - len(shown):,} more series")
    return Group(table, *map(Text, notes))


def _fitting(ordered: list[ScalarSeries], height: int) -> list[ScalarSeries]:
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
