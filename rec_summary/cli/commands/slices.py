"""`rec-summary slices`: the quality of each value of each column, as a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from rec_summary.cli import options, terminal
from rec_summary.cli.command import choose_runs, cli
from rec_summary.cli.text import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rec_summary.records.reading.runs import Run
    from rec_summary.series.options import Selection
    from rec_summary.series.report import Report

EXAMPLES: Final = """\b
Examples:
  rec-summary slices records --since 2h
  rec-summary slices records/run-1 --task cvr --sort -calibration
  rec-summary slices records/run-1 --since 4000 --until 5000 --json
"""
_SORTED_BY: Final = "auc"
_TEXTS: Final = ("run", "task", "column", "value")
_WHOLE: Final = {"column": "all"}  # the whole task
_SHOWN: Final = ("examples", "clicks", "auc", "normalised_entropy", "calibration")
_COMPARED: Final = "ne_change"  # with the served scores, where there are any
_SMALL: Final = 1e5  # from there on, a number has no fraction


@cli.command(epilog=EXAMPLES, quiet="Print no progress.")
@options.source
@options.runs
@options.since
@options.until
@options.option("--task NAME", "Only this task.")
@options.option("--column NAME", "Only this column of slices.")
@options.option(
    "--sort COLUMN",
    "Order by COLUMN, within each task and column of slices; -COLUMN for descending order.",
    default=_SORTED_BY,
)
@options.option("--limit N", "Only the first N rows.", options.COUNT)
@options.wide
@options.as_json()
def slices(
    source: str,
    runs: str | None,
    since: str | None,
    until: str | None,
    task: str | None,
    column: str | None,
    sort: str,
    limit: int | None,
) -> None:
    """Show the quality of each slice: of all values that are counted.

    SRC is a record directory or a tree of them, or a URL. The examples of all steps from --since to
    --until are added up, of all ranks. A row without a value is the whole task. Of clicks there are
    normalised entropy, calibration (predicted clicks divided by clicks) and AUC, with its standard
    error. Where the score that was served is known, there is the change of the normalised entropy
    against it, with its standard error: below 0 is better. `why` says which of them moved.
    """
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.series.runs.slices import SLICE_COLUMNS
    from rec_summary.tables.query import column_of, sort_rows

    by = column_of(sort.removeprefix("-"), list(SLICE_COLUMNS))
    selection = Selection(ExportOptions(since=since, until=until))
    chosen = choose_runs(source, runs)
    with terminal.reading_progress(source, chosen) as report:
        rows = [
            row
            for row in _rows(chosen, selection, report)
            if task in (None, row["task"]) and column in (None, row["column"])
        ]
    rows = sort_rows(rows, by, descending=sort.startswith("-"))
    rows.sort(key=lambda row: (row["run"], row["task"], row["column"]))
    terminal.print_problems(report.problems, report.problem_count)
    if terminal.printing().as_json:
        terminal.print_json(rows[:limit])
    elif rows:
        _print_table(rows[:limit])
        terminal.print_more(len(rows) - len(rows[:limit]), "rows")
    else:
        _say_why_there_is_none(task, column)


def _rows(runs: Sequence[Run], selection: Selection, report: Report) -> Iterator[dict[str, Any]]:
    from rec_summary.series.runs.slices import slice_table

    for run in runs:
        for part in slice_table(run, selection, report, total=True):
            cells = [each if isinstance(each, list) else each.tolist() for each in part.values()]
            for values in zip(*cells, strict=True):
                row = dict(zip(part, values, strict=True))
                yield {name: cell for name, cell in row.items() if cell == cell}  # not NaN


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    several = {name for name in ("run", "task") if len({row[name] for row in rows}) > 1}
    texts = [name for name in _TEXTS if name in several or name not in ("run", "task")]
    columns = [
        terminal.Column(name, False, [row[name] or _WHOLE.get(name, "") for row in rows])
        for name in texts
    ]
    compared = (_COMPARED,) if any(_COMPARED in row for row in rows) else ()
    for name in (*_SHOWN, *compared):
        head = name.replace("_", " ")
        columns.append(terminal.Column(head, True, [_cell(row, name) for row in rows]))
    terminal.print_table(columns)


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name, math.nan)
    if value != value:
        return ""
    if name in ("examples", "clicks"):
        return f"{value:,.0f}" if value >= _SMALL or value == int(value) else number_of(value)
    digits = ".3%" if name == _COMPARED else ".4f"
    error = row.get(f"{name}_error")
    return f"{value:{digits}}" + (f" ± {error:{digits}}" if error is not None else "")


def _say_why_there_is_none(task: str | None, column: str | None) -> None:
    chosen = [f"the task {task}"] * (task is not None) + [f"the column {column}"] * bool(column)
    of = f" of {' and '.join(chosen)}" if chosen else ""
    terminal.say(
        f"There are no sums by slice{of}. They are recorded with "
        'RecommenderMetrics(slices={"country": ...}) for tasks of kind clicks.'
    )
