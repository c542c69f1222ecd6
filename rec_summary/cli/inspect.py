"""`rec-summary inspect`: the content of a record directory."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, choose_runs
from rec_summary.cli.output import (
    console,
    count_of,
    counts_of,
    number_of,
    one_line,
    print_json,
    print_problems,
    reading_progress,
    size_of,
    table_of,
)

if TYPE_CHECKING:
    from rec_summary.series.overview.inspection import RunSummary
    from rec_summary.series.overview.statistics import TagSummary

_SHOWN: Final = 50
EXAMPLES: Final = """\b
Examples:
  rec-summary inspect records
  rec-summary inspect records --json | jq '.runs[].status'
"""
_NUMBERS: Final = ("values", "steps", "size", "last", "least", "greatest", "not finite")


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
    click.secho(one_line(summary.run), bold=True)
    for what, text in _facts(summary):
        click.echo(f"  {what:<10} {text}")
    if summary.tags:
        shown = summary.tags if every else summary.tags[:_SHOWN]
        columns = {"tag": False, "kind": False, **dict.fromkeys(_NUMBERS, True)}
        console().print(table_of(columns.items(), map(_cells, shown)))
        if len(shown) < len(summary.tags) and not quiet:
            click.echo(f"  and {len(summary.tags) - len(shown):,} more tags (--all shows them)")
    print_problems(summary.problems, summary.problem_count)
    click.echo()


def _facts(summary: RunSummary) -> Iterator[tuple[str, str]]:
    from rec_summary.series.text import utc

    reason = f" ({one_line(summary.reason)})" if summary.reason else ""
    yield "status", summary.status + reason
    if summary.host:
        process = "" if summary.pid is None else f", process {summary.pid}"
        yield "host", one_line(summary.host) + process
    if summary.ranks not in ((), (0,)):
        yield "ranks", ", ".join(map(str, summary.ranks))
    if summary.first_step is not None:
        yield "steps", f"{summary.first_step:,} to {summary.last_step:,}"
    if summary.samples is not None:
        yield "samples", f"{summary.samples:,}"
    if summary.first_time is not None and summary.last_time is not None:
        yield "time", f"{utc(summary.first_time)} to {utc(summary.last_time)}"
    yield "records", counts_of(summary.records) or "none"
    yield "files", f"{count_of(summary.files, 'file')}, {size_of(summary.nbytes)}"
    if summary.health:
        yield "health", _health(summary.health)
    if summary.troubles:
        troubles = (f"{n:,} {kind}" for kind, n in sorted(summary.troubles.items()))
        yield "troubles", one_line(", ".join(troubles))


def _health(health: Mapping[str, float]) -> str:
    names = {"records": "recorded", "dropped": "dropped", "errors": "errors"}
    parts = [f"{health[key]:,.0f} {name}" for key, name in names.items() if key in health]
    if "queue_length" in health:
        parts.append(f"queue at most {health['queue_length']:,.0f}")
    if "snapshot_ms" in health:
        parts.append(f"{health['snapshot_ms']:.3g} ms a snapshot")
    return ", ".join(parts)


def _cells(summary: TagSummary) -> list[str]:
    return [
        summary.tag,
        summary.kind.replace("_", " "),
        f"{summary.values:,}",
        f"{summary.first_step:,}–{summary.last_step:,}",
        size_of(summary.nbytes),
        *map(number_of, (summary.last, summary.least, summary.greatest)),
        f"{summary.not_finite:,}" if summary.not_finite else "",
    ]
