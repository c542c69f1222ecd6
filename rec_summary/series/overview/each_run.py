"""Reading many runs, here or on an engine: one unit of work for each."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from rec_summary.engines.engine import Engine
from rec_summary.engines.units import check_failures, is_here, run_units
from rec_summary.errors import RecSummaryError
from rec_summary.records.reading.runs import Run, list_files
from rec_summary.records.remote import Url
from rec_summary.series.report import Report
from rec_summary.series.text import printable

T = TypeVar("T")
Read = Callable[..., Iterable[T]]
"""Reads a run, and returns what it has found; counts in its argument `report`."""

_TRIES: Final = 20  # of a run whose files are replaced while it is read
_REQUESTS: Final = 1 << 21  # bytes that a store could send while the files of a run are asked for


def cost_of(run: Run) -> int:
    """Returns how much work it is to read a run, in bytes."""
    return run.nbytes + (_REQUESTS if isinstance(run.path, Url) else 0)


def shared_paths(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Returns what workers need at the same path: a run stands for all of its tree."""
    local = (run for run in runs if not isinstance(run.path, Url))
    return [(f"the run {printable(run.name)}", run.path) for run in itertools.islice(local, 1)]


def each_run(
    read: Read[T],
    runs: Sequence[Run],
    engine: Engine,
    report: Report,
    failed: Callable[[Run, Exception], object] | None = None,
    ahead: Callable[[Sequence[Run]], Iterable[Run]] = iter,
    *,
    stream: bool = False,
) -> Iterator[tuple[Run, T]]:
    """Yields what is found in runs, in their order.

    A run is read again if compaction has replaced files since they were listed.

    Args:
        read: Reads a run. It is sent to workers, by its name.
        runs: The runs.
        engine: What reads them.
        report: Counts what is read, and takes problems.
        failed: Takes runs that cannot be read, and why; by default that is a problem. If none can
            be read, that is an error.
        ahead: Prepares runs, several at a time, and yields them. It is sent to workers by its name.
        stream: Whether what is found here is yielded at once, and not held until the end of its
            run. What was in files that are replaced meanwhile is missing then, and reported.

    Raises:
        EngineError: The engine is not installed, cannot be reached, or has been lost.
        WorkerError: Workers cannot do it, or were killed and killed again.
    """
    failures: dict[str, Exception] = {}

    def fail(run: Run, error: Exception) -> None:
        failures[run.name] = error
        if len(failures) == len(runs):
            check_failures(failures, len(runs), "read")
        if failed is None:
            report.problem(run.path, 0, f"the run is left out: {error}")
        else:
            failed(run, error)

    if is_here(engine, map(cost_of, runs)):
        for run in ahead(runs):
            try:
                found = read(run, report=report) if stream else _whole(read, run, report)
                for item in found:
                    yield run, item
            except (RecSummaryError, OSError) as error:
                fail(run, error)
        return
    work, sizes = functools.partial(_read, read), [cost_of(run) for run in runs]
    for outcome in run_units(
        engine, work, runs, sizes=sizes, in_order=True, ahead=ahead, shared=shared_paths(runs)
    ):
        run = runs[outcome.number]
        if outcome.error is not None:
            fail(run, outcome.error)
            continue
        items, part = outcome.result
        report.add(part)
        for item in items:
            yield run, item


def _read(read: Read[T], run: Run) -> tuple[list[T], Report]:
    report = Report()
    return _whole(read, run, report), report


def _whole(read: Read[T], run: Run, report: Report) -> list[T]:
    """Returns what is found in a run; lists its files again where some were replaced."""
    for left in reversed(range(_TRIES)):
        before = {name: copy.copy(counted) for name, counted in vars(report).items()}
        found = list(read(run, report=report))
        new = report.problems[len(before["problems"]) :]
        if isinstance(run.path, Url) or all(os.path.lexists(problem.path) for problem in new):
            break
        try:
            files = [file for file in list_files(run.path) if file.name.rank in run.ranks]
        except OSError:
            break
        if not left or not files:
            break
        vars(report).update(before)
        run = dataclasses.replace(run, files=tuple(files))
    return found
