"""`rec-summary lineage`: compares runs in a table."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rec_summary.cli import options, terminal
from rec_summary.cli.command import choose_runs, cli
from rec_summary.cli.text import count_of, number_of

if TYPE_CHECKING:
    from rec_summary.series.overview.rows import Row
    from rec_summary.tables.query import Filter

EXAMPLES = """\b
Examples:
  rec-summary lineage records --sort -best/auc --limit 10
  rec-summary lineage records --sort -cvr/auc
  rec-summary lineage records --filter 'learning_rate<0.01' --sort loss
  rec-summary lineage records --columns run,auc --format csv > runs.csv
"""


_FIRST_METRICS = 3  # in front of the parameters in which runs differ
_PIPED = 80  # characters, that decide how many columns there are where it is not a terminal
_LISTED = 8  # columns that do not fit


@dataclass(frozen=True)
class _Answer:
    """The rows and columns to print.

    Attributes:
        rows: The rows, in order.
        known: All columns.
        named: The columns by which rows are sorted and filtered.
        chosen: The columns that were chosen; None if none were.
    """

    rows: Sequence[Row]
    known: Sequence[str]
    named: Sequence[str]
    chosen: Sequence[str] | None


@cli.command(epilog=EXAMPLES, quiet="Print no progress and no hints.")
@options.source
@options.runs
@options.since
@options.option("--sort COLUMN", "Order by COLUMN; -COLUMN for descending order.")
@options.option(
    "--filter CONDITION",
    "Only runs that meet CONDITION: a column, one of = != < <= > >= ~ (REGEX), a value. "
    "May be given several times.",
    into="filters",
    multiple=True,
)
@options.option("--columns NAMES", "Only these columns, separated by commas.")
@options.option("--limit N", "Only the first N runs.", options.COUNT)
@options.option(
    "--format", "What to print.", ("table", "csv", "json"), into="form", default="table"
)
@options.wide
@options.on_engine
@options.as_json("Print JSON, as --format json.")
def lineage(
    source: str,
    runs: str | None,
    since: str | None,
    filters: Sequence[str],
    form: str,
    engine: str,
    jobs: int | None,
    **query: Any,
) -> None:
    """Compare runs: hyper-parameters, data and results.

    SRC is a tree of record directories, or a URL; each run is a row. The loss is the mean of the
    last tenth of the recorded losses, at most 100. The column of a metric has its last value;
    best/auc is the best value of auc so far, and best_step/auc its step. You can name a metric by
    its short name: auc is recommender/auc/last_100000; of several tasks, --sort takes the first.
    With --since, only values since then count. The table begins with the AUC of each task (the
    RMSE of ratings, the accuracy of classes), of the longest window of last examples that all runs
    have, and marks the best run with *.
    """
    from rec_summary.series.options import chosen_engine
    from rec_summary.series.overview.rows import rows
    from rec_summary.tables.query import parse_filter

    reader = chosen_engine(engine, jobs)
    conditions = [parse_filter(text) for text in filters]
    chosen = choose_runs(source, runs)
    with terminal.reading_progress(source, chosen) as report:
        table = rows(chosen, report, since, reader)
    answer = _query(table, conditions, **query)
    # What was asked for comes last: a terminal still shows it.
    terminal.print_problems(report.problems, report.problem_count)
    names = answer.known if answer.chosen is None else answer.chosen
    if form == "json" or terminal.printing().as_json:
        terminal.print_json(
            [{name: row[name] for name in names if name in row} for row in answer.rows]
        )
    elif form == "csv":
        _print_csv(names, answer.rows)
    else:
        _print_table(answer)


def _query(
    table: Sequence[Row],
    filters: Sequence[Filter],
    *,
    sort: str | None,
    columns: str | None,
    limit: int | None,
) -> _Answer:
    """Returns the chosen rows and columns."""
    from rec_summary.errors import ArgumentError, three_part
    from rec_summary.series.overview.rows import column_names, judging_columns
    from rec_summary.tables.query import column_of, explained, sort_rows

    known = column_names(table)
    conditions = [replace(test, name=column_of(test.name, known)) for test in filters]
    rows = [row for row in table if all(condition.accepts(row) for condition in conditions)]
    if table and not rows:
        values = "; ".join(_values(table, test.name) for test in conditions)
        expected = f"conditions that a run meets; there are: {values}"
        given = ", ".join(f"{test.name}{test.operator}{test.value}" for test in filters)
        raise ArgumentError(three_part("the choice by filters", given, expected))
    named = [condition.name for condition in conditions]
    if sort is not None:
        wanted = sort if sort in known else sort.removeprefix("-")
        try:
            name = column_of(wanted, known)
        except ArgumentError:
            name = column_of(wanted, known, judging_columns(rows))
            said = f"Sorted by {name}, the first of the columns that {wanted} names."
            terminal.hint(terminal.one_line(said))
        named.insert(0, name)
        if explanation := explained(name, rows):
            terminal.hint(terminal.one_line(explanation))
        rows = sort_rows(rows, name, descending=sort != name and sort.startswith("-"))
    chosen = columns and [column_of(name.strip(), known) for name in columns.split(",")]
    return _Answer(rows[:limit], known, named, chosen or None)


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """Returns the values of a column, for a message."""
    cells = dict.fromkeys(_cell(name, row[name]) for row in rows if name in row)
    return f"{terminal.one_line(name)} {_listed([*cells]) or 'none'}"


def _columns_without_choice(answer: _Answer) -> tuple[list[str], list[str]]:
    """Returns the columns to print if none are chosen, and those that are the same in all runs."""
    from rec_summary.metrics.tags import PREFIX
    from rec_summary.series.overview.rows import (
        BEST,
        BEST_STEP,
        DETAILS,
        LAST_RECORD,
        is_metric,
        judging_columns,
    )

    rows = answer.rows
    metrics = [name for name in answer.known if is_metric(name, answer.known)]
    metrics.sort(key=lambda name: (name.startswith(BEST_STEP), name.startswith(BEST)))
    # When the last record came matters while a run goes on.
    running = LAST_RECORD if any(row["status"] == "RUNNING" for row in rows) else "status"
    telling = [name for name in metrics if not _repeats_last(name, rows)]
    judging = judging_columns(rows)
    if judging:  # of recommenders' other metrics, there are many
        telling = [name for name in telling if PREFIX not in name]
    telling = telling[: max(_FIRST_METRICS - len(judging), 0)]
    first = ["run", *answer.named, *judging, "status", running, "loss", "step", *telling]
    others = [name for name in answer.known if name not in (*metrics, LAST_RECORD, *DETAILS)]
    order = dict.fromkeys((*first, *others, *metrics, LAST_RECORD))
    names = [name for name in order if name in answer.known]
    kept = {*answer.named, *metrics, "loss", "step", LAST_RECORD}
    if len(rows) == 1:
        kept |= {*first}
    same = [
        name
        for name in names
        if rows and name not in kept and len({repr(row.get(name)) for row in rows}) == 1
    ]
    return [name for name in names if name not in same], same


def _print_table(answer: _Answer) -> None:
    from rec_summary.series.text import utc
    from rec_summary.tables.query import short_names

    rows, short = answer.rows, short_names(answer.known)
    names, same = (answer.chosen, []) if answer.chosen else _columns_without_choice(answer)
    if same:
        cells = {short[name]: _cell(name, rows[0].get(name)) for name in same}
        parts = (f"{terminal.one_line(name)} {cell}" for name, cell in cells.items() if cell)
        _say_folded("The same in all of these runs: " + ", ".join(parts))
    columns, marked = [], set[str]()
    for name in names:
        texts = [_cell(name, row.get(name)) for row in rows]
        head = name if answer.chosen else short[name]
        for place in () if answer.chosen else _best(name, answer):
            texts[place] = f"*{texts[place]}"
            marked.add(terminal.one_line(head))
        is_number = all(isinstance(row.get(name, 0), int | float) for row in rows)
        columns.append(terminal.Column(head, is_number, texts))
    left_out = terminal.print_table(columns, piped=None if answer.chosen else _PIPED)
    if marked.difference(left_out):
        terminal.say("* the best of these runs")
    if left_out:
        count = count_of(len(left_out), "more column")
        _say_folded(f"{count} (--wide shows all, --columns some): {_listed(left_out)}")
    for row in rows:
        if "silent_since" in row:
            since = utc(float(row["silent_since"]))
            terminal.say(f"{row['run']}: no sign of life since {since}")


def _repeats_last(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column has the best values of a metric, which are the last ones in all rows."""
    from rec_summary.series.overview.rows import BEST

    last = name.removeprefix(BEST)
    return last != name and all(repr(row.get(name)) == repr(row.get(last)) for row in rows)


