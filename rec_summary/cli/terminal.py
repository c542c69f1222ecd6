"""What the sub-commands print: lines, tables, JSON, problems and progress.

How much a command prints is in click's context: `RecordsCommand` puts it there, and everything here
follows it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from rec_summary.cli.text import count_of, size_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rec_summary.records.reading.runs import Run
    from rec_summary.series.report import Progress, Report

_POLL_SECS: Final = 0.1  # the bar of rich is drawn as often
_WIDE: Final = 10_000
_LONGEST_NAME: Final = 30  # beside a progress bar
_PADDING: Final = 2  # of each column
_LEAST_NAME: Final = 16  # characters of a line of a name
SHOWN: Final = 20  # problems and notes that are printed; others are only counted

_urls: dict[str, str] = {}  # by the temporary directories that stand for them


class Printing(NamedTuple):
    """How much a command prints, and in which form: its options of these names."""

    quiet: bool = False
    verbose: bool = False
    wide: bool = False
    as_json: bool = False


def printing() -> Printing:
    """Returns how the command that runs in this thread prints."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Printing)) or Printing()


def echo(text: str = "", *, err: bool = False, bold: bool = False) -> None:
    """Prints one line; names in it may come from the records of a stranger."""
    line = one_line(text)
    click.echo(click.style(line, bold=True) if bold else line, err=err)


def say(text: str) -> None:
    """Prints a line about what was done, unless JSON or nothing is to be printed."""
    if not (printing().quiet or printing().as_json):
        echo(text)


def hint(text: str) -> None:
    """Prints a line for the user to standard error, unless nothing is to be printed."""
    if not printing().quiet:
        echo(text, err=True)


def complain(command: str, text: str) -> None:
    """Prints to standard error what a command could not do while it goes on."""
    echo(f"rec-summary {command}: {text}", err=True)


def one_line(text: str) -> str:
    """Returns text for one line of a terminal, with URLs in place of temporary directories."""
    from rec_summary.series.text import printable

    return printable(with_urls(text))


def with_urls(text: str) -> str:
    """Returns text with URLs in place of the temporary directories that stand for them."""
    for path, url in _urls.items():
        text = text.replace(path, url)
    return text


def show_as_url(path: str, url: str) -> None:
    """Makes `with_urls` show a URL in the place of a temporary directory."""
    _urls[path] = url


