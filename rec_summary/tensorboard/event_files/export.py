"""Exporting record directories to a TensorBoard log directory, once or while they are written."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Final

from rec_summary.engines.engine import Engine
from rec_summary.engines.units import check_failures, is_here, run_units
from rec_summary.errors import ArgumentError, DestinationError, SourceError, three_part, verbatim
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.options import ExportOptions, Selection, chosen_engine, places_apart
from rec_summary.series.overview.choice import chosen_runs
from rec_summary.series.overview.each_run import cost_of, shared_paths
from rec_summary.series.report import Progress, Report
from rec_summary.tensorboard.event_files.experiment import Described, ExperimentFile
from rec_summary.tensorboard.event_files.following import INTERVAL_SECS, Follower
from rec_summary.tensorboard.event_files.logdir import HOLDER_NAME, WHAT, LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.run_writer import Destination
from rec_summary.tensorboard.run_names import Names

__all__ = ["ArgumentError", "Progress", "export_tensorboard", "follow_tensorboard"]

_Exported = Generator[tuple[str, bool], None, None]
"""The name of the run that is exported, and whether it has records."""

_PROGRESS_BYTES: Final = 1 << 20


def export_tensorboard(
    source: str | os.PathLike[str],
    logdir: str | os.PathLike[str],
    *,
    tags: str | None = None,
    runs: str | None = None,
    plugins: Sequence[str] | None = None,
    since: int | str | None = None,
    until: int | str | None = None,
    max_points: int | None = None,
    tensors: str | None = None,
    ranks: str | None = None,
    jobs: int | None = None,
    engine: str = "loky",
    progress: Progress | None = None,
) -> Report:
    """Makes TensorBoard event files of MindSpore record directories.

    Every record directory in `source` becomes a TensorBoard run of the same name; if several
    ranks wrote to it, each one's values become a sub-run `rank_<n>`, or of more than eight those of
    the first one, and the run itself has what they have in common. Values keep their tags,
    steps and wall times. Lineage becomes a session of the HParams dashboard and a text
    `lineage`; evaluation results become scalars of the sub-run `eval`. Damaged records are
    skipped and reported. Memory is bounded by the number of different tags and by the
    largest record, not by the number of records.

    Each run directory gets one event file. Exporting again adds what is new: a cursor beside the
    event file states how far the export has come, also after an interruption. One export of all
    records gives the same bytes as several exports, except for the layout of the Custom Scalars
    page and the best values: these are at another place, and the layout may be there several times.
    A run `.hparams/<number>` says which metrics and hyper-parameters all runs of the log directory
    have; the number rises when they change. A run is exported again from the beginning, and its
    event file replaced, if the options are different, if the records are those of another training,
    if records can be read that were damaged before, if the event file is damaged, or if its
    hyper-parameters or its final status have changed. A TensorBoard that is running may show that
    only after a restart. Event files of other writers are never changed.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory, a local one; created if it does not exist. Not inside `source`,
            nor around it. To write to a URL, use the command `rec-summary export`.
        tags: As in `ExportOptions`.
        runs: A pattern for `fnmatch`, where `*` also matches `/`; only runs whose names
            match are exported.
        plugins: As in `ExportOptions`.
        since: As in `ExportOptions`.
        until: As in `ExportOptions`.
        max_points: As in `ExportOptions`.
        tensors: As in `ExportOptions`.
        ranks: As in `ExportOptions`.
        jobs: How many runs are exported at the same time; by default one, and on a cluster as many
            as it has room for.
        engine: What exports them: `loky` (processes on this machine) or `dask://HOST:PORT`. The
            workers of a cluster need the records and the log directory at the same paths.
        progress: Called about once for each megabyte that was read.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: One of `logdir` and `source` is inside the other, an option is invalid,
            or no run matches `runs`.
        SourceError: There are no records, or none that can be read.
        DestinationError: `logdir` cannot be written to, another export writes to it, or
            a run directory in it has event files of another writer.
        EngineError: The engine is not installed, or cannot be reached.
        WorkerError: Workers cannot do it, or were killed and killed again.
        PartialError: Several runs could not be exported; the others are.
    """
    options = ExportOptions(tags, plugins, since, until, max_points, tensors, ranks)
    workers = chosen_engine(engine, jobs)
    source, logdir = places_apart(source, logdir, WHAT)
    names = Names(selection=Selection(options))
    chosen = chosen_runs(names.named(find_runs(source)), runs)
    report = Report()
    total = sum(run.nbytes for run in chosen)
    has_records, shown, due = False, "", 0
    failed: dict[str, Exception] = {}
    with LogDir(logdir) as entered:
        destination = Destination(names, entered, report, options)
        experiment = ExperimentFile(entered)
        exported = _exported(chosen, destination, workers, experiment, failed)
        with contextlib.closing(exported):
            for run, is_readable in exported:
                has_records |= is_readable
                if progress is not None and (run != shown or report.bytes_read >= due):
                    shown, due = run, report.bytes_read + _PROGRESS_BYTES
                    # A live file may have grown since its size was taken.
                    progress(run, report.bytes_read, max(total, report.bytes_read))
        experiment.update()
        if progress is not None:
            progress(shown, report.bytes_read, report.bytes_read)
    check_failures(failed, len(chosen), "exported")
    if not has_records:
        found = f"{report.files} files without a readable record"
        received = "; ".join([found, *map(str, report.problems[:1])])
        expected = "at least one record"
        raise SourceError(three_part("the source of records", verbatim(received), expected))
    return report


def follow_tensorboard(
    source: str | os.PathLike[str],
    logdir: str | os.PathLike[str],
    *,
    stop: threading.Event,
    options: ExportOptions | None = None,
    runs: str | None = None,
    interval: float = INTERVAL_SECS,
    reported: Callable[[Report], None] | None = None,
    poller: RunPoller | None = None,
) -> Report:
    """Exports like `export_tensorboard`, and continues with new records until stopped.

    A record is in the event file at most `interval` seconds after it was flushed, plus the time to
    read and write it. New runs, ranks and files are exported too; the source need not exist yet. A
    run that cannot be written is reported, and tried again.

    Args:
        source: A record directory, or a tree of them.
        logdir: The log directory, a local one; created if it does not exist. Not inside `source`,
            nor around it. To write to a URL, use the command `rec-summary export --follow`.
        stop: Set it to end: everything is then exported for the last time, and the cursors
            are saved for a later export.
        options: What is exported; `max_points` is not allowed, since a series that still grows
            cannot be downsampled.
        runs: As in `export_tensorboard`.
        interval: How long to wait between two polls, in seconds.
        reported: Called with the report so far after each poll that exported something.
        poller: What finds the runs, if they have been listed before.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: `logdir` and `source` lie inside each other, or an option is invalid.
        DestinationError: `logdir` cannot be written to, or another export is using it.
    """
    options = options or ExportOptions()
    if not options.resumable:
        expected = "None: a series that still grows cannot be downsampled"
        raise ArgumentError(three_part("max_points", options.max_points, expected))
    source, logdir = places_apart(source, logdir, WHAT)
    with LogDir(logdir) as entered:
        destination = Destination(Names(selection=Selection(options)), entered, Report(), options)
        report, experiment = destination.report, ExperimentFile(entered)

        def describe() -> None:
            try:
                experiment.update()
            except DestinationError as error:
                report.note(f"the description of the experiment cannot be saved: {error}")

        follower = Follower(
            RunPoller(source) if poller is None else poller,
            functools.partial(RunExporter, destination=destination),
            report,
            stop,
            named=destination.names.claim_run,
            pattern=runs,
            committed=describe,
        )
        follower.run(interval, reported)
    return report


def _exported(
    runs: Sequence[Run],
    destination: Destination,
    engine: Engine,
    experiment: ExperimentFile,
    failed: dict[str, Exception],
) -> _Exported:
    """Exports runs: here, one after another, or on workers.

    The lock of the log directory stays with this process.

    Args:
        runs: The runs.
        destination: Where and how they are exported.
        engine: What exports them.
        experiment: Gets what describes them.
        failed: Gets the runs that workers could not export, and why.

    Raises:
        DestinationError: Something cannot be written. What was written of other runs stays.
    """
    sizes = [cost_of(run) for run in runs]
    # All places are checked first: nothing is written if one of them cannot be used.
    if is_here(engine, sizes):
        yield from _exported_here(runs, destination, experiment)
        return
    names, logdir, report, options = destination
    # As in `_exported_here`: which places a run has depends on its ranks and on its cursor.
    trial = destination._replace(names=copy.deepcopy(names), report=Report())
    for run in runs:
        if logdir.has(run.name):
            RunExporter(run, trial)
    work = functools.partial(_export_one, logdir.path, logdir.holder, options)
    units = list(zip(runs, names.split(run.name for run in runs), strict=True))
    shared = [*shared_paths(runs), (WHAT, os.path.join(logdir.path, HOLDER_NAME))]
    for index, result, error in run_units(engine, work, units, sizes=sizes, shared=shared):
        name = runs[index].name
        if error is not None:
            failed[name] = error
            continue
        part, has_records, descriptions = result
        yield name, has_records
        report.add(part)
        experiment.known.update(descriptions)
        yield name, has_records


def _exported_here(
    runs: Sequence[Run], destination: Destination, experiment: ExperimentFile
) -> _Exported:
    for run, exporter in [(run, RunExporter(run, destination)) for run in runs]:
        yield run.name, exporter.has_records  # the progress shows the run before it is read
        try:
            for _ in exporter.update(run):
                yield run.name, exporter.has_records
            if (description := exporter.commit()) is not None:
                experiment.known[run.name] = description
        finally:
            exporter.close()
        yield run.name, exporter.has_records


def _export_one(
    path: str, holder: str, options: ExportOptions, unit: tuple[Run, Names]
) -> tuple[Report, bool, dict[str, Described]]:
    """Exports one run on a worker; returns the counts, whether it has records, what describes it.

    Args:
        path: The log directory.
        holder: The exporter that sent the run, as it has named itself in the log directory.
        options: What is exported.
        unit: The run, and the names that are reserved below it.
    """
    run, names = unit
    report, has_records = Report(), False
    with LogDir(path, worker_of=holder) as logdir:
        destination = Destination(names, logdir, report, options)
        experiment = ExperimentFile(logdir)
        for _, is_readable in _exported_here([run], destination, experiment):
            has_records |= is_readable
    return report, has_records, experiment.known