def _best(name: str, answer: _Answer) -> list[int]:
    """Returns the rows with the best value of a metric; none if nothing says which one is best."""
    import numpy as np

    from rec_summary.metrics.directions import costs_of
    from rec_summary.series.overview.rows import BEST, BEST_STEP, is_metric

    metric, rows = name.removeprefix(BEST), answer.rows
    directions = {row.directions.get(metric, "") for row in rows}
    if not is_metric(name, answer.known) or name.startswith(BEST_STEP) or len(directions) > 1:
        return []
    values = [value if isinstance(value := row.get(name), float) else math.nan for row in rows]
    costs = costs_of(metric, np.array(values), *directions)
    return [int(place) for place in np.flatnonzero((costs == costs.min()) & (costs < costs.max()))]


def _say_folded(text: str) -> None:
    width = max(terminal.console().size.width, 1)  # COLUMNS may be 0
    # Names are broken nowhere: they are copied into options.
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        terminal.say(line)


def _listed(names: Sequence[str]) -> str:
    """Returns the first names, and a sign that there are more."""
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def _cell(name: str, value: Any) -> str:
    from rec_summary.series.overview.rows import TIMES
    from rec_summary.series.text import utc

    if name in TIMES and value is not None:
        return utc(value, "%Y-%m-%d %H:%M")
    return terminal.one_line(number_of(value))


def _print_csv(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    from rec_summary.tables.formats import csv_line

    # A file gets the names as recorded; a terminal gets no control characters.
    text = terminal.one_line if sys.stdout.isatty() else str
    for values in (names, *([row.get(name) for name in names] for row in rows)):
        line = csv_line(text(x) if isinstance(x, str) else x for x in values)
        sys.stdout.write(line.removesuffix("\r\n") + "\n")  # for programs of a shell
