"""What the sub-commands share: errors as messages, the choice of runs, and printing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.errors import RecSummaryError, SourceError

if TYPE_CHECKING:
    from rich.console import Console

    from rec_summary.records.reading.runs import Run

_WIDE: Final = 10_000
SHOWN: Final = 20  # problems and notes that are printed; others are only counted
VERBOSE: Final = "rec_summary.verbose"  # the key of -v in click's context

_urls: dict[str, str] = {}  # by the temporary directories that stand for them


@contextlib.contextmanager
def reporting_errors(*, debug: bool, exit_code: int) -> Iterator[None]:
    """Turns exceptions into messages that click shows.

    Args:
        debug: Whether to print the tracebacks as well.
        exit_code: The exit code of all errors but mistakes in the arguments.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the output is gone; click ends quietly
    except Exception as error:
        if debug:
            _print_traceback(error)
        message = error if isinstance(error, click.ClickException) else _message(error)
        if not isinstance(message, click.UsageError):
            vars(message).update(exit_code=exit_code)
        if message is error:
            raise
        raise message from error


def _message(error: Exception) -> click.ClickException:
    from rec_summary.records.remote import NoSuchPlace, scrubbed
    from rec_summary.series.options import ArgumentError

    if isinstance(error, NoSuchPlace):
        return click.UsageError(one_line(str(error)))
    if isinstance(error, ArgumentError):
        return click.UsageError(called(str(error)))
    if isinstance(error, RecSummaryError):
        return click.ClickException(called(str(error)))
    what = scrubbed(f"{type(error).__name__}: {error}")
    return click.ClickException(f"{what} (this is a bug; --debug shows where)")


def _print_traceback(error: BaseException) -> None:
    from rec_summary.records.remote import scrubbed

    click.echo(scrubbed("".join(traceback.format_exception(error))), err=True, nl=False)


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """Gives an event that Ctrl-C or SIGTERM sets; the second one interrupts at once."""
    stop = threading.Event()
    reading, writing = os.pipe()

    def ask(number: int, _frame: FrameType | None) -> None:
        # Not stop.set(): it would wait for ever for a lock of `stop` that the interrupted
        # main thread may hold.
        os.write(writing, b"x")
        signal.signal(number, before[number])

    def set_when_asked() -> None:
        if os.read(reading, 1):
            stop.set()

    setter = threading.Thread(target=set_when_asked, daemon=True)
    setter.start()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writing)
        setter.join()
        os.close(reading)


def choose_runs(source: str, pattern: str | None) -> list[Run]:
    """Returns the runs of a source whose names match a pattern; if none does, a usage error."""
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.records.remote import NoSuchPlace, Url
    from rec_summary.series.options import some_matching_runs

    try:
        return some_matching_runs(find_runs(source), pattern)
    except SourceError as error:
        if isinstance(source, Url) and not isinstance(error, NoSuchPlace):
            raise  # the store cannot be reached
        raise click.UsageError(str(error)) from error


def print_waiting(source: str, *, quiet: bool) -> None:
    """Prints that there are no records yet, and where the command waits for them.

    So you notice a mistyped name.

    Args:
        source: A directory that need not exist yet, or a URL.
        quiet: Whether to print nothing.

    Raises:
        click.UsageError: The source is a file, not a directory.
    """
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.records.remote import NoSuchPlace, Url

    try:
        find_runs(source)
    except SourceError as error:
        is_url, exists = isinstance(source, Url), os.path.exists(source)
        if is_url and not isinstance(error, NoSuchPlace):
            raise  # the store cannot be reached
        if exists and not is_url and not os.path.isdir(source):
            raise click.UsageError(str(error)) from error
        if not quiet:
            place = one_line(source if is_url else os.path.abspath(source))
            no_records = f"There are no records in {place} yet"
            known = no_records if is_url or exists else f"{place} does not exist yet"
            click.echo(f"{known}: waiting for records.", err=True)


def console() -> Console:
    """Returns the console of tables; where it is not a terminal, tables are as wide as needed."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=False)


def print_problems(problems: Sequence[object], count: int) -> None:
    """Prints the first problems to standard error, and how many there are."""
    if not count:
        return
    click.echo(f"{count_of(count, 'problem')}:", err=True)
    printed = problems if is_verbose() else problems[:SHOWN]
    for problem in printed:
        click.echo(f"  {one_line(str(problem))}", err=True)
    if count > len(printed):
        click.echo(f"  and {count - len(printed):,} more", err=True)


def print_json(found: object, *, indent: int | None = 2) -> None:
    """Prints a value as JSON; a float that is not finite is a string, a dataclass is an object.

    Args:
        found: The value.
        indent: Spaces of each level; None for one line.
    """
    click.echo(called(json.dumps(_for_json(found), indent=indent, allow_nan=False)))


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
    """Whether the current command was called with `-v`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(VERBOSE))


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


def is_wrong_source(source: str, error: SourceError) -> bool:
    """Whether the argument is wrong: nothing is there. Else the source could not be read."""
    from rec_summary.records.remote import NoSuchPlace, Url

    if isinstance(source, Url):
        return isinstance(error, NoSuchPlace)
    return not os.path.isdir(source)


def count_of(number: int, noun: str) -> str:
    """Returns a number and a noun, in the plural if need be."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size_of(nbytes: float) -> str:
    """Returns a size with its unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if nbytes < 1000 or unit == "GB":
            break
        nbytes /= 1000
    return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"
