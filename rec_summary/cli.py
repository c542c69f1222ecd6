"""The `rec-summary` command: thin, one function for each sub-command.

Only click is loaded here. What a sub-command needs is imported when it runs, so that
`rec-summary --help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import click

from rec_summary.errors import RecSummaryError, SourceError

if TYPE_CHECKING:
    from rec_summary.export.report import ExportReport
    from rec_summary.export.tensorboard import Progress

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it
_TERMINATED: Final = 143
_SHOWN: Final = 20  # problems and notes that are printed; the rest is counted

_EXAMPLES: Final = """\b
Examples:
  rec-summary export records logs          then: tensorboard --logdir logs
  rec-summary export records logs --runs 'ctr/*' --tags '^loss'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: The arguments after the program's name; those of the process by default.

    Returns:
        The exit code: 0 if the work was done, even if damaged records were skipped; 1 if
        it failed; 2 for a mistake in the arguments; 130 after Ctrl-C.
    """
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = cli.main(arguments, prog_name="rec-summary", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("Interrupted; event files that were not complete are discarded.", err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    # An exception, so that temporary files are removed on the way out.
    sys.exit(_TERMINATED)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(package_name="rec_summary", prog_name="rec-summary")
def cli() -> None:
    """Work with the records that a training on MindSpore has written."""


@cli.command(epilog=_EXAMPLES)
@click.argument("source", metavar="SRC", type=click.Path())
@click.argument("logdir", metavar="LOGDIR", type=click.Path())
@click.option("--tags", metavar="REGEX", help="Export only tags in which REGEX is found.")
@click.option(
    "--runs", metavar="GLOB", help="Export only runs whose name matches GLOB; * also matches /."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and problems.")
@click.option("--debug", is_flag=True, help="Show where in the program an error arose.")
def export(
    source: str, logdir: str, tags: str | None, runs: str | None, quiet: bool, debug: bool
) -> None:
    """Turn MindSpore records into TensorBoard event files.

    SRC is a record directory or a tree of them; each becomes a run in LOGDIR. Damaged
    records are skipped and listed. Exporting again replaces what was exported before, and
    never touches event files of others.
    """
    with _reporting_errors(debug=debug):
        from rec_summary.export.tensorboard import ArgumentError, export_tensorboard

        try:
            with _progress(quiet=quiet) as progress:
                report = export_tensorboard(source, logdir, tags=tags, runs=runs, progress=progress)
        except ArgumentError as error:
            raise click.UsageError(str(error)) from error
        except SourceError as error:
            if not os.path.isdir(source):  # a mistake in the argument, not in the records
                raise click.UsageError(str(error)) from error
            raise
    if not quiet:
        _print_summary(report, source, logdir)
    _print_some([str(problem) for problem in report.problems], report.problem_count)


@contextlib.contextmanager
def _reporting_errors(*, debug: bool) -> Iterator[None]:
    """Turns exceptions into messages for click to show, unless `debug` wants tracebacks."""
    try:
        yield
    except click.ClickException as error:
        if debug:
            traceback.print_exception(error)
        raise
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        if isinstance(error, RecSummaryError):
            raise click.ClickException(str(error)) from error
        what = f"{type(error).__name__}: {error}"
        raise click.ClickException(
            f"{what} (this should not happen; --debug shows more)"
        ) from error


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress | None]:
    """Gives what shows progress: a bar on a terminal, else a line for each run."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _PlainProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def show(run: str, done: int, total: int) -> None:
            bar.update(task, description=_one_line(run), completed=done, total=total)

        yield show


class _PlainProgress:
    """Prints a line when a run begins."""

    def __init__(self) -> None:
        self._run: str | None = None

    def __call__(self, run: str, done: int, total: int) -> None:
        if run != self._run:
            self._run = run
            progress = f"{_size(done)} of {_size(total)} read"
            click.echo(f"exporting {_one_line(run)} ({progress})", err=True)


def _print_summary(report: ExportReport, source: str, logdir: str) -> None:
    records = sum(report.records.values())
    click.echo(
        f"Exported {_one_line(source)} to {_one_line(logdir)}: {_count(len(report.runs), 'run')}, "
        f"{_count(records, 'record')} in {_count(report.files, 'file')}, "
        f"{_size(report.bytes_read)} read, {_size(report.bytes_written)} written."
    )
    for what, kinds in (("exported", report.exported), ("not exported yet", report.unknown)):
        if kinds:
            click.echo(f"  {what}: " + ", ".join(f"{n:,} {_kind(k)}" for k, n in kinds.items()))
    if report.left_out:
        click.echo(f"  left out by --tags: {_count(report.left_out, 'value')}")
    if report.repeated:
        click.echo(
            f"  recorded again at the same step, of which the last was kept: "
            f"{_count(report.repeated, 'value')}"
        )
    if report.wall_times_replaced:
        click.echo(
            "  without a valid time, of which that of the record before was taken: "
            f"{_count(report.wall_times_replaced, 'record')}"
        )
    for note in report.notes[:_SHOWN]:
        click.echo(f"  note: {note}")
    if len(report.notes) > _SHOWN:
        click.echo(f"  and {len(report.notes) - _SHOWN} more notes")
    if report.replaced:
        click.echo(
            f"  {_count(len(report.replaced), 'run')} replaced: restart a TensorBoard that is "
            "open, or it may go on showing the old event files"
        )


def _print_some(problems: Sequence[str], count: int) -> None:
    if not count:
        return
    click.echo(f"{_count(count, 'problem')}:", err=True)
    for problem in problems[:_SHOWN]:
        click.echo(f"  {_one_line(problem)}", err=True)
    if count > _SHOWN:
        click.echo(f"  and {count - _SHOWN:,} more", err=True)


def _one_line(text: str) -> str:
    from rec_summary.export.words import printable

    return printable(text)


def _kind(field: str) -> str:
    return field.removesuffix("_value").removesuffix("_def").replace("_", " ")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _size(nbytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if nbytes < 1000 or unit == "GB":
            break
        nbytes /= 1000
    return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
