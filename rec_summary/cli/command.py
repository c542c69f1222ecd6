"""The command line, and how each sub-command runs: sources, URLs, errors, signals, `-q` and `-v`.

Commands read URLs by ranges. For a destination at a URL, a command writes to a temporary
directory, which is put to the URL afterwards.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import logging
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import terminal
from rec_summary.errors import RecSummaryError, three_part, verbatim
from rec_summary.scrubbing import scrubbed

if TYPE_CHECKING:
    from rec_summary.alerts.last_values import WatchReport
    from rec_summary.alerts.rules import Rule
    from rec_summary.alerts.states import Transition
    from rec_summary.cli.transfer import Upload
    from rec_summary.records.reading.runs import Run
    from rec_summary.records.remote import Url

_EXAMPLES: Final = """\b
Examples:
  rec-summary view records                 records in TensorBoard, live
  rec-summary export records logs          then: tensorboard --logdir logs
  rec-summary lineage records --sort -auc  which run was best
  rec-summary diff RUN RUN                 what differs between two runs
  rec-summary tail records                 new values, live in the terminal
  rec-summary watch records                alerts: NaN, stalls, AUC drops
"""

_READ: Final = ("source", "other")  # parameters that name places of records


class RecordsCommand(click.Command):
    """A sub-command that works on the records in its parameter `source`, and those in `other`."""

    def __init__(
        self,
        *args: Any,
        writes: str | None = None,
        writes_beside: bool = False,
        empty: bool = False,
        fetches: bool = False,
        quiet: str = "Print nothing but errors and problems.",
        failure: int = 1,
        **options: Any,
    ) -> None:
        """Takes what `click.Command` takes, and what a command does with places.

        Args:
            *args: The arguments of `click.Command`.
            writes: The parameter that names the destination. With the parameter `follow`, the
                command writes until it is stopped.
            writes_beside: Whether the destination is the source where none is given.
            empty: Whether the destination must be empty.
            fetches: Whether the command needs local copies of all files of the source.
            quiet: The help of `--quiet`.
            failure: The exit code of an error that is not a mistake in the arguments.
            **options: More arguments of `click.Command`.
        """
        super().__init__(*args, **options)
        self._writes, self._writes_beside = writes, writes_beside
        self._empty, self._fetches, self._failure = empty, fetches, failure
        self.params += [
            click.Option(("-q", "--quiet"), is_flag=True, help=quiet),
            click.Option(("--debug",), is_flag=True, help="Show the traceback of an error."),
            click.Option(("-v", "--verbose"), is_flag=True, help="Print all problems."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, and ends with the exit code that it returns.

        URLs among its parameters become `Url` or temporary directories.
        """
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        debug = ctx.params.pop("debug")
        printed = terminal.Printing(
            *(ctx.params.pop(name, False) for name in terminal.Printing._fields)
        )
        ctx.obj = printed
        with contextlib.ExitStack() as stack:
            # Errors on the way out, such as those of an upload, are messages as well.
            stack.enter_context(_reporting_errors(debug=debug, exit_code=self._failure))
            stack.enter_context(_warnings_shown(verbose=printed.verbose))
            upload = self._localise(ctx.params, stack)
            result = super().invoke(ctx)
            if upload is not None:
                with terminal.progress_shown(doing="putting to") as progress:
                    upload.put(progress)
        ctx.exit(result or 0)

    def _localise(self, params: dict[str, Any], stack: contextlib.ExitStack) -> Upload | None:
        """Replaces URLs among the parameters; returns the upload if the output goes to a URL."""
        names = [*_READ, *filter(None, [self._writes])]
        places = {name: place for name in names if (place := params.get(name)) is not None}
        if not any(":/" in place for place in places.values()):
            return None
        from rec_summary.cli.transfer import Upload, fetch_tree
        from rec_summary.records.remote import SOURCE, Url, path_or_url

        for name, place in places.items():
            params[name] = place = path_or_url(place)
            if isinstance(place, Url) and name in _READ:
                place.connect(SOURCE)
        source = params["source"]
        if self._fetches and isinstance(source, Url):
            params["source"] = _temporary(source, stack)
            with terminal.progress_shown(doing="fetching") as progress:
                fetch_tree(source, params["source"], progress)
        target = params.get(self._writes or "") or (source if self._writes_beside else None)
        if self._writes is None or not isinstance(target, Url):
            return None
        if params.get("follow"):
            raise click.UsageError("--follow needs a local DEST; copy it from there")
        self._check_destination(source, target)
        upload = Upload(_temporary(target, stack), target)
        params[self._writes] = upload.directory
        return upload

    def _check_destination(self, source: str, target: Url) -> None:
        from rec_summary.records.remote import DESTINATION, list_tree, overlap

        if not self._writes_beside and overlap(source, target):
            expected = f"a place that is neither in {source}/ nor around it"
            raise click.UsageError(terminal.one_line(three_part(DESTINATION, target, expected)))
        if self._empty and list_tree(target, DESTINATION):
            expected = "an empty place, or one that does not exist"
            raise click.UsageError(terminal.one_line(three_part(DESTINATION, target, expected)))


GROUPS: Final = {
    "Look at runs": ("view", "tail", "lineage", "plot", "slices", "why", "gate", "watch"),
    "Run a training, and pass its data on": ("control", "note", "export", "metrics", "mcp"),
    "Keep and examine records": (
        *("verify", "repair", "compact", "landscape", "serve", "inspect", "diff"),
    ),
}
"""The commands as `--help` and the documentation list them."""


