"""Compacting a record directory: that of a writer at work, or one that nobody writes."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import math
import os
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import IO, Final

from rec_summary._pb.summary_pb2 import Compaction
from rec_summary.compaction import commit, plan, rewriting
from rec_summary.compaction.plan import Segment
from rec_summary.compaction.rewriting import Pace, UnfitFile, compacted_name
from rec_summary.engines.units import check_failures, run_units
from rec_summary.errors import ArgumentError, RecSummaryError, os_errors_as, three_part, verbatim
from rec_summary.records.files import write_atomically
from rec_summary.records.format.names import Kind
from rec_summary.records.liveness import is_held
from rec_summary.records.reading.runs import (
    RecordFile,
    Run,
    find_runs,
    head_of,
    list_files,
    relative_path,
)
from rec_summary.records.remote import SOURCE, Url, open_binary, path_or_url
from rec_summary.records.writing.retention import MOST_FILES, rank_bytes, segment_bytes
from rec_summary.series.batch import SUMMARY
from rec_summary.series.event_reader import EventReader
from rec_summary.series.options import chosen_engine, places_apart
from rec_summary.series.overview.choice import chosen_runs
from rec_summary.series.overview.each_run import cost_of, shared_paths
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Span, Writers

_RECENT_SECS: Final = 600.0  # a file that has changed since then may be written still
_MOST_LINEAGE_FILES: Final = 8
_SLACK: Final = 1.25
_SLACK_BYTES: Final = 1 << 12
_COPIED_BYTES: Final = 1 << 20
_IS_WRITTEN: Final = "a process is writing it"
_NO_LOCKS: Final = (
    "nothing is compacted, because files that are being written look complete here: retention "
    "needs a file system with flock"
)


class BudgetError(RecSummaryError):
    """A budget is too small for what always stays."""


class CompactionError(RecSummaryError):
    """A run cannot be compacted; its old files stay."""


@dataclass(frozen=True)
class Replacement:
    """Files that one file has replaced, or would replace.

    Attributes:
        kind: `summary` or `lineage`.
        rank: The rank.
        files: The names of the files.
        name: The name of the new file.
        bytes_before: Their size.
        bytes_after: Its size.
        bucket_steps: The width of its widest buckets of scalars, in steps; 1 if all stay.
    """

    kind: str
    rank: int
    files: tuple[str, ...]
    name: str
    bytes_before: int
    bytes_after: int
    bucket_steps: int


@dataclass(frozen=True)
class RunCompaction:
    """What was done to a run, or would be done.

    Attributes:
        run: The run's name.
        path: Its directory.
        bytes_before: The size of its record files.
        bytes_after: Their size afterwards.
        replaced: What was replaced.
        left: Files that were left as they are, and why.
    """

    run: str
    path: str
    bytes_before: int
    bytes_after: int
    replaced: tuple[Replacement, ...]
    left: tuple[tuple[str, str], ...]


def keep_within(
    directory: str,
    rank: int,
    total_bytes: int,
    *,
    own: Collection[int] = (),
    lock: str | None = None,
    pace: Pace = lambda: None,
) -> list[Replacement]:
    """Compacts the files of a rank of which a process is writing the newest.

    Does nothing while another process compacts them. Files of another process that records as the
    same rank at this moment are left alone.

    Args:
        directory: The record directory.
        rank: The rank.
        total_bytes: The budget.
        own: The stamps of the files of the process. No two files of a rank have the same, and a
            compacted file keeps that of its first one. It has one of the files open.
        lock: The kind of lock (see `records.locks`).
        pace: Called after each portion of work.

    Raises:
        OSError: A file cannot be written, and the old ones stay; or no file of the rank is locked,
            though the process has files of its own.
    """
    work = RunWork(pace)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(commit.locked(directory, rank, lock))
        except TimeoutError:
            return work.done
        present = _of_rank(directory, rank)
        if own and not any(is_held(file.path) for file in present):
            raise OSError(errno.ENOLCK, _NO_LOCKS, directory)
        foreign = [file for file in present if file.name.stamp not in own]
        lineage = (file for file in foreign if file.name.kind is Kind.LINEAGE)
        others = [file for file in lineage if is_held(file.path)]
        most = total_bytes - 2 * segment_bytes(total_bytes)
        # Each of them has its part of the budget.
        theirs = _nbytes(foreign)
        total_bytes = max(total_bytes - theirs, total_bytes // (1 + len(others)))
        full = segment_bytes(total_bytes)
        while True:
            before = len(work.left)
            files = [
                file for file in _of_rank(directory, rank) if not others or file.name.stamp in own
            ]
            rows, writers = work.rows(files)
            if rank_bytes(directory, rank) > most:
                commit.sweep(directory, rank)  # the budget comes first
            counted = _nbytes(files)
            next_group = plan.next_group(rows, total_bytes, counted)
            if next_group is not None:
                work.join(next_group.segments, next_group.tier)
                continue
            for group in work.lineage_groups(files, writers):
                if len(group) > _MOST_LINEAGE_FILES or _recorded(group) > full // 2:
                    work.join_lineage(group)
            if len(work.left) == before:
                return work.done


def _of_rank(directory: str, rank: int) -> list[RecordFile]:
    return [file for file in list_files(directory) if file.name.rank == rank]


def compact(
    source: str | os.PathLike[str],
    total_bytes: int,
    *,
    runs: str | None = None,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    engine: str = "loky",
    jobs: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[RunCompaction]:
    """Compacts record directories that nobody writes, of any recorder.

    Within the budget, the newest part of a run stays complete, and older parts become coarser the
    older they are. All of the lineage, graphs, landscapes and evaluations stay. Files that are
    written at this moment, or may be, and files with damage are left as they are.

    Args:
        source: A record directory, or a tree of them; a URL with `output` or `dry_run` only.
        total_bytes: The most bytes of record files for each run.
        runs: A pattern for `fnmatch`: only these runs.
        output: A directory that is empty or does not exist, for compacted copies of the runs;
            None replaces the files in `source`.
        dry_run: Whether only the sizes are found out, and nothing is changed.
        engine: What compacts runs: `loky` (processes on this machine) or `dask://HOST:PORT`. The
            workers of a cluster need the records, and `output`, at the same paths.
        jobs: How many runs are compacted at the same time; by default one, and on a cluster as
            many as it has room for.
        progress: Gets the current run, the bytes of finished runs, and the bytes in all.

    Returns:
        What was done to each run.

    Raises:
        ArgumentError: An argument is invalid, or no run matches.
        SourceError: There are no records.
        BudgetError: The budget is too small for what always stays. The files that it has no room
            for were not changed.
        CompactionError: Something cannot be read or written; the old files stay.
        EngineError: The engine is not installed, or cannot be reached.
        WorkerError: Workers cannot do it, or were killed and killed again.
        PartialError: Several runs could not be compacted; the others are.
    """
    workers = chosen_engine(engine, jobs)
    source = path_or_url(source)
    if isinstance(total_bytes, bool) or not isinstance(total_bytes, int) or total_bytes < 1:
        raise ArgumentError(three_part("total_bytes", total_bytes, "an int of at least 1"))
    if isinstance(source, Url) and output is None and not dry_run:
        raise ArgumentError(three_part(SOURCE, source, "a local directory, or an output as well"))
    if output is not None:
        _, output = places_apart(source, output, "the output")
        if os.path.exists(output) and (not os.path.isdir(output) or os.listdir(output)):
            expected = "an empty directory, or one that does not exist"
            raise ArgumentError(three_part("the output", output, expected))
    chosen = chosen_runs(find_runs(source), runs)
    units = list[tuple[Run, str | None]]()
    for run in chosen:
        target = None
        if output is not None:
            target = os.path.join(output, relative_path(run.path, source))
            if not dry_run:
                what, expected = "the output", "a directory that can be made"
                with os_errors_as(CompactionError, what, target, expected):
                    os.makedirs(target, exist_ok=True)
        units.append((run, target))
    sizes = [cost_of(run) for run in chosen]
    before = [run.nbytes for run in chosen]
    done, results, failed = 0, list[RunCompaction](), dict[str, Exception]()
    report = progress or (lambda run, done, total: None)
    report(chosen[0].name, 0, sum(before))
    work = functools.partial(_compact_run, total_bytes, dry_run)
    shared = shared_paths(chosen)
    if output is not None and not dry_run:
        shared.append(("the output", os.fspath(output)))
    for outcome in run_units(workers, work, units, sizes=sizes, in_order=True, shared=shared):
        run = chosen[outcome.number]
        done += before[outcome.number]
        report(run.name, done, sum(before))
        if outcome.error is not None:
            failed[run.name] = outcome.error
        else:
            results.append(outcome.result)
    check_failures(failed, len(chosen), "compacted")
    return results


def _compact_run(total_bytes: int, dry_run: bool, unit: tuple[Run, str | None]) -> RunCompaction:
    """Compacts the files of a run that nobody writes, here or on a worker.

    Args:
        total_bytes: The budget for its record files.
        dry_run: Whether nothing is changed.
        unit: The run, and a directory for the new files and for copies of those that stay; None
            replaces the old files.

    Raises:
        BudgetError: The budget is too small for what always stays.
        CompactionError: A file cannot be read or written, or another process compacts these files.
    """
    run, output = unit
    in_place = output is None and not dry_run
    expected = "files that can be read and written, and that no other process compacts"
    work = RunWork(output=output, dry_run=dry_run)
    with (
        os_errors_as(CompactionError, "the run", run.path, expected),
        contextlib.ExitStack() as stack,
    ):
        if in_place:  # it may have been compacted since it was listed
            for rank in run.ranks:
                stack.enter_context(commit.locked(run.path, rank))
                stack.callback(commit.sweep, run.path, rank)
            run = dataclasses.replace(run, files=list_files(run.path))
        before = run.nbytes
        if output is None:
            work.left |= _live(run.files)
        work.compact(run, total_bytes)
        stay = _without(run.files, work.done)
        if output is not None and not dry_run:
            for file in stay:
                _copy(file, output)
    after = _nbytes(stay) + sum(replacement.bytes_after for replacement in work.done)
    done, left = tuple(work.done), tuple(work.left.items())
    return RunCompaction(run.name, run.path, before, after, done, left)


class RunWork:
    """Makes one file of several files of a run, again and again.

    Attributes:
        done: What was replaced.
        left: Files that are left as they are, and why: those with damage are added.
    """

    def __init__(
        self, pace: Pace = lambda: None, output: str | None = None, *, dry_run: bool = False
    ) -> None:
        self.done: list[Replacement] = []
        self.left: dict[str, str] = {}
        self._pace, self._output, self._dry_run = pace, output, dry_run
        self._spans: dict[str, Span | None] = {}  # of complete files; None without values

    def compact(self, run: Run, total_bytes: int) -> None:
        """Compacts the files of a run, which nobody writes.

        Raises:
            BudgetError: The budget is too small.
        """
        ranks = [part.files for part in run.by_rank()]
        for files in ranks:
            for group in self.lineage_groups(files, self.rows(files)[1]):
                if len(group) > 1:
                    self.join_lineage(group)
        while True:
            before = len(self.left)
            rows = [row for files in ranks for row in self.rows(_without(files, self.done))[0]]
            sizes = [sum(segment.nbytes for segment in row) for row in rows]
            total = sum(sizes)
            others = _nbytes(_without(run.files, self.done)) - total
            others += sum(replacement.bytes_after for replacement in self.done)
            for row, nbytes in zip(rows, sizes, strict=True):
                if nbytes and (total + others > total_bytes or len(row) > MOST_FILES):
                    target = (total_bytes - others) * nbytes // total
                    self._fit(row, total_bytes, target, nbytes / total)
            if len(self.left) == before:
                return

    def _fit(self, row: Sequence[Segment], total_bytes: int, target: int, share: float) -> None:
        """Joins summary files of one writer, so that the new file has at most a size.

        Args:
            row: The files.
            total_bytes: The budget of the run.
            target: The size, in bytes; below 0 if other files are beyond the budget already.
            share: Of each byte more in the budget, the new file may have this part.

        Raises:
            BudgetError: The new file is larger.
        """
        run = _run_of(row)

        def write(out: IO[bytes]) -> Compaction:
            tiers = [0]
            if run.nbytes > target:
                # A value more stays where another tier begins.
                tiers = plan.tiers_within(rewriting.sizes(run, self._pace), target * 99 // 100)
            compaction = rewriting.rewrite(run, out, tiers, self._pace)
            size = out.tell()
            if size > target * _SLACK + _SLACK_BYTES:
                least = total_bytes + math.ceil((size - target) / share)
                raise BudgetError(
                    three_part(
                        "the budget for a rank of a run",
                        verbatim(f"{max(target, 0):,} bytes of {total_bytes:,}"),
                        f"at least {least:,} for the run: lineage, graphs, landscapes, "
                        "evaluations, and files that are damaged or in use stay whole, and the "
                        "coarsest form of the rest stays",
                    )
                )
            return compaction

        self._replace(run.files, write)

    def join(self, segments: Sequence[Segment], tier: int) -> None:
        """Joins summary files of one writer to one of a tier."""
        run = _run_of(segments)

        def write(out: IO[bytes]) -> Compaction:
            return rewriting.rewrite(run, out, [tier], self._pace)

        self._replace(run.files, write)

    def join_lineage(self, files: Sequence[RecordFile]) -> None:
        """Joins lineage files of one writer."""
        write = functools.partial(rewriting.rewrite_lineage, files, pace=self._pace)
        self._replace(files, write)

    def _replace(
        self, files: Sequence[RecordFile], write: Callable[[IO[bytes]], Compaction]
    ) -> None:
        name = compacted_name(files)
        before = _nbytes(files)
        replacing = commit.replacing(files, name, self._output)
        try:
            with tempfile.TemporaryFile() if self._dry_run else replacing as out:
                compaction = write(out)
                after = out.tell()
                for file in files:
                    if is_held(file.path):  # it was created when `rows` looked, and not locked yet
                        raise UnfitFile(file.path, _IS_WRITTEN)
        except UnfitFile as error:
            self.left[error.path] = str(error)
            return
        self.done.append(
            Replacement(
                kind=files[0].name.kind.name.lower(),
                rank=files[0].name.rank,
                files=tuple(os.path.basename(file.path) for file in files),
                name=name,
                bytes_before=before,
                bytes_after=after,
                bucket_steps=max(compaction.bucket_steps, 1),
            )
        )

    def rows(self, files: Sequence[RecordFile]) -> tuple[list[list[Segment]], Writers]:
        """Returns the complete summary files next to each other of one writer, and the writers.

        A file without values is of the writer before it.
        """
        writers = Writers()
        rows: list[list[Segment]] = []
        open_rows: dict[int, list[Segment]] = {}
        last = 0
        for file in files:
            if file.name.kind is not Kind.SUMMARY:
                continue
            is_open = is_held(file.path)
            if file.path not in self._spans:
                self._spans[file.path] = _span(file, self._pace)
            span = self._spans.pop(file.path) if is_open else self._spans[file.path]
            if span is not None:
                writers.at(file, span)
                last = writers.homes[os.path.basename(file.path)]
            if is_open or file.path in self.left:
                open_rows.pop(last, None)
                continue
            if last not in open_rows:
                rows.append(open_rows.setdefault(last, []))
            open_rows[last].append(Segment(file, file.nbytes, plan.tier_of(file)))
        return rows, writers

    def lineage_groups(
        self, files: Sequence[RecordFile], writers: Writers
    ) -> list[list[RecordFile]]:
        """Returns the complete lineage files of each writer: begun with a summary file of it."""
        homes = {
            (f.name.stamp, f.name.host): os.path.basename(f.path)
            for f in files
            if f.name.kind is Kind.SUMMARY
        }
        groups: dict[int, list[RecordFile]] = {}
        for file in files:
            is_lineage = file.name.kind is Kind.LINEAGE
            if is_lineage and file.path not in self.left and not is_held(file.path):
                name = homes.get((file.name.stamp, file.name.host), "")
                groups.setdefault(writers.homes.get(name, 0), []).append(file)
        return list(groups.values())


def _run_of(segments: Sequence[Segment]) -> Run:
    files = tuple(segment.file for segment in segments)
    return Run("", os.path.dirname(files[0].path), files)


def _nbytes(files: Sequence[RecordFile]) -> int:
    return sum(file.nbytes for file in files)


def _without(files: Sequence[RecordFile], done: Sequence[Replacement]) -> list[RecordFile]:
    """Returns the files that were not replaced."""
    gone = {name for replacement in done for name in replacement.files}
    return [file for file in files if os.path.basename(file.path) not in gone]


def _span(file: RecordFile, pace: Pace) -> Span | None:
    """Returns where the values of a file are in time and steps, if it has any."""
    head, span = head_of(file), None
    with EventReader(file, Report(), steps_only=True) as reader:
        for batch in reader:
            if batch.kind == SUMMARY:
                part = Span.of(batch)._replace(process=head.writer)
                span = part if span is None else span.followed_by(part)
                if head.HasField("compaction"):
                    return span._replace(last=max(span.last, head.compaction.last_time))
            pace()
    return span


def _recorded(files: Sequence[RecordFile]) -> int:
    """Returns the size of the files that were never compacted."""
    return sum(file.nbytes for file in files if file.name.last is None)


def _live(files: Sequence[RecordFile]) -> dict[str, str]:
    """Returns the files that may be written at this moment, and why that is assumed."""
    reasons = {}
    newest = {(file.name.rank, file.name.kind): file.path for file in files}.values()
    for file in files:
        if is_held(file.path):
            reasons[file.path] = _IS_WRITTEN
        elif file.path in newest and file.changed > time.time() - _RECENT_SECS:
            reasons[file.path] = f"it has changed in the last {_RECENT_SECS / 60:.0f} minutes"
    return reasons


def _copy(file: RecordFile, output: str) -> None:
    path = os.path.join(output, os.path.basename(file.path))
    with (
        contextlib.closing(open_binary(file.path)) as source,
        write_atomically(path, like=file.path) as out,
    ):
        at = 0
        while data := source.read_at(at, _COPIED_BYTES):
            out.write(data)
            at += len(data)
