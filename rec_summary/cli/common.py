"""What the sub-commands share: errors as messages, progress, and how things are worded."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.errors import RecSummaryError, SourceError

if TYPE_CHECKING:
    from rich.console import Console

    from rec_summary.records.reading.runs import Run
    from rec_summary.tensorboard.event_files.export import Progress

_WIDE: Final = 10_000
SHOWN: Final = 20  # problems and notes that are printed; the rest is counted
VERBOSE: Final = "rec_summary.verbose"  # in click's context: whether -v was given

# Errors whose tracebacks were printed: contexts of `reporting_errors` can be nested.
_traced: weakref.WeakSet[BaseException] = weakref.WeakSet()


@contextlib.contextmanager
def reporting_errors(*, debug: bool) -> Iterator[None]:
    """Turns exceptions into messages for click to show, unless `debug` wants tracebacks."""
    try:
        yield
    except click.ClickException as error:
        if debug and error not in _traced:
            _traced.add(error)
            _print_traceback(error)
        raise
    except BrokenPipeError:
        raise  # nobody reads any more: click ends quietly
    except Exception as error:
        from rec_summary.records.remote.places import NoSuchPlace, scrubbed

        if debug:
            _print_traceback(error)
        if isinstance(error, NoSuchPlace):
            told: click.ClickException = click.UsageError(one_line(str(error)))
        elif isinstance(error, RecSummaryError):
            told = click.ClickException(called(str(error)))
        else:
            what = scrubbed(f"{type(error).__name__}: {error}")
            told = click.ClickException(f"{what} (this should not happen; --debug shows more)")
        _traced.add(told)
        raise told from error


def _print_traceback(error: BaseException) -> None:
    from rec_summary.records.remote.places import scrubbed

    click.echo(scrubbed("".join(traceback.format_exception(error))), err=True, nl=False)


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """Gives what is set by Ctrl-C or SIGTERM; a second Ctrl-C interrupts at once."""
    stop = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[number])

    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def progress_shown(*, quiet: bool, doing: str = "exporting") -> Iterator[Progress | None]:
    """Gives what shows progress: a bar on a terminal, else a line for each run."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _PlainProgress(doing)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.progress import TransferSpeedColumn as Rate
    from rich.theme import Theme

    columns = (
        TextColumn("{task.description}", markup=False),
        *(BarColumn(), DownloadColumn(), Rate(), Remaining()),
    )
    # Rich's red for the rate looks like an alarm.
    calm = Console(stderr=True, theme=Theme({"progress.data.speed": "default"}))
    with Progress(*columns, console=calm, transient=True) as bar:
        task = bar.add_task("")

        def show(run: str, done: int, total: int) -> None:
            bar.update(task, description=one_line(run), completed=done, total=total)

        yield show


@contextlib.contextmanager
def progress_of(what: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Gives what shows how many of something are done: a bar, or a line for each tenth."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _Tenths(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}", markup=False),
        *(BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), Remaining()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", rate="")

        def show(name: str, done: int, total: int) -> None:
            bar.update(task, description=one_line(name), completed=done, total=total)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:.3g} {what}/s" if speed else "")

        yield show


class _Tenths:
    """Prints a line for each tenth of a whole."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._printed: tuple[str, int] | None = None

    def __call__(self, name: str, done: int, total: int) -> None:
        now = (name, done * 10 // max(total, 1))
        if now != self._printed:
            self._printed = now
            click.echo(f"{one_line(name)}: {done:,} of {total:,} {self._what}", err=True)


@contextlib.contextmanager
def reading_progress(
    runs: Sequence[Run], *, quiet: bool = False
) -> Iterator[Callable[[Run], Callable[[int], None]]]:
    """Gives what makes, for a run, a callback that shows how much was read; on terminals only."""
    total, done = sum(run.nbytes for run in runs), 0
    with progress_shown(quiet=quiet or not sys.stderr.isatty()) as show:

        def for_run(run: Run) -> Callable[[int], None]:
            def advance(nbytes: int) -> None:
                nonlocal done
                done += nbytes
                if show is not None:
                    show(run.name, done, max(total, done))

            return advance

        yield for_run


@contextlib.contextmanager
def bytes_progress(
    what: str, total: int, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Gives a callback that shows how many bytes were read; on terminals only."""
    done = 0
    with progress_shown(quiet=quiet or not sys.stderr.isatty()) as show:

        def advance(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if show is not None:
                show(what, done, max(total, done))

        yield advance


def choose_runs(source: str, pattern: str | None) -> list[Run]:
    """Returns the runs of a source whose names match a pattern; tells mistakes as such."""
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.series.options import ArgumentError, some_matching_runs

    try:
        return some_matching_runs(find_runs(source), pattern)
    except (ArgumentError, SourceError) as error:
        raise click.UsageError(str(error)) from error


def console() -> Console:
    """Returns where tables are printed: as wide as they need to be if that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=False)


class _PlainProgress:
    """Prints a line when a run begins."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._run: str | None = None

    def __call__(self, run: str, done: int, total: int) -> None:
        if run != self._run:
            self._run = run
            progress = f"{size_of(done)} of {size_of(total)} read"
            click.echo(f"{self._doing} {one_line(run)} ({progress})", err=True)


def print_some(problems: Sequence[str], count: int) -> None:
    """Prints the first problems, and how many there are."""
    if not count:
        return
    click.echo(f"{count_of(count, 'problem')}:", err=True)
    told = problems if is_verbose() else problems[:SHOWN]
    for problem in told:
        click.echo(f"  {one_line(problem)}", err=True)
    if count > len(told):
        click.echo(f"  and {count - len(told):,} more", err=True)


def print_json(found: object) -> None:
    """Prints a value as JSON: what is no finite number is a string, an object its fields."""
    click.echo(called(json.dumps(_for_json(found), indent=2, allow_nan=False)))


def print_json_line(found: object) -> None:
    """Prints a value as `print_json` does, in one line."""
    click.echo(called(json.dumps(_for_json(found), allow_nan=False)))


def _for_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(name): _for_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def is_verbose() -> bool:
    """Whether the command at work was called with `-v`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(VERBOSE))


def one_line(text: str) -> str:
    """Returns text for a line of a terminal, with URLs for their local copies."""
    from rec_summary.series.words import printable

    return printable(called(text))


def called(text: str) -> str:
    """Returns text with URLs for their local copies."""
    from rec_summary.records.remote.places import called as with_urls

    return with_urls(text)


def count_of(number: int, noun: str) -> str:
    """Returns a number and what it counts."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size_of(nbytes: float) -> str:
    """Returns a size for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if nbytes < 1000 or unit == "GB":
            break
        nbytes /= 1000
    return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"
