"""Scalars as a Parquet dataset that grows while trainings write: a partition for each run and day.

    run=<name>/day=<YYYY-MM-DD>/part-00000.parquet

Names are percent-encoded, as Arrow, DuckDB, polars and Spark read them. New values are new parts:
some readers open a file twice, so a part that grew under one name would disturb them. The parts of
a day are merged when it has ended, or when they are many. What a restart supersedes is removed from
the parts that have it.

A commit writes parts under other names, then the cursor with the list of them, and then renames
them. So a process that is killed has done all of it or nothing: the next one renames what the
cursor lists, and removes what it does not.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, Literal
from urllib.parse import quote

import numpy as np
from msgspec import Struct, field

from rec_summary.errors import ArgumentError, DestinationError, required, three_part, verbatim
from rec_summary.records.files import create_plain, open_plain
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SCALAR, SUMMARY, Batch, Columns, concatenated, rows_of
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.exports.cursor import decode_as, read_cursor, save_cursor
from rec_summary.series.exports.directory import ExportDirectory
from rec_summary.series.exports.following import INTERVAL_SECS, Follower, places_followed
from rec_summary.series.exports.reading import FileReader, FilesRead, continues, is_replaced
from rec_summary.series.limits import Count, Rank
from rec_summary.series.new_records import NewRecords
from rec_summary.series.options import EVERYTHING, ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.values import BufferedScalars
from rec_summary.series.runs.writers import Writer
from rec_summary.series.step_buffer import STEADY, BufferState, Finished, Restart, StepBuffer
from rec_summary.series.text import printable, valid
from rec_summary.tables.formats import SCHEMAS, arrow_schema, require_pyarrow, scalar_arrays

EVERY_SECS: Final = 60.0
_MOST_ROWS: Final = 1 << 20  # of a part
_MOST_PARTS: Final = 256  # of a day that has not ended
_LONGEST_NAME: Final = 255  # bytes, of a directory
_GROUP_ROWS: Final = 1 << 17
_HELD_ROWS: Final = 1 << 20
_DAY_SECS: Final = 86_400
_FIRST_DAY, _LAST_DAY = 0, 47_482  # to the end of 2099, in days since the epoch
_PART: Final = re.compile(r"part-(\d{5,9})\.parquet")
_DAY: Final = re.compile(r"day=\d{4}-\d\d-\d\d")
_STAGED: Final = re.compile(r"\.rec_summary-\d+-\d+\.new")
_COLUMNS: Final = {name: kind for name, kind in SCHEMAS["scalars"].items() if name != "run"}


def follow_dataset(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    stop: threading.Event,
    options: ExportOptions | None = None,
    runs: str | None = None,
    every: float = EVERY_SECS,
    interval: float = INTERVAL_SECS,
    reported: Callable[[Report], None] | None = None,
    poller: RunPoller | None = None,
) -> Report:
    """Appends the scalars of records to a Parquet dataset, and continues until stopped.

    The dataset has a partition `run=<name>/day=<YYYY-MM-DD>` for each run and day (UTC), with
    files `part-<number>.parquet` of at most 1,048,576 rows. Their columns are rank, tag, step,
    wall_time (seconds since the epoch) and value. The files have each value that counts once: none
    that a restart supersedes, and of several for a step the last one. A second call goes on where
    the first one stopped, also if that was killed. New runs, ranks and files are exported too; the
    source need not exist yet. Days whose files were removed stay away.

    Args:
        source: A record directory, or a tree of them.
        directory: The directory of the dataset, a local one; created if it does not exist. Not
            inside `source`, nor around it.
        stop: Set it to end; everything is then written for the last time.
        options: Which values; of `ranks`, only those. With other options than before, a run is
            exported from its beginning.
        runs: A pattern for `fnmatch`; only runs whose names match are exported.
        every: The longest time from reading a value to writing it, in seconds. Each write is a
            file; the files of a day are merged when the day has ended or has 256 of them.
        interval: How long to wait between two polls, in seconds.
        reported: Called with the report so far after each poll that found something.
        poller: What finds the runs, if they have been listed before.

    Returns:
        What was exported and what was not.

    Raises:
        ArgumentError: `directory` and `source` lie inside each other, or an option is invalid.
        DestinationError: `directory` cannot be written to, or another export is using it.
        ImportError: pyarrow is not installed.
    """
    options = options or ExportOptions()
    if not 0 <= every < math.inf:
        raise ArgumentError(three_part("every", every, "a finite number of seconds"))
    source, directory = places_followed(source, directory, Dataset.what, options)
    require_pyarrow()
    report = Report()
    with Dataset(directory) as dataset:
        opened = functools.partial(RunDataset, dataset=dataset, options=options, report=report)
        poller = RunPoller(source) if poller is None else poller
        follower = Follower(*(poller, opened, report, stop), pattern=runs, commit_secs=every)
        follower.run(interval, reported)
    return report


class _Buffered(Struct, array_like=True):
    """The state of the step buffer of a writer."""

    rank: Rank
    number: Count
    steps: BufferState


class DatasetCursor(FilesRead, kw_only=True):
    """How far a run is in the dataset.

    Attributes:
        format: The version of this format.
        options: The fingerprint of the options in force.
        commits: How many there were; the names of their files are different.
        buffers: What is known of the writers.
        moves: The files of the last commit and their places; without a file, a place is cleared.
    """

    format: Literal[1]
    options: str
    commits: Count
    buffers: list[_Buffered] = field(default_factory=list)
    moves: list[tuple[str, str]] = field(default_factory=list)


class Dataset(ExportDirectory):
    """The directory of a dataset, and the owners of its partitions."""

    what: ClassVar[str] = "the directory of the dataset"

    def __init__(self, path: str) -> None:
        """Names a directory."""
        super().__init__(path)
        self._owners: dict[str, str] = {}

    def partition(self, name: str, owner: str) -> str:
        """Returns the directory of a run.

        Args:
            name: The run's name in the dataset.
            owner: The path of its records.

        Raises:
            DestinationError: Another run has it, or the name is too long for a directory.
        """
        partition = f"run={quote(valid(name), safe='')}"
        if len(partition) > _LONGEST_NAME:
            received = verbatim(f"{len(partition):,} bytes for {partition}")
            expected = f"at most {_LONGEST_NAME} bytes; a quoted character takes several"
            raise DestinationError(
                three_part("the length of the name of a run", received, expected)
            )
        if self._owners.setdefault(partition, owner) != owner:
            other = printable(self._owners[partition])
            received = verbatim(f"{printable(name)}, which {other} has in the dataset as well")
            expected = "one name for each run: export them to different directories"
            raise DestinationError(three_part("the name of a run", received, expected))
        return partition

    def names(self, place: str, pattern: re.Pattern[str]) -> list[str]:
        """Returns the names in a directory that match a pattern, in order."""
        with self.opened(place) as fd:
            names = os.listdir(fd) if fd is not None else []
        return sorted(filter(pattern.fullmatch, names), key=lambda name: (len(name), name))

    @contextlib.contextmanager
    def part(self, path: str, run: str) -> Iterator[Any]:
        """Yields a part, open.

        Args:
            path: Its path.
            run: The directory with the cursor of its run, for an error's advice.

        Raises:
            DestinationError: It cannot be read.
        """
        arrow, _ = require_pyarrow()
        dataset = required("pyarrow.dataset", "the format parquet", "tables")
        place, _, name = path.rpartition("/")
        with self.opened(place) as fd, open(open_plain(name, dir_fd=fd), "rb") as file:
            try:
                yield dataset.ParquetFileFormat().make_fragment(file)
            except (arrow.ArrowException, KeyError) as error:
                received = verbatim(f"{printable(path)}: {str(error).rstrip('.')}")
                expected = (
                    f"a part that this package wrote: remove {run}, it is then exported again"
                )
                raise DestinationError(three_part("a part", received, expected)) from error

    def write(self, path: str, table: Any) -> int:
        """Writes a part, and returns its size."""
        _, parquet = require_pyarrow()
        place, _, name = path.rpartition("/")
        with self.made(place) as fd, create_plain(name, dir_fd=fd) as file:
            parquet.write_table(table, file, row_group_size=_GROUP_ROWS)
            file.flush()
            os.fsync(file.fileno())  # before the cursor that lists it
            return file.tell()

    def move(self, place: str, moves: Iterable[tuple[str, str]]) -> None:
        """Renames files of `place` to paths, or removes what is at a path if there is no name.

        Some may have been moved before.
        """
        for day, group in itertools.groupby(moves, lambda move: os.path.dirname(move[1])):
            with self.made(place) as source, self.made(day) as target:
                for staged, path in group:
                    name = os.path.basename(path)
                    with contextlib.suppress(FileNotFoundError):
                        if staged:
                            os.rename(staged, name, src_dir_fd=source, dst_dir_fd=target)
                        else:
                            os.unlink(name, dir_fd=target)
            self.remove_empty([day])

    def remove_staged(self, place: str, kept: set[str]) -> None:
        """Removes what a killed process has left."""
        with self.opened(place) as fd:
            for name in os.listdir(fd) if fd is not None else []:
                if _STAGED.fullmatch(name) and name not in kept:
                    os.unlink(name, dir_fd=fd)


class _Scalars(BufferedScalars):
    """The scalars of a writer since the last commit, and what they supersede in the dataset.

    Attributes:
        restarted: The lowest step that training has gone back to; None if it has not.
        passed: The step of the last commit: of its values, more may come, or other ones.
        again: The tags of those that came.
    """

    restarted: int | None = None

    def __init__(self, writer: Writer, buffer: StepBuffer, selection: Selection) -> None:
        super().__init__(writer, buffer, selection)
        self.passed = buffer.step
        self.again: set[str] = set()

    def take(self, items: Iterable[Finished]) -> None:
        """Takes what the buffer passes on."""
        for item in items:
            if isinstance(item, Restart):
                first = item.step if self.restarted is None else self.restarted
                self.restarted = min(item.step, first)
            super().take([item])

    def _keep(self, number: int, part: Columns) -> None:
        if len(part.steps) and self.passed is not None and part.steps[0] <= self.passed:
            codes = np.unique(part.codes[part.steps == self.passed])
            self.again.update(part.tags[code] for code in codes.tolist())
        super()._keep(number, part)


class RunDataset(FileReader):
    """Writes the scalars of one run to a dataset, and keeps them up to date there."""

    _state: DatasetCursor

    def __init__(self, run: Run, dataset: Dataset, options: ExportOptions, report: Report) -> None:
        """Reads the cursor, and completes the last commit.

        Args:
            run: The run.
            dataset: Where it goes.
            options: Which values.
            report: Counts what is exported.

        Raises:
            DestinationError: The directory cannot be read or written, or another run has its name.
        """
        self._ranks = Selection(ExportOptions(ranks=options.ranks))
        run = self._ranks.narrowed(run)
        super().__init__(run, report, NewRecords(report), Selection(options))
        self._dataset = dataset
        self._options = options
        self._place = dataset.partition(run.name, run.path)
        cursor = decode_as(DatasetCursor, read_cursor(dataset, self._place))
        if cursor is not None and not self._is_own(cursor):
            cursor = None
        dataset.move(self._place, self._moves(cursor))
        dataset.remove_staged(self._place, set())
        if cursor is not None and (
            cursor.options != options.fingerprint() or not continues(run, cursor, self._records)
        ):
            cursor = None
        self._begin(cursor)

    def update(self, run: Run, *, final: bool) -> Iterator[None]:
        """Reads what is new.

        Args:
            run: The run with all its files.
            final: Whether an unfinished record is reported.

        Yields:
            Nothing, after each part.

        Raises:
            DestinationError: Something cannot be written.
        """
        self._run = run = self._ranks.narrowed(run)
        names = {os.path.basename(file.path) for file in run.files}
        if is_replaced(run, self._state, self._records) and self._state.files.keys() <= names:
            self._begin(None, self._state.commits)
        for _ in self._read_files(final=final):
            if self._held >= _HELD_ROWS:
                self.commit()
            yield

    def commit(self) -> None:
        """Writes what was read.

        Raises:
            DestinationError: Something cannot be written.
        """
        if self._state.began is None:
            return
        staged = _Staged(self._dataset, self._place, self._state.commits + 1, self._report)
        begun = {buffered.number for buffered in self._state.buffers}
        # Partitions of writers whose records are gone, or of a dataset without a cursor.
        left = set() if begun else self._writer_partitions()
        for number in sorted({number for _, number in self._scalars}):
            name = Writer(0, number, 0.0).name(self._run.name)
            scalars = [series for key, series in self._scalars.items() if key[1] == number]
            partition = self._dataset.partition(name, self._run.path)
            # Parts from before the cursor do not count.
            staged.add(partition, scalars, fresh=number not in begun)
            left.discard(partition)
        for partition in sorted(left):
            staged.add(partition, [], fresh=True)
        self._held = 0
        self._state.commits += 1
        self._state.moves = staged.moves
        self._state.buffers = [
            _Buffered(*key, series.buffer.state()) for key, series in self._scalars.items()
        ]
        save_cursor(self._dataset, self._place, self._state)
        self._dataset.move(self._place, staged.moves)
        if staged.moves and self._run.name not in self._report.runs:
            self._report.runs.append(self._run.name)

    def close(self) -> None:
        """Does nothing: no file stays open."""

    def _begin(self, cursor: DatasetCursor | None, commits: int = 0) -> None:
        if cursor is None:
            options = self._options.fingerprint()
            cursor = DatasetCursor(format=1, options=options, commits=commits)
        self._state = cursor
        self._held = 0
        self._scalars: dict[tuple[int, int], _Scalars] = {}
        for buffered in cursor.buffers:
            self._open(Writer(buffered.rank, buffered.number, 0.0), buffered.steps)

    def _writer_partitions(self) -> set[str]:
        """Returns the partitions of further writers; those with a cursor are runs themselves."""
        pattern = re.compile(rf"{re.escape(self._place)}%2Fwriter_\d+")
        partitions = self._dataset.names("", pattern)
        return {partition for partition in partitions if not read_cursor(self._dataset, partition)}

    def _moves(self, cursor: DatasetCursor | None) -> Iterator[tuple[str, str]]:
        """Yields the moves of the last commit, except into directories that other runs have now."""
        others = {self._place: b""}
        for staged, path in cursor.moves if cursor is not None else ():
            partition = path.partition("/")[0]
            if partition not in others:
                others[partition] = read_cursor(self._dataset, partition)
            if not others[partition]:
                yield staged, path

    def _is_own(self, cursor: DatasetCursor) -> bool:
        """Whether a cursor names nothing but parts of this run, and files beside it."""
        own = re.compile(
            rf"{re.escape(self._place)}(%2Fwriter_\d+)?/{_DAY.pattern}/{_PART.pattern}"
        )
        return all(
            own.fullmatch(path) and (not staged or _STAGED.fullmatch(staged))
            for staged, path in cursor.moves
        )

    def _open(self, writer: Writer, steps: BufferState | None = None) -> _Scalars:
        key = writer.rank, writer.number
        if key not in self._scalars:
            buffer = StepBuffer(self._run.name, self._report, steps)
            self._scalars[key] = _Scalars(writer, buffer, self._selection)
        return self._scalars[key]

    def _take(self, file: RecordFile, batch: Batch) -> None:
        if batch.kind != SUMMARY:
            return
        scalars = self._open(self._state.writers.of(file, batch))
        # Restarts are known by series that are not selected, too.
        scalars.take(scalars.buffer.add(batch.select(EVERYTHING, STEADY)))
        chosen = batch.select(self._selection, (SCALAR,)).count
        self._held += chosen
        self._report.exported[SCALAR] += chosen
        self._report.left_out += batch.count - chosen


class _Staged:
    """The files of a commit.

    Attributes:
        moves: Their names and their places.
    """

    def __init__(self, dataset: Dataset, folder: str, commit: int, report: Report) -> None:
        self.moves: list[tuple[str, str]] = []
        self._dataset = dataset
        self._place = folder
        self._commit = commit
        self._report = report

    def add(self, partition: str, scalars: list[_Scalars], *, fresh: bool) -> None:
        """Writes the new scalars of some writers, and changes the parts that they supersede.

        Args:
            partition: The directory of the run in the dataset.
            scalars: The scalars of all writers with this name.
            fresh: Whether nothing that is there counts.
        """
        rows: dict[str, list[Any]] = {}
        for series in scalars:
            series.take(series.buffer.flush())
            for day, columns in _by_day(series.drain()):
                rows.setdefault(day, []).append(_table(series.writer.rank, columns))
        is_superseding = any(series.restarted is not None or series.again for series in scalars)
        superseded = _superseded(scalars)
        known = self._dataset.names(partition, _DAY)
        newest = max({*known, *rows}, default="")
        # A day has ended when there is a later one; late values of it may come all the same.
        due = {*rows, *known} if is_superseding or fresh or newest not in known else {*rows}
        for day in sorted(due):
            new, folder = rows.get(day, []), f"{partition}/{day}"
            self._add_day(folder, new, superseded, fresh=fresh, ended=day < newest)
        for series in scalars:
            series.restarted, series.passed = None, series.buffer.step
            series.again.clear()

    def _add_day(
        self, folder: str, new: list[Any], superseded: Any, *, fresh: bool, ended: bool
    ) -> None:
        """Writes new values of a day, and what is left of the others."""
        parts = self._dataset.names(folder, _PART)
        merges = ended or len(parts) >= _MOST_PARTS
        last = parts[-1].removeprefix("part-").removesuffix(".parquet") if parts else "-1"
        paths = (f"{folder}/part-{number:05}.parquet" for number in itertools.count(int(last) + 1))
        group: dict[str, Any] = {}  # what becomes one part: more is never in memory
        changed = False
        if fresh:
            group, parts = {f"{folder}/{part}": _empty() for part in parts}, []
            changed = bool(group)
        for part in parts:
            path = f"{folder}/{part}"
            with self._dataset.part(path, self._place) as opened:
                rows = opened.metadata.num_rows
                is_concerned = bool(opened.subset(superseded).row_groups)
                is_small = merges and rows <= _MOST_ROWS // 2
                if not is_concerned and not is_small:
                    continue
                remaining = opened.to_table(columns=list(_COLUMNS), filter=~superseded)
                remaining = remaining.cast(arrow_schema(_COLUMNS))
            if not is_small:
                if remaining.num_rows < rows:
                    self._stage(path, remaining)
                continue
            if sum(table.num_rows for table in group.values()) + remaining.num_rows > _MOST_ROWS:
                self._merge(group, paths, [])
                group, changed = {}, False
            group[path] = remaining
            changed |= remaining.num_rows < rows
        if changed or len(group) > 1 or new:
            self._merge(group, paths, new)

    def _merge(self, group: dict[str, Any], paths: Iterator[str], new: list[Any]) -> None:
        """Writes the values of parts, and new ones, to their paths and further ones."""
        used = self._stage_all(itertools.chain(group, paths), [*group.values(), *new])
        for path in list(group)[used:]:
            self.moves.append(("", path))

    def _stage_all(self, paths: Iterator[str], tables: list[Any]) -> int:
        """Writes tables as parts of bounded size; returns how many."""
        arrow, _ = require_pyarrow()
        table = arrow.concat_tables([_empty(), *tables])
        firsts = range(0, table.num_rows, _MOST_ROWS)
        for first in firsts:
            self._stage(next(paths), table.slice(first, _MOST_ROWS))
        return len(firsts)

    def _stage(self, path: str, table: Any) -> None:
        """Writes the new content of a path beside it."""
        staged = ""
        if table.num_rows:
            staged = f".rec_summary-{self._commit}-{len(self.moves)}.new"
            size = self._dataset.write(f"{self._place}/{staged}", table)
            self._report.bytes_written += size
        self.moves.append((staged, path))


def _empty() -> Any:
    return arrow_schema(_COLUMNS).empty_table()


def _superseded(scalars: list[_Scalars]) -> Any:
    """Returns which rows scalars supersede, as an expression of Arrow."""
    arrow, _ = require_pyarrow()
    compute = required("pyarrow.compute", "the format parquet", "tables")
    rank, step, tag = map(compute.field, ("rank", "step", "tag"))
    alike = collections.defaultdict[Any, list[int]](list)  # most ranks are: one term for them
    for series in scalars:
        what = series.restarted, series.passed, tuple(sorted(series.again))
        alike[what].append(series.writer.rank)
    superseded = compute.scalar(False)
    for (restarted, passed, again), ranks in alike.items():
        own = rank.isin(ranks)
        if restarted is not None:
            superseded |= own & (step >= restarted)
        if again:
            comes_again = tag.cast(arrow.string()).isin(again)
            superseded |= own & (step == passed) & comes_again
    return superseded


def _by_day(parts: list[Columns]) -> Iterator[tuple[str, Columns]]:
    """Yields scalars by day; those of a day keep their order."""
    if not parts:
        return
    columns = concatenated(parts)
    numbers = np.clip(columns.wall_times // _DAY_SECS, _FIRST_DAY, _LAST_DAY).astype(np.int64)
    for number in np.unique(numbers).tolist():
        yield f"day={np.datetime64(number, 'D')}", rows_of(columns, numbers == number)


def _table(rank: int, columns: Columns) -> Any:
    arrow, _ = require_pyarrow()
    return arrow.table(scalar_arrays(rank, columns), schema=arrow_schema(_COLUMNS))
