"""What every sub-command has: sources and destinations that may be URLs, `-v`, `--cache`.

A URL is mirrored to a local directory before the command runs, and what is written for a
URL is put there when it has run; a command that goes on until it is stopped has both done
beside it. So the commands themselves know of local paths only.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from rec_summary.cli.common import VERBOSE, one_line, reporting_errors
from rec_summary.cli.progress import Progress, progress_shown

Params = Mapping[str, Any]
Asks = Callable[[Params], bool]


Finish = Callable[[Progress], Any]


def _never(_params: Params) -> bool:
    return False


class RecordsCommand(click.Command):
    """A sub-command that works on records."""

    def __init__(
        self,
        *args: Any,
        reads: str = "source",
        writes: str | None = None,
        writes_beside: bool = False,
        fresh: bool = False,
        empty: bool = False,
        follows: Asks = _never,
        everything: Asks = _never,
        **options: Any,
    ) -> None:
        """Takes what `click.Command` takes, and which parameters name places.

        Args:
            reads: The parameter that names the source.
            writes: The parameter that names the destination.
            writes_beside: Whether the destination is the source where none is given.
            fresh: Whether what is written only adds to what is at the destination.
            empty: Whether the destination must be empty.
            follows: Whether the command goes on with what is written to the source.
            everything: Whether it needs all files of the source, not the records only.
        """
        super().__init__(*args, **options)
        self._reads, self._writes, self._writes_beside = reads, writes, writes_beside
        self._fresh, self._empty = fresh, empty
        self._follows, self._everything = follows, everything
        self.params += [
            click.Option(
                ("--cache",),
                metavar="DIR",
                type=click.Path(),
                help="Keep local copies of URLs here.  [default: $REC_SUMMARY_CACHE, or "
                "~/.cache/rec_summary]",
            ),
            click.Option(
                ("-v", "--verbose"), is_flag=True, help="Tell more: all problems, what is fetched."
            ),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command with local paths in the place of URLs."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        cache, verbose = ctx.params.pop("cache"), ctx.params.pop("verbose")
        ctx.meta[VERBOSE] = verbose
        with contextlib.ExitStack() as stack:
            # Errors on the way out, such as those of releasing a lock, are messages as well.
            stack.enter_context(reporting_errors(debug=bool(ctx.params.get("debug"))))
            stack.enter_context(_warnings_shown(verbose=verbose))
            finish = self._localise(ctx, cache, stack)
            result = super().invoke(ctx)
            for each in finish:
                quiet = bool(ctx.params.get("quiet") or ctx.params.get("as_json"))
                with progress_shown(quiet=quiet, doing="putting to") as progress:
                    each(progress)
            return result

    def _localise(
        self, ctx: click.Context, cache: str | None, stack: contextlib.ExitStack
    ) -> list[Finish]:
        """Replaces URLs; returns what is to be done when the command has succeeded."""
        source = ctx.params[self._reads]
        writes = ctx.params[self._writes] if self._writes is not None else None
        if not any("://" in place for place in (source, writes) if place is not None):
            return []
        from rec_summary.records.remote.places import local_path

        finish: list[Finish] = []
        path = local_path(source)
        remote = path is None
        follows = self._follows(ctx.params)
        if path is None:
            everything = self._everything(ctx.params)
            quiet = bool(ctx.params.get("quiet"))
            path = _mirrored(
                source, cache, stack, everything=everything, follows=follows, quiet=quiet
            )
        ctx.params[self._reads] = path
        if writes is None and self._writes_beside and remote:
            writes = source
        if self._writes is not None and writes is not None:
            path = local_path(writes)
            if path is None:
                from rec_summary.errors import three_part
                from rec_summary.records.remote.places import DESTINATION
                from rec_summary.records.remote.upload import Upload

                if not self._writes_beside:
                    _check_apart(source, writes)
                upload = stack.enter_context(Upload(writes, cache, fresh=self._fresh))
                if self._empty and not upload.is_empty:
                    expected = "an empty place, or one that does not exist"
                    raise click.ClickException(three_part(DESTINATION, upload.url, expected))
                if follows:
                    stack.enter_context(upload.kept_pushed())
                finish.append(upload.push)
                path = upload.path
            ctx.params[self._writes] = path
        return finish


def _check_apart(source: str, destination: str) -> None:
    from rec_summary.errors import three_part
    from rec_summary.records.remote.places import DESTINATION, clean

    places = [f"{clean(place)}/" for place in (source, destination)]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        expected = f"a place that is neither in {places[0]} nor around it"
        raise click.UsageError(one_line(three_part(DESTINATION, places[1], expected)))


def _mirrored(
    url: str,
    cache: str | None,
    stack: contextlib.ExitStack,
    *,
    everything: bool,
    follows: bool,
    quiet: bool,
) -> str:
    from rec_summary.records.remote.mirror import Mirror, is_record_file

    mirror = Mirror(url, cache, wanted=(lambda name: True) if everything else is_record_file)
    with progress_shown(quiet=quiet, doing="fetching") as progress:
        mirror.refresh(progress, must_exist=not follows)
    if follows:
        stack.enter_context(mirror.kept_fresh())
    return mirror.path


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
