"""What every sub-command has: sources and destinations that may be URLs, `-q`, `--debug` and `-v`.

Commands read URLs by ranges. For a destination at a URL, a command writes to a temporary
directory, which is put to the URL afterwards; with `--follow`, every 15 seconds as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from rec_summary.cli.common import VERBOSE, one_line, reporting_errors, stand_for
from rec_summary.cli.progress import progress_shown

if TYPE_CHECKING:
    from rec_summary.records.remote import Upload, Url

Params = Mapping[str, Any]


class RecordsCommand(click.Command):
    """A sub-command that works on records."""

    def __init__(
        self,
        *args: Any,
        reads: str = "source",
        writes: str | None = None,
        writes_beside: bool = False,
        empty: bool = False,
        fetches: bool = False,
        follows: Callable[[Params], bool] = lambda params: False,
        quiet: str = "Print nothing but errors and problems.",
        failure: int = 1,
        **options: Any,
    ) -> None:
        """Takes what `click.Command` takes, and which parameters name places.

        Args:
            reads: The parameter that names the source.
            writes: The parameter that names the destination.
            writes_beside: Whether the destination is the source where none is given.
            empty: Whether the destination must be empty.
            fetches: Whether the command needs local copies of all files of the source.
            follows: Whether the command writes until it is stopped.
            quiet: The help of `--quiet`.
            failure: The exit code of an error that is not a mistake in the arguments.
        """
        super().__init__(*args, **options)
        self._reads, self._writes, self._writes_beside = reads, writes, writes_beside
        self._empty, self._fetches, self._follows = empty, fetches, follows
        self._failure = failure
        self.params += [
            click.Option(("-q", "--quiet"), is_flag=True, help=quiet),
            click.Option(("--debug",), is_flag=True, help="Show the traceback of an error."),
            click.Option(("-v", "--verbose"), is_flag=True, help="Print all problems."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; URLs among its parameters become `Url` or temporary directories."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        verbose = ctx.meta[VERBOSE] = ctx.params.pop("verbose")
        with contextlib.ExitStack() as stack:
            # Errors on the way out, such as those of an upload, are messages as well.
            debug = ctx.params.pop("debug")
            stack.enter_context(reporting_errors(debug=debug, exit_code=self._failure))
            stack.enter_context(_warnings_shown(verbose=verbose))
            upload = self._localise(ctx.params, stack)
            result = super().invoke(ctx)
            if upload is not None:
                with progress_shown(quiet=_is_quiet(ctx.params), doing="putting to") as progress:
                    upload.put(progress)
            return result

    def _localise(self, params: dict[str, Any], stack: contextlib.ExitStack) -> Upload | None:
        """Replaces URLs among the parameters; returns what puts the output to its URL."""
        source = params[self._reads]
        writes = params[self._writes] if self._writes is not None else None
        if not any("://" in place for place in (source, writes) if place is not None):
            return None
        from rec_summary.records.remote import SOURCE, Upload, Url, fetch_tree, to_place

        place = to_place(source)
        if isinstance(place, Url):
            place.connect(SOURCE)
        params[self._reads] = place
        if self._fetches and isinstance(place, Url):
            params[self._reads] = _temporary(place, stack)
            with progress_shown(quiet=_is_quiet(params), doing="fetching") as progress:
                fetch_tree(place, params[self._reads], progress)
        target = writes if writes is None else to_place(writes)
        if target is None and self._writes_beside:
            target = place
        if self._writes is None or not isinstance(target, Url):
            if writes is not None and self._writes is not None:
                params[self._writes] = target
            return None
        self._check_destination(place, target)
        upload = Upload(_temporary(target, stack), target)
        params[self._writes] = upload.directory
        if self._follows(params):
            stack.enter_context(upload.kept_up())
        return upload

    def _check_destination(self, source: str, target: Url) -> None:
        from rec_summary.errors import three_part
        from rec_summary.records.remote import DESTINATION, list_tree, overlap

        if not self._writes_beside and overlap(source, target):
            expected = f"a place that is neither in {source}/ nor around it"
            raise click.UsageError(one_line(three_part(DESTINATION, target, expected)))
        if self._empty and list_tree(target, DESTINATION):
            expected = "an empty place, or one that does not exist"
            raise click.ClickException(three_part(DESTINATION, target, expected))


def _is_quiet(params: Params) -> bool:
    return bool(params["quiet"] or params.get("as_json"))


def _temporary(url: Url, stack: contextlib.ExitStack) -> str:
    """Makes a temporary directory that has the URL's last name, and is shown as the URL."""
    path = os.path.join(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="rec_summary-")), url.name
    )
    os.mkdir(path)
    stand_for(path, url)
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
            click.echo(one_line(record.getMessage()), err=True)
