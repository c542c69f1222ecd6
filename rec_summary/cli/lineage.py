"""`rec-summary lineage`: compares runs in a table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, choose_runs
from rec_summary.cli.output import (
    console,
    number_of,
    one_line,
    print_json,
    print_problems,
    progress_shown,
    table_of,
)

EXAMPLES = """\b
Examples:
  rec-summary lineage records --sort -auc --limit 10
  rec-summary lineage records --filter 'learning_rate<0.01' --filter 'network~Deep'
  rec-summary lineage records --columns run,learning_rate,auc --format csv > runs.csv
"""


@click.command(cls=RecordsCommand, epilog=EXAMPLES, quiet="Print no progress and no hints.")
@options.source
@options.runs
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
@options.as_json("Print JSON, as --format json.")
def lineage(
    source: str,
    runs: str | None,
    form: str,
    as_json: bool,
    quiet: bool,
    **query: Any,
) -> None:
    """Compare runs: hyper-parameters, data and results.

    SRC is a tree of record directories, or a URL; each run is a row.
    """
    from rec_summary.series.lineage import rows
    from rec_summary.series.report import Report

    form = "json" if as_json else form
    prints = {"table": _print_table, "csv": _print_csv, "json": _print_json}
    report, found = Report(), []
    chosen = choose_runs(source, runs)
    counted = "runs" if sys.stderr.isatty() else None
    with progress_shown(quiet=quiet, counted=counted) as progress:
        for done, run in enumerate(chosen):
            progress(run.name, done, len(chosen))
            found += rows([run], report)
    names, answer = _query(found, form=form, quiet=quiet, **query)
    prints[form](names, answer)
    print_problems(report.problems, report.problem_count)


def _query(
    found: Sequence[Mapping[str, Any]],
    *,
    form: str,
    quiet: bool,
    sort: str | None,
    filters: Sequence[str],
    columns: str | None,
    limit: int | None,
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Returns the chosen columns and rows."""
    from rec_summary.series.lineage import DETAILS, column_names
    from rec_summary.tables.query import check_columns, parse_filter, sort_rows

    known = column_names(found)
    conditions = [parse_filter(text) for text in filters]
    check_columns((condition.name for condition in conditions), known)
    rows = [row for row in found if all(condition.accepts(row) for condition in conditions)]
    if sort is not None:
        check_columns([sort if sort in known else sort.removeprefix("-")], known)
        rows = sort_rows(rows, sort)
    if columns is not None:
        names = [name.strip() for name in columns.split(",")]
        check_columns(names, known)
    elif form == "table":
        names = [name for name in known if name not in DETAILS]
        named = {sort and sort.removeprefix("-"), *(condition.name for condition in conditions)}
        names = _without_common(names, rows[:limit], named, quiet=quiet)
    else:
        names = known
    return names, rows[:limit]


def _without_common(
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    named: Container[str | None],
    *,
    quiet: bool,
) -> list[str]:
    """Prints what is the same in all runs; returns the other columns."""
    if len(rows) < 2:
        return list(names)
    common = {
        name: rows[0].get(name)
        for name in names
        if name not in named and len({repr(row.get(name)) for row in rows}) == 1
    }
    if common and not quiet:
        texts = (f"{one_line(name)} {one_line(number_of(value))}" for name, value in common.items())
        click.echo("The same in all runs: " + ", ".join(texts))
    return [name for name in names if name not in common]


def _print_table(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    columns = {
        name: all(isinstance(row.get(name, 0), int | float) for row in rows) for name in names
    }
    cells = ([number_of(row.get(name)) for name in names] for row in rows)
    console().print(table_of(columns, cells))


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
