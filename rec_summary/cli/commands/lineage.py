"""`rec-summary lineage`: compares runs in a table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, choose_runs
from rec_summary.cli.output import (
    Column,
    count_of,
    number_of,
    one_line,
    print_json,
    print_problems,
    print_table,
    reading_progress,
)

EXAMPLES = """\b
Examples:
  rec-summary lineage records --sort -best/auc --limit 10
  rec-summary lineage records --filter 'learning_rate<0.01' --filter 'network~Deep'
  rec-summary lineage records --columns run,learning_rate,auc --format csv > runs.csv
"""


_FIRST_METRICS = 3  # in front of the parameters in which runs differ
_PIPED = 80  # characters, that decide how many columns there are where it is not a terminal
_LISTED = 8  # columns that do not fit


@dataclass(frozen=True)
class _Answer:
    """What was asked for.

    Attributes:
        rows: The rows, in order.
        known: All columns.
        named: The columns by which rows are sorted and filtered.
        chosen: The columns that were chosen; None if none were.
    """

    rows: Sequence[Mapping[str, Any]]
    known: Sequence[str]
    named: Sequence[str]
    chosen: Sequence[str] | None


@click.command(cls=RecordsCommand, epilog=EXAMPLES, quiet="Print no progress and no hints.")
@options.source
@options.runs
@options.since
@click.option("--sort", metavar="COLUMN", help="Order by COLUMN; -COLUMN for descending order.")
@click.option(
    "--filter",
    "filters",
    metavar="CONDITION",
    multiple=True,
    help="Only runs that meet CONDITION: a column, one of = != < <= > >= ~ (REGEX), a value. "
    "May be given several times.",
)
@click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Only the first N runs.")
@options.option(
    "--format",
    "form",
    type=click.Choice(("table", "csv", "json")),
    default="table",
    help="What to print.",
)
@options.wide
@options.on_engine
@options.as_json("Print JSON, as --format json.")
def lineage(
    source: str,
    runs: str | None,
    since: str | None,
    form: str,
    wide: bool,
    as_json: bool,
    quiet: bool,
    engine: str,
    jobs: int | None,
    **query: Any,
) -> None:
    """Compare runs: hyper-parameters, data and results.

    SRC is a tree of record directories, or a URL; each run is a row. The loss is the mean of the
    last tenth of the recorded losses, at most 100. Of metrics, there is the last value; best/auc is
    the best value of auc so far, and best_step/auc its step. A column of a metric is found by its
    short name: auc is recommender/auc/lifetime. With --since, they are of the values since then.
    """
    from rec_summary.series.options import chosen_engine
    from rec_summary.series.overview.rows import rows

    reader = chosen_engine(engine, jobs)
    form = "json" if as_json else form
    prints = {"csv": _print_csv, "json": _print_json}
    chosen = choose_runs(source, runs)
    with reading_progress(sum(run.nbytes for run in chosen), quiet=quiet) as begin:
        report = begin(source)
        found = rows(chosen, report, since, reader)
    answer = _query(found, **query)
    if form == "table":
        _print_table(answer, wide=wide, quiet=quiet)
    else:
        names = answer.known if answer.chosen is None else answer.chosen
        prints[form](names, answer.rows)
    print_problems(report.problems, report.problem_count)


def _query(
    found: Sequence[Mapping[str, Any]],
    *,
    sort: str | None,
    filters: Sequence[str],
    columns: str | None,
    limit: int | None,
) -> _Answer:
    """Returns the chosen rows and columns."""
    from rec_summary.errors import three_part
    from rec_summary.series.options import ArgumentError
    from rec_summary.series.overview.rows import column_names
    from rec_summary.tables.query import column_of, parse_filter, sort_rows

    known = column_names(found)
    conditions = [parse_filter(text) for text in filters]
    conditions = [replace(each, name=column_of(each.name, known)) for each in conditions]
    rows = [row for row in found if all(condition.accepts(row) for condition in conditions)]
    if found and not rows:
        values = "; ".join(_values(found, each.name) for each in conditions)
        expected = f"conditions that a run meets; there are: {values}"
        raise ArgumentError(three_part("the choice by filters", ", ".join(filters), expected))
    named = [condition.name for condition in conditions]
    if sort is not None:
        name = column_of(sort if sort in known else sort.removeprefix("-"), known)
        named.insert(0, name)
        rows = sort_rows(rows, name, descending=sort != name and sort.startswith("-"))
    chosen = columns and [column_of(name.strip(), known) for name in columns.split(",")]
    return _Answer(rows[:limit], known, named, chosen or None)


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """Returns the values of a column, for a message."""
    cells = dict.fromkeys(_cell(name, row[name]) for row in rows if name in row)
    more = ", …" if len(cells) > _LISTED else ""
    return f"{one_line(name)} {', '.join([*cells][:_LISTED])}{more}"


def _print_table(answer: _Answer, *, wide: bool, quiet: bool) -> None:
    from rec_summary.series.overview.rows import BEST, BEST_STEP, DETAILS, LAST_RECORD, is_metric
    from rec_summary.series.text import utc
    from rec_summary.tables.query import short_names

    rows = answer.rows
    names, hidden = answer.chosen, {}
    if names is None:
        metrics = [name for name in answer.known if is_metric(name, answer.known)]
        metrics.sort(key=lambda name: (name.startswith(BEST_STEP), name.startswith(BEST)))
        # When the last record came matters while a run goes on.
        running = LAST_RECORD if any(row["status"] == "RUNNING" for row in rows) else "status"
        first = ["run", "status", running, *answer.named, "loss", "step", *metrics[:_FIRST_METRICS]]
        others = [name for name in answer.known if name not in (*metrics, LAST_RECORD, *DETAILS)]
        order = dict.fromkeys((*first, *others, *metrics, LAST_RECORD))
        names = [name for name in order if name in answer.known]
        kept = {*answer.named, *metrics, "loss", "step", LAST_RECORD}
        if len(rows) == 1:
            kept |= {*first}
        hidden = {
            name: rows[0].get(name)
            for name in names
            if rows and name not in kept and len({repr(row.get(name)) for row in rows}) == 1
        }
    short = short_names(answer.known)
    if hidden and not quiet:
        parts = (f"{one_line(short[name])} {_cell(name, each)}" for name, each in hidden.items())
        click.echo("The same in all runs: " + ", ".join(parts))
    columns = [
        Column(
            short[name] if answer.chosen is None else name,
            all(isinstance(row.get(name, 0), int | float) for row in rows),
            [_cell(name, row.get(name)) for row in rows],
        )
        for name in names
        if name not in hidden
    ]
    piped = None if answer.chosen else _PIPED
    left_out = print_table(columns, wide=wide, piped=piped)
    if left_out and not quiet:
        count, listed = count_of(len(left_out), "more column"), ", ".join(left_out[:_LISTED])
        more = ", …" if len(left_out) > _LISTED else ""
        click.echo(f"{count} (--wide shows all, --columns some): {listed}{more}")
    for row in () if quiet else rows:
        if "silent_since" in row:
            since = utc(row["silent_since"])
            click.echo(f"{one_line(row['run'])}: no sign of life since {since}")


def _cell(name: str, value: Any) -> str:
    from rec_summary.series.overview.rows import TIMES
    from rec_summary.series.text import utc

    if name in TIMES and value is not None:
        return utc(value).removesuffix(" UTC")[:-3]
    return one_line(number_of(value))


def _print_csv(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    from rec_summary.tables.formats import without_nul

    # A file gets the names as recorded; a terminal gets no control characters.
    text = one_line if sys.stdout.isatty() else str
    writer = csv.writer(sys.stdout)
    for values in (names, *([row.get(name, "") for name in names] for row in rows)):
        writer.writerow(
            [without_nul(text(each) if isinstance(each, str) else each) for each in values]
        )


def _print_json(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    print_json([{name: row[name] for name in names if name in row} for row in rows])
