"""The one progress bar of the commands."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

from rec_summary.cli.common import one_line, size_of

Progress = Callable[[str, int, int], None]
"""Takes the name of what is being worked on, how much is done, and how much there is."""


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
