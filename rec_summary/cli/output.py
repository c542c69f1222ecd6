"""What the sub-commands print: lines, tables, JSON, problems and progress."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDE: Final = 10_000
SHOWN: Final = 20  # problems and notes that are printed; others are only counted
VERBOSE: Final = "rec_summary.verbose"  # the key of -v in click's context

Progress = Callable[[str, int, int], None]
"""Takes the name of what is being worked on, how much is done, and how much there is."""

_urls: dict[str, str] = {}  # by the temporary directories that stand for them


def one_line(text: str) -> str:
    """Returns text for one line of a terminal, with URLs in place of temporary directories."""
    from rec_summary.series.text import printable

    return printable(called(text))


def called(text: str) -> str:
    """Returns text with URLs in place of the temporary directories that stand for them."""
    for path, url in _urls.items():
        text = text.replace(path, url)
    return text


def stand_for(path: str, url: str) -> None:
    """Makes `called` show a URL in the place of a temporary directory."""
    _urls[path] = url


def count_of(number: int, noun: str) -> str:
    """Returns a number and a noun, in the plural if need be."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def counts_of(numbers: Mapping[str, int]) -> str:
    """Returns how many there are of each kind of record or value, as a list in a sentence."""
    names = {kind: kind.removesuffix("_value").removesuffix("_def") for kind in numbers}
    return ", ".join(f"{n:,} {names[kind].replace('_', ' ')}" for kind, n in numbers.items())


def size_of(nbytes: float) -> str:
    """Returns a size with its unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if nbytes < 1000 or unit == "GB":
            break
        nbytes /= 1000
    return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"


def number_of(value: object) -> str:
    """Returns a value for a cell of a table: a float in short, nothing for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def console() -> Console:
    """Returns the console of tables; where it is not a terminal, tables are as wide as needed."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=False)


def table_of(
    columns: Mapping[str, bool], rows: Iterable[Iterable[str | Text]], *, fold: bool = True
) -> Table:
    """Returns a table for `console`.

    Args:
        columns: Whether each column is aligned to the right, by its head.
        rows: The cells of each row; a string may come from records.
        fold: Whether long cells are folded to several lines; else they are cut.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for name, right in columns.items():
        table.add_column(
            Text(one_line(name)),
            justify="right" if right else "left",
            overflow="fold" if fold else "ellipsis",
            no_wrap=not fold,
        )
    for row in rows:
        table.add_row(*(Text(one_line(cell)) if isinstance(cell, str) else cell for cell in row))
    return table


def print_json(found: object, *, indent: int | None = 2) -> None:
    """Prints a value as JSON; `json_value` says how.

    Args:
        found: The value.
        indent: Spaces of each level; None for one line.
    """
    from rec_summary.tables.formats import json_value

    click.echo(called(json.dumps(json_value(found), indent=indent, allow_nan=False)))


def print_first(lines: Sequence[str], more: str) -> None:
    """Prints the first lines, and how many more there are of what `more` names."""
    for line in lines[:SHOWN]:
        click.echo(line)
    if len(lines) > SHOWN:
        click.echo(f"  and {len(lines) - SHOWN:,} more {more}")


def print_problems(problems: Sequence[object], count: int) -> None:
    """Prints the first problems to standard error, and how many there are; all of them with -v."""
    if not count:
        return
    click.echo(f"{count_of(count, 'problem')}:", err=True)
    context = click.get_current_context(silent=True)
    verbose = context is not None and context.meta.get(VERBOSE)
    printed = problems if verbose else problems[:SHOWN]
    for problem in printed:
        click.echo(f"  {one_line(str(problem))}", err=True)
    if count > len(printed):
        click.echo(f"  and {count - len(printed):,} more", err=True)


@contextlib.contextmanager
def progress_shown(
    *, quiet: bool, doing: str | None = None, counted: str | None = None
) -> Iterator[Progress]:
    """Gives a function that shows progress: as a bar on a terminal, else in lines.

    Args:
        quiet: Whether to show nothing.
        doing: What a line says when the next name begins, in bytes; None for no such lines.
        counted: What is counted instead of bytes, such as `points`; a line for each tenth.
    """
    if quiet or not (sys.stderr.isatty() or doing or counted):
        yield lambda name, done, total: None
        return
    if not sys.stderr.isatty():
        yield _Lines(doing, counted)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}", markup=False),
        *(BarColumn(), MofNCompleteColumn() if counted else DownloadColumn()),
        *(TextColumn("{task.fields[rate]}"), Remaining()),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", rate="")

        def show(name: str, done: int, total: int) -> None:
            bar.update(task, description=one_line(name), completed=done, total=total)
            speed = bar.tasks[0].speed
            if speed:
                rate = f"{speed:.3g} {counted}" if counted else size_of(speed)
                bar.update(task, rate=f"{rate}/s")

        yield show


@contextlib.contextmanager
def reading_progress(total: int, *, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Gives a function that takes a name and the bytes read since; a terminal shows the sum."""
    done = 0
    with progress_shown(quiet=quiet) as show:

        def advance(name: str, nbytes: int) -> None:
            nonlocal done
            done += nbytes
            show(name, done, max(total, done))

        yield advance


class _Lines:
    """Prints a line for each name, or for each tenth of what is counted."""

    def __init__(self, doing: str | None, counted: str | None) -> None:
        self._doing = doing
        self._counted = counted
        self._printed: str | int | None = None

    def __call__(self, name: str, done: int, total: int) -> None:
        now = done * 10 // max(total, 1) if self._counted else name
        if now == self._printed:
            return
        self._printed = now
        if self._counted:
            text = f"{one_line(name)}: {done:,} of {total:,} {self._counted}"
        else:
            text = f"{self._doing} {one_line(name)} ({size_of(done)} of {size_of(total)} read)"
        click.echo(text, err=True)