def console() -> Console:
    """Returns the console of tables; where it is not a terminal, tables are as wide as needed."""
    from rich.console import Console

    fits = sys.stdout.isatty() and not printing().wide
    return Console(width=None if fits else _WIDE, highlight=False, soft_wrap=False)


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        head: Its name.
        is_number: Whether it is aligned to the right, and each of its cells has one line.
        cells: Its cells; a string may come from records.
    """

    head: str
    is_number: bool
    cells: Sequence[str | Text]


def columns_of(
    heads: Sequence[str], rows: Iterable[Sequence[str | Text]], names: Container[str]
) -> list[Column]:
    """Returns the columns of rows; those whose heads are in `names` are not numbers."""
    cells = list(zip(*rows, strict=True)) or [()] * len(heads)
    return [Column(head, head not in names, c) for head, c in zip(heads, cells, strict=True)]


def print_table(columns: Sequence[Column], *, piped: int | None = None) -> list[str]:
    """Prints a table that fits the terminal; returns the names of columns that do not fit.

    Args:
        columns: The columns, the most important first.
        piped: The width in characters where the output is not a terminal: columns that do not fit
            are left out. No cell is cut, so that `grep` finds whole names; a line with one that is
            longer than half of the width is wider. None for all columns.
    """
    out, missing = console(), list[str]()
    if piped is not None and not printing().wide and not sys.stdout.isatty():
        _, missing = fitted_table(columns, piped)
        columns = columns[: len(columns) - len(missing)]
    table, left_out = fitted_table(columns, out.size.width)
    out.print(table)
    return left_out + missing


def fitted_table(columns: Sequence[Column], room: int) -> tuple[Table, list[str]]:
    """Returns a table, and the names of the columns that do not fit.

    Long names have several lines, those of the first column if half of the width is not enough.
    Columns at the end are left out; numbers stay whole.

    Args:
        columns: The columns, the most important first.
        room: How wide the table may be.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    cells = list[list[Text]]()
    for column in columns:
        texts = [Text(one_line(c)) if isinstance(c, str) else c for c in column.cells]
        head = Text(one_line(column.head))
        content = max((cell_len(text.plain) for text in texts), default=0)
        least = _LEAST_NAME if cells else room // 2
        is_whole = column.is_number and content > least
        size = max(content, cell_len(head.plain))
        size = size if is_whole else min(size, least)
        if cells and size + _PADDING > room:
            break
        room -= size + _PADDING
        cells.append(texts)
        table.add_column(
            head, justify="right" if column.is_number else "left", overflow="fold", no_wrap=is_whole
        )
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    return table, [one_line(column.head) for column in columns[len(cells) :]]


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Prints a value as JSON; `json_value` says how.

    Args:
        value: The value.
        indent: Spaces of each level; None for one line.
    """
    from rec_summary.tables.formats import json_value

    click.echo(with_urls(json.dumps(json_value(value), indent=indent, allow_nan=False)))


def print_first(lines: Sequence[str], more: str, most: int = SHOWN) -> None:
    """Prints the first lines, and how many more there are; `more` names them, such as `notes`."""
    for line in lines[:most]:
        echo(line)
    print_more(len(lines) - most, more)


def print_more(count: int, what: str) -> None:
    """Prints how many more there are of something, if there are any."""
    if count > 0:
        echo(f"  and {count:,} more {what}")


def print_problems(problems: Sequence[object], count: int) -> None:
    """Prints the first problems to standard error, and how many there are; all of them with -v."""
    if not count:
        return
    echo(f"{count_of(count, 'problem')}:", err=True)
    printed = problems if printing().verbose else problems[:SHOWN]
    for problem in printed:
        echo(f"  {problem}", err=True)
    if count > len(printed):
        how = "" if printing().verbose else " (-v lists them)"
        echo(f"  and {count - len(printed):,} more{how}", err=True)


@contextlib.contextmanager
def progress_shown(*, doing: str | None = None, counted: str | None = None) -> Iterator[Progress]:
    """Gives a function that shows progress: as a bar on a terminal, else a line for each tenth.

    Standard error gets both. There are no lines beside JSON: it is for a program. With a total of
    0, what is counted has no end, and there is a line for each doubling.

    Args:
        doing: What a line says when a name begins, in bytes; None for no such lines.
        counted: What is counted instead of bytes, such as `points`.
    """
    in_lines = (doing or counted) and not printing().as_json
    if printing().quiet or not (sys.stderr.isatty() or in_lines):
        yield lambda name, done, total: None
        return
    if not sys.stderr.isatty():
        yield _in_lines(doing, counted)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.table import Column as BarCell

    cell = BarCell(no_wrap=True, overflow="ellipsis", max_width=_LONGEST_NAME)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=cell),
        *(BarColumn(), MofNCompleteColumn() if counted else DownloadColumn()),
        *(TextColumn("{task.fields[rate]}"), Remaining()),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")

        def show(name: str, done: int, total: int) -> None:
            bar.update(task, description=one_line(name), completed=done, total=total or None)
            speed = bar.tasks[0].speed
            if speed:
                rate = f"{speed:.3g} {counted}" if counted else size_of(speed)
                bar.update(task, rate=f"{rate}/s")

        yield show


def _in_lines(doing: str | None, counted: str | None) -> Progress:
    """Returns a function that prints a line for each tenth; with `doing`, one for each name."""
    printed, tenth = "", -1

    def show(name: str, done: int, total: int) -> None:
        nonlocal printed, tenth
        reached = done * 10 // total if total else done.bit_length()
        if reached == tenth or (doing and name in (printed, "")):  # it ends without a name
            return
        printed, tenth = name, reached
        if counted:
            end = f" of {total:,}" if total else ""
            text = f"{name}: {done:,}{end} {counted}"
        else:
            text = f"{doing} {name} ({size_of(done)} of {size_of(total)} read)"
        echo(text, err=True)

    return show


@contextlib.contextmanager
def reading_progress(name: str, runs: Iterable[Run]) -> Iterator[Report]:
    """Gives an empty report, and shows how many bytes of some runs it counts.

    Args:
        name: What is read.
        runs: The runs.
    """
    from rec_summary.series.report import Report

    if printing().quiet or not sys.stderr.isatty():
        yield Report()
        return
    report, ended, total = Report(), threading.Event(), sum(run.nbytes for run in runs)

    def poll() -> None:
        while not ended.wait(_POLL_SECS):
            show(name, report.bytes_read, max(total, report.bytes_read))

    with progress_shown() as show:
        thread = threading.Thread(target=poll, name="rec_summary-progress", daemon=True)
        thread.start()
        try:
            yield report
        finally:
            ended.set()
            thread.join()
