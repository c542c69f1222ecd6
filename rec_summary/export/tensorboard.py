"""Exporting record directories to a TensorBoard log directory."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable
from typing import Final

from rec_summary.errors import SourceError, three_part, verbatim
from rec_summary.export.logdir import LogDir
from rec_summary.export.report import ExportReport, Tally
from rec_summary.export.run import RunExport, plan_runs
from rec_summary.export.words import printable
from rec_summary.records.directory import Run, find_runs

Progress = Callable[[str, int, int], None]
"""Told how far an export is: the run at hand, the bytes read so far, the bytes in all."""

_PROGRESS_BYTES: Final = 1 << 20


class ArgumentError(ValueError):
    """What was asked for cannot be meant: a mistake in the arguments, found before any work."""


def export_tensorboard(
    source: str | os.PathLike[str],
    logdir: str | os.PathLike[str],
    *,
    tags: str | None = None,
    runs: str | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Makes TensorBoard event files of MindSpore record directories.

    Every record directory in `source` becomes a TensorBoard run of the same name; if several
    ranks wrote to it, each one's values become a sub-run `rank_<n>`. Scalars and histograms
    keep their tags, steps and wall times. Lineage becomes a session of the HParams
    dashboard and a text `lineage`; evaluation results become scalars of the sub-run `eval`.
    What is damaged is skipped and reported. Memory is bounded by the number of different
    tags and by the largest record, not by the number of records.

    Each run directory gets one event file, complete or not at all. The same records give
    the same bytes. An event file of an earlier export is replaced, which a TensorBoard that
    is running may notice only after a restart; event files of others are never touched.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory; made if need be. Not inside `source`, nor around it.
        tags: A regular expression; only scalars and histograms in whose tag it is found are
            exported, evaluation results included. Lineage is exported in any case.
        runs: A pattern as of `fnmatch`, where `*` also matches `/`; only runs whose name
            matches are exported.
        progress: Told how far the export is, about once for each megabyte.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: `logdir` and `source` lie inside each other, `tags` is not a regular
            expression, or no run matches `runs`.
        SourceError: There are no records, or none that can be read.
        DestinationError: `logdir` cannot be written to, another export is using it, or a
            run directory in it holds event files of another writer.
    """
    source, logdir = os.fspath(source), os.fspath(logdir)
    _check_apart(source, logdir)
    wanted = None if tags is None else _compiled(tags).search
    plans = plan_runs(_matching(find_runs(source), runs))
    tally = Tally()
    meter = _Meter(sum(_size(file.path) for plan in plans for file in plan.run.files), progress)
    with LogDir(logdir) as destination:
        for plan in plans:
            for target in plan.targets:
                destination.check(target)
        for plan in plans:
            meter.begin(plan.run.name)
            RunExport(plan, destination, tally, wanted=wanted, advance=meter.advance).export()
        meter.end()
    tally.bytes_read = meter.done
    report = tally.report()
    if not report.records:
        raise SourceError(
            three_part(
                "the source of records",
                verbatim(f"{report.files} files without a readable record; {report.problems[0]}"),
                "at least one record",
            )
        )
    return report


def _check_apart(source: str, logdir: str) -> None:
    places = [os.path.realpath(source), os.path.realpath(logdir)]
    if os.path.commonpath(places) in places:
        raise ArgumentError(
            three_part(
                "the log directory",
                verbatim(f"{printable(logdir)} for the source {printable(source)}"),
                "two directories of which neither is in the other",
            )
        )


def _compiled(tags: str) -> re.Pattern[str]:
    try:
        return re.compile(tags)
    except (re.error, OverflowError, RecursionError) as error:
        expected = f"a regular expression that compiles ({error})"
        raise ArgumentError(three_part("the choice of tags", tags, expected)) from error


def _matching(found: list[Run], pattern: str | None) -> list[Run]:
    if pattern is None:
        return found
    matching = [run for run in found if fnmatch.fnmatchcase(run.name, pattern)]
    if not matching:
        names = ", ".join(printable(run.name) for run in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        expected = f"a pattern that matches a run; there are: {names}{more}"
        raise ArgumentError(three_part("the choice of runs", pattern, expected))
    return matching


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0  # reading it will tell what is wrong


class _Meter:
    """Counts bytes, and reports them now and then."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done = 0
        self._total = total
        self._progress = progress
        self._run = ""
        self._next = 0

    def begin(self, run: str) -> None:
        self._run = run
        self._report()

    def advance(self, nbytes: int) -> None:
        self.done += nbytes
        if self.done >= self._next:
            self._report()

    def end(self) -> None:
        """Reports the end, whatever could not be read."""
        self._total = self.done
        self._report()

    def _report(self) -> None:
        self._next = self.done + _PROGRESS_BYTES
        if self._progress is not None:
            # A live file may have grown since its size was taken.
            self._progress(self._run, self.done, max(self._total, self.done))
