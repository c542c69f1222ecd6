"""`rec-summary inspect`: the content of a record directory."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.common import (
    choose_runs,
    console,
    count_of,
    one_line,
    print_json,
    print_problems,
    size_of,
)
from rec_summary.cli.progress import reading_progress

if TYPE_CHECKING:
    from rich.table import Table

    from rec_summary.series.overview.inspection import RunSummary
    from rec_summary.series.overview.statistics import TagSummary

_SHOWN = 50
EXAMPLES = """\b
Examples:
  rec-summary inspect records
  rec-summary inspect records --json | jq '.runs[].status'
"""


@click.command(cls=RecordsCommand, epilog=EXAMPLES, quiet="Print no progress and no hints.")
@options.source
@options.runs
@click.option("--all", "every", is_flag=True, help=f"Show all tags, not {_SHOWN} of each run.")
@options.as_json()
def inspect(source: str, runs: str | None, every: bool, as_json: bool, quiet: bool) -> None:
    """List the content of records: runs, tags, kinds, steps, sizes, times, status.

    SRC is a record directory or a tree of them, or a URL.
    """
    from rec_summary.series.overview.inspection import inspect_run

    chosen = choose_runs(source, runs)
    with reading_progress(sum(run.nbytes for run in chosen), quiet=quiet) as advance:
        found = [inspect_run(run, functools.partial(advance, run.name)) for run in chosen]
    if as_json:
        print_json({"runs": found})
        return
    for each in found:
        _print_run(each, every=every, quiet=quiet)


def _print_run(summary: RunSummary, *, every: bool, quiet: bool) -> None:
    out = console()
    click.secho(one_line(summary.run), bold=True)
    for what, text in _facts(summary):
        click.echo(f"  {what:<10} {text}")
    if summary.tags:
        shown = summary.tags if every else summary.tags[:_SHOWN]
        out.print(_table(shown))
        if len(shown) < len(summary.tags) and not quiet:
            click.echo(f"  and {len(summary.tags) - len(shown):,} more tags (--all shows them)")
    print_problems(summary.problems, summary.problem_count)
    click.echo()


def _facts(summary: RunSummary) -> list[tuple[str, str]]:
    from rec_summary.series.text import utc

    status = summary.status + (f" ({one_line(summary.reason)})" if summary.reason else "")
    facts = [("status", status)]
    if summary.host:
        where = one_line(summary.host) + ("" if summary.pid is None else f", process {summary.pid}")
        facts.append(("host", where))
    if summary.ranks not in ((), (0,)):
        facts.append(("ranks", ", ".join(map(str, summary.ranks))))
    if summary.first_step is not None:
        facts.append(("steps", f"{summary.first_step:,} to {summary.last_step:,}"))
    if summary.samples is not None:
        facts.append(("samples", f"{summary.samples:,}"))
    if summary.first_time is not None and summary.last_time is not None:
        facts.append(("time", f"{utc(summary.first_time)} to {utc(summary.last_time)}"))
    kinds = ", ".join(f"{n:,} {kind.replace('_', ' ')}" for kind, n in summary.records.items())
    facts.append(("records", kinds or "none"))
    facts.append(("files", f"{count_of(summary.files, 'file')}, {size_of(summary.nbytes)}"))
    if summary.health:
        facts.append(("health", _health(summary.health)))
    if summary.troubles:
        troubles = ", ".join(f"{n:,} {kind}" for kind, n in sorted(summary.troubles.items()))
        facts.append(("troubles", one_line(troubles)))
    return facts


def _health(health: Mapping[str, float]) -> str:
    names = {"records": "recorded", "dropped": "dropped", "errors": "errors"}
    parts = [f"{health[key]:,.0f} {name}" for key, name in names.items() if key in health]
    if "queue_length" in health:
        parts.append(f"queue at most {health['queue_length']:,.0f}")
    if "snapshot_ms" in health:
        parts.append(f"{health['snapshot_ms']:.3g} ms a snapshot")
    return ", ".join(parts)


def _table(tags: Sequence[TagSummary]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=True, header_style="bold")
    table.add_column("tag", overflow="fold")
    table.add_column("kind")
    for name in ("values", "steps", "size", "last", "least", "greatest", "not finite"):
        table.add_column(name, justify="right")
    for tag in tags:
        values = vars(tag)
        numbers = ("" if values[n] is None else f"{values[n]:.6g}" for n in _SCALAR)
        table.add_row(
            Text(one_line(values["tag"])),
            values["kind"].replace("_", " "),
            f"{values['values']:,}",
            f"{values['first_step']:,}–{values['last_step']:,}",
            size_of(values["nbytes"]),
            *numbers,
            f"{values['not_finite']:,}" if values["not_finite"] else "",
        )
    return table


_SCALAR = ("last", "least", "greatest")