class _Commands(click.Group):
    command_class = RecordsCommand

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, group by group."""
        room = formatter.width - max(map(len, self.commands)) - 6  # indents and a gap
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(room)) for name in names]
                )


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES
)
@click.version_option(package_name="rec_summary", prog_name="rec-summary")
def cli() -> None:
    """Work with the records that a training on MindSpore has written."""


Find = Callable[[], "list[Run]"]
"""Returns the runs of a source as `find_runs` does; a reader that goes on keeps what it saw."""


def choose_runs(source: str, pattern: str | None, find: Find | None = None) -> list[Run]:
    """Returns the runs of a source whose names match a pattern.

    Args:
        source: A directory or a URL.
        pattern: A pattern for `fnmatch`; None means all.
        find: How the reader of the source finds them; `find_runs` by default.

    Raises:
        NotFoundError: There are no records.
        SourceError: The source cannot be read.
        ArgumentError: No run matches.
    """
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.series.overview.choice import chosen_runs

    return chosen_runs(find_runs(source) if find is None else find(), pattern)


def one_run(source: str) -> Run:
    """Returns the only run of a source.

    Raises:
        NotFoundError: There are no records.
        SourceError: The source cannot be read.
        ArgumentError: There are several runs.
    """
    from rec_summary.errors import ArgumentError

    runs = choose_runs(source, None)
    if len(runs) > 1:
        names = ", ".join(run.path for run in runs[:10])
        expected = f"the record directory of one training; there are {len(runs)}: {names}"
        raise ArgumentError(three_part("RUN", source, expected))
    return runs[0]


def awaited_runs(source: str, pattern: str | None, find: Find) -> list[Run]:
    """Returns the runs of a source whose names match; there may be none yet.

    Prints what the command waits for if there are none, so you notice a mistyped name.

    Args:
        source: A directory that need not exist yet, or a URL.
        pattern: As in `choose_runs`.
        find: As in `choose_runs`.

    Raises:
        NotFoundError: The source is a file, not a directory.
        SourceError: The source cannot be read.
    """
    from rec_summary.errors import ArgumentError
    from rec_summary.records.remote import NotFoundError, Url

    try:
        return choose_runs(source, pattern, find)
    except ArgumentError as error:
        terminal.hint(f"{error} Waiting for such a run.")
        return []
    except NotFoundError:
        is_url = isinstance(source, Url)
        exists = not is_url and os.path.exists(source)
        if exists and not os.path.isdir(source):
            raise
        location = source if is_url else os.path.abspath(source)
        no_records = f"There are no records in {location} yet"
        state = no_records if is_url or exists else f"{location} does not exist yet"
        terminal.hint(f"{state}: waiting for records.")
        return []


def watched(
    command: str, source: str, rules: Sequence[Rule], **how: Any
) -> Iterator[Transition | WatchReport]:
    """Yields what `alerts.watching.watch` yields, except problems: the first of them are printed.

    Args:
        command: The name of the command, for the lines that it prints.
        source: As in `watch`, like the other arguments.
        rules: As in `watch`.
        how: As in `watch`.
    """
    from rec_summary.alerts.watching import watch
    from rec_summary.series.report import Problem

    problems = 0
    for news in watch(source, rules, **how):
        if not isinstance(news, Problem):
            yield news
            continue
        problems += 1
        if problems <= terminal.SHOWN:
            terminal.complain(command, str(news))


def name_unmatched(command: str, report: WatchReport, so_far: str = "") -> bool:
    """Prints which rules no record has matched; returns whether there are any."""
    for rule in report.unmatched:
        terminal.complain(command, f"no record matches the rule {rule.title}{so_far}")
    return bool(report.unmatched)


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """Gives an event that Ctrl-C or SIGTERM sets; the second one interrupts at once."""
    stop = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        # Not here: it would wait for ever for a lock of `stop` that the interrupted main thread may
        # hold. Nor in a `Thread`, which has such locks itself.
        _thread.start_new_thread(stop.set, ())
        signal.signal(number, before[number])

    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _reporting_errors(*, debug: bool, exit_code: int) -> Iterator[None]:
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
            lines = traceback.format_exception(error)
            click.echo(scrubbed("".join(lines)), err=True, nl=False)
        message = error if isinstance(error, click.ClickException) else _message(error)
        if not isinstance(message, click.UsageError):
            vars(message).update(exit_code=exit_code)
        if message is error:
            raise
        raise message from error


def _message(error: Exception) -> click.ClickException:
    from rec_summary.errors import ArgumentError
    from rec_summary.records.remote import NotFoundError

    if isinstance(error, ArgumentError | NotFoundError):
        return click.UsageError(terminal.with_urls(str(error)))
    if isinstance(error, RecSummaryError | ImportError):  # a package that is not installed
        return click.ClickException(terminal.with_urls(str(error)))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        expected = "a disk that works and has free space"
        received = verbatim(f"{error.filename or 'standard output'}: {error.strerror}")
        return click.ClickException(three_part("the destination", received, expected))
    what = f"{type(error).__name__}: {error}"
    return click.ClickException(f"{what} (this is a bug; --debug shows where)")


def _temporary(url: Url, stack: contextlib.ExitStack) -> str:
    """Makes a temporary directory that has the URL's last name, and is shown as the URL."""
    path = os.path.join(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="rec_summary-")), url.name
    )
    os.mkdir(path)
    terminal.show_as_url(path, url)
    return path


@contextlib.contextmanager
def _warnings_shown(*, verbose: bool) -> Iterator[None]:
    """Prints warnings of the package, each in one line without control characters."""
    logger = logging.getLogger("rec_summary")
    handler, level, propagate = _ToError(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _ToError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, ValueError):
            terminal.echo(scrubbed(record.getMessage()), err=True)
