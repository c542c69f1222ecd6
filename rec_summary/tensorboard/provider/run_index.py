"""The runs of a tree of record directories, kept up to date by a thread."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Container, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rec_summary.errors import ArgumentError
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.records.reading.totals import Totals
from rec_summary.records.remote import Url, path_or_url
from rec_summary.scrubbing import scrubbed
from rec_summary.series.comparison.groups import GROUP, grouped
from rec_summary.series.comparison.samples import (
    SAMPLES,
    STEP,
    unknown_samples,
)
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.event_reader import ScannedFile, scan_together
from rec_summary.series.lineage import hyper_parameters
from rec_summary.series.new_records import (
    PATIENCE_SECS,
    NewRecords,
    ReadPosition,
    boundary,
    newest_part,
)
from rec_summary.series.options import ExportOptions, Selection, matching_runs
from rec_summary.series.report import Report
from rec_summary.series.text import printable, reason
from rec_summary.tensorboard.dashboards.hparams import LAST_STEP, session_points
from rec_summary.tensorboard.dashboards.text import lineage_point
from rec_summary.tensorboard.provider.group_run import STATISTICS, GroupRun
from rec_summary.tensorboard.provider.served_outputs import ServedRuns
from rec_summary.tensorboard.provider.served_run import ServedRun
from rec_summary.tensorboard.run_names import Names, TargetNames, directions_at_first, is_parallel
from rec_summary.tensorboard.run_reader import ReadingState, RunReader, compacted, continues

logger = logging.getLogger("rec_summary")

_INTERVAL_SECS: Final = 0.25
_LONGEST_INTERVAL_SECS: Final = 0.75  # a record shows within a second
_MOST_TRIES: Final = 2
_SCANNED_RUNS: Final = 16  # at once; more are hardly faster
_FEW_FILES: Final = 8
_RESTING_SECS: Final = 60.0
_SMALL: Final = 1 << 20  # bytes that are soon read again
_NEWEST: Final = 8  # files whose time of modification is that of their run
_LONGEST_GROUP: Final = 200  # characters of the name of a group


@dataclass(frozen=True)
class Pace:
    """How much is read at a time.

    Attributes:
        portion_secs: For how long one run is read before the next, in seconds.
        large: Bytes of a run that take so long that its newest files are shown first.
        newest: Bytes at the end of a large run, which are shown first.
        patience: How long to wait at damage in the newest file, in seconds.
    """

    portion_secs: float = 0.1
    large: int = 1 << 26
    newest: int = 1 << 24
    patience: float = PATIENCE_SECS


class _Loader:
    """Reads one run, and describes it.

    Attributes:
        outputs: Its TensorBoard runs.
    """

    def __init__(
        self,
        run: Run,
        names: Names,
        report: Report,
        scanned: dict[str, ScannedFile],
        patience: float,
        *,
        targets: TargetNames,
        x: str,
    ) -> None:
        self._names = names
        self.outputs = ServedRuns(run, names, targets, report, x)
        self._x = x
        self._totals: dict[int, Totals] = {}  # by rank
        self._records = NewRecords(report, patience=patience, scanned=scanned)
        self._reader = RunReader(ReadingState(), {}, self.outputs, self._records)
        self._is_misread = False  # best values were taken before it was said which are better

    @property
    def directions(self) -> dict[str, str]:
        """Which values of metrics are better, as far as the run has been read."""
        return self._reader.directions

    @property
    def is_waiting(self) -> bool:
        """Whether reading stopped at damage that is soon to be tried again."""
        return self._records.is_waiting(self.outputs.run.files)

    def fits(self, run: Run) -> bool:
        """Whether what was read is the beginning of what there is now, and has the same names."""
        if self._is_misread or (self.is_of_several(run) and not self.outputs.targets.several):
            return False
        if not self._names.fit_ranks(run, self.outputs.targets):
            return False
        state = self._reader.state
        if compacted(run, state):
            return False  # values that are in no file any more are known by their place
        return not state.files or continues(run, state, self._records)

    def begin_at(self, file: RecordFile, offset: int) -> None:
        """Leaves out the records of a file that end at an offset or before."""
        position = ReadPosition(boundary(file.path, offset))
        self._reader.state.files[os.path.basename(file.path)] = position

    def is_of_several(self, run: Run) -> bool:
        """Whether several ranks write to the run, as far as it has been read."""
        return len(run.ranks) > 1 or any(
            lineage.state.rank_size > 1 for lineage in self._reader.lineages.values()
        )

    def update(self, run: Run, until: float) -> bool:
        """Reads what is new, and shows it; returns whether that is done.

        Args:
            run: The run, with its files.
            until: When to stop, between two steps; by the monotonic clock. Call it again then.
        """
        reader, state = self._reader, self._reader.state
        for file, batch in reader.new(run, final=False):
            reader.take(file, batch)
            for record in batch.records() if batch.kind == "train_lineage" else ():
                totals = self._totals.setdefault(file.name.rank, Totals())
                totals.take(record.event.train_lineage)
                known = (rank for rank, totals in self._totals.items() if totals.known)
                self.outputs.totals = self._totals.get(min(known, default=-1), self.outputs.totals)
            if time.monotonic() > until:
                return False
        reader.join()
        self._is_misread = reader.directions != self.outputs.targets.directions
        lineages = {rank: each for rank, each in sorted(reader.lineages.items()) if not each.empty}
        for rank, lineage in lineages.items():
            is_first = rank == min(lineages)
            home = self.outputs.session() if is_first else self.outputs.writer(rank)
            if home is not None:
                home.put(state.reached, lineage.last_time, "lineage", [lineage_point(lineage)])
        trained = [lineage for lineage in lineages.values() if lineage.describes_training]
        if trained:
            self.outputs.parameters = hyper_parameters(trained[0])
        furthest = state.furthest
        if self._x == SAMPLES:
            furthest = int(self.outputs.totals.at(furthest))
        if trained and abs(furthest) <= LAST_STEP:
            # With a step beyond, the page of hyper-parameters fails for all runs.
            points = session_points(run.name, trained[0], state.began)
            self.outputs.session().put(0, trained[0].last_time, "lineage", points)
        self.outputs.settle()
        return True


@dataclass
class _Waiting:
    """A run with records that are to be read.

    Attributes:
        run: The run, with its files.
        changed: When it was last written to, in seconds since the epoch.
        portions: How many portions of it have been read since.
    """

    run: Run
    changed: float
    portions: int = 0


class RunIndex:
    """Reads the runs of a tree, and what is added to them.

    Runs are read in portions, the one that was written to last first, so that what is written
    now shows while a large tree is read. Of a large run, the end of its newest files is shown until
    all of it has been read.

    A run is read again from the beginning if its files are others than those that were read, or
    if a second rank writes to it; until that is done, it is shown as it was. So is a small run
    that has rested before it was read: what is shown of it is kept, and not how far it was read.
    A run that is gone is dropped.

    Attributes:
        source: The tree.
        report: What was read, and what cannot be shown.
        failures: Why runs cannot be shown at all, by path.
        event_files: Set as soon as there may be event files in the tree. In a tree at a URL, that
            is not known.
    """

    def __init__(
        self,
        source: str,
        pattern: str | None = None,
        *,
        ranks: str | None = None,
        group_by: str | None = None,
        x: str = STEP,
        pace: Pace = Pace(),
    ) -> None:
        """Prepares; nothing is read before `poll` or `start`.

        Args:
            source: A record directory or a tree of them, a path or a URL; it need not exist yet.
            pattern: A pattern for `fnmatch`: only runs whose names match.
            ranks: The ranks that are shown one by one, as in `ExportOptions`.
            group_by: What runs are grouped by, as of `comparison.groups.grouped`; by default their
                entry `group`. A group of several runs is shown as runs `group/<name>/mean`, `min`
                and `max`.
            x: What series are shown over, `step` or `samples`.
            pace: How much is read at a time.
        """
        self.source = source
        self._pace = pace
        self._group_by = group_by or GROUP
        self._x = x
        self._groups: list[GroupRun] = []
        self._members: dict[str, list[str]] = {}
        self._has_changed = False  # since runs were grouped
        self.report = Report()
        self._pattern = pattern
        self.event_files = threading.Event()
        if isinstance(path_or_url(source), Url):
            self.event_files.set()
        self._poller = RunPoller(source, noticed=self._notice)
        self._names = Names(selection=Selection(ExportOptions(ranks=ranks)))
        self._runs: dict[str, str] = {}  # names by path
        self._shown: dict[str, ServedRuns] = {}  # by path, as all that follow
        self._loaders: dict[str, _Loader] = {}  # of runs that do not rest
        self._waiting: dict[str, _Waiting] = {}
        self._scanned: dict[str, ScannedFile] = {}  # by path; all loaders share it
        self.failures: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rec_summary-index", daemon=True)

    def find(self) -> list[Run]:
        """Returns all runs that there are now, chosen or not; call it before `start`.

        Raises:
            NotFoundError, SourceError: As `find_runs`.
        """
        return self._poller.find()

    def start(self) -> None:
        """Starts a thread that polls."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and the watching of directories."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._poller.close()

    def served(self, names: Container[str] | None = None) -> list[ServedRun]:
        """Returns the TensorBoard runs that have values.

        Args:
            names: Only runs with these names; None means all.
        """
        shown = [
            run
            for loader in list(self._shown.values())  # another thread adds to them
            if self._x == STEP or loader.totals.known
            for name, run in tuple(loader.served.items())
            if (names is None or name in names) and run.started is not None
        ]
        return shown + [group for group in self._groups if names is None or group.name in names]

    def recorded(self) -> list[ServedRuns]:
        """Returns the recorded runs, each with its TensorBoard runs."""
        return list(self._shown.values())

    def groups(self) -> dict[str, list[str]]:
        """Returns the names of the runs of each group that has several, by its name."""
        return self._members

    def poll(self) -> None:
        """Reads all that is new."""
        for _ in self.portions():
            pass

    def portions(self) -> Iterator[Run]:
        """Finds all that is new and reads it; yields the run of each portion after reading it.

        Reading can be stopped there; what is left is read the next time.
        """
        self._find()
        yield from self._read()

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            is_new = True
            try:
                is_new = self._find() or bool(self._waiting)
                polled = time.monotonic()
                # Of a very large tree, more time goes into reading than into searching.
                share = min(4 * (polled - begun), _LONGEST_INTERVAL_SECS)
                until = polled + max(_INTERVAL_SECS, share)
                with contextlib.closing(self._read()) as portions:
                    for _ in portions:
                        if time.monotonic() >= until:
                            break
            except Exception as error:  # noqa: BLE001 - the next poll may succeed
                self._fail(self.source, error)
            now = time.monotonic()
            rest = 0.0 if is_new else (now - begun) * 100  # a poll takes one part in so many
            rest = min(max(_INTERVAL_SECS, rest), _LONGEST_INTERVAL_SECS)
            self._stop.wait(max(begun + rest - now, 0.0))

    def _find(self) -> bool:
        """Finds what is to be read; returns whether there is anything new."""
        changed = self._poller.poll()
        for path in filter(self._runs.__contains__, self._poller.gone()):
            self._waiting.pop(path, None)
            loader = self._loaders.pop(path, None)
            self._release(loader.outputs if loader is not None else None)
            self._release(self._shown.pop(path, None))
            self._has_changed = True
            self._names.release([self._runs.pop(path)])
        # First of all, so that no sub-run gets the name of a run.
        for run in changed:
            if run.path not in self._runs:
                self._runs[run.path] = self._names.claim_run(run.name)
        for run in matching_runs(changed, self._pattern):
            named = dataclasses.replace(run, name=self._runs[run.path])
            self._waiting[run.path] = _Waiting(
                named, max(file.changed for file in run.files[-_NEWEST:])
            )
        return bool(changed)

    def _notice(self, entry: os.DirEntry[str]) -> None:
        # TensorBoard has it in the names of event files, and its loaders follow links.
        if "tfevents" in entry.name or entry.is_symlink():
            self.event_files.set()

    def _read(self) -> Generator[Run]:
        """Reads what waits, in portions; yields the run of each."""
        try:
            while self._waiting:
                waiting = sorted(self._waiting.values(), key=lambda entry: -entry.changed)
                # Of a large run that is written to, something is read each time.
                others = sorted(waiting[1:], key=lambda entry: entry.portions)
                for number, entry in enumerate((waiting[0], *others)):
                    if self._stop.is_set():
                        return
                    if number % _SCANNED_RUNS == 1:
                        self._scan_ahead(others[number - 1 :][:_SCANNED_RUNS])
                    entry.portions += 1
                    is_all = self._update(entry.run)
                    if (shown := self._shown.get(entry.run.path)) is not None:
                        shown.changed = entry.changed
                    if is_all:
                        del self._waiting[entry.run.path]
                        self._has_changed = True
                        rests = time.time() - entry.changed > _RESTING_SECS
                        if rests and entry.run.nbytes < _SMALL:
                            self._unload(entry.run.path)
                    yield entry.run
        finally:
            if self._has_changed:
                self._has_changed = False
                self._group()

    def _group(self) -> None:
        """Makes the TensorBoard runs of groups again."""
        names = [name.strip() for name in self._group_by.split(",")]
        shown = {
            loader.run.name: loader
            for loader in list(self._shown.values())
            if not loader.parameters.keys().isdisjoint(names)
        }
        self._names.release(run.name for run in self._groups)
        groups: list[GroupRun] = []
        found: dict[str, list[str]] = {}
        with contextlib.suppress(ArgumentError):  # not all of the hyper-parameters are known yet
            facts = {name: run.parameters for name, run in shown.items()}
            every = grouped(facts, self._group_by) if facts else {}
            found = {group: runs for group, runs in every.items() if len(runs) > 1}
            for group, runs in found.items():
                members = [shown[name].main() for name in runs]
                for statistic, field in STATISTICS.items():
                    name = self._names.claim(f"group/{group[:_LONGEST_GROUP]}/{statistic}")
                    groups.append(GroupRun(name, members, field))
        self._groups, self._members = groups, found

    def _scan_ahead(self, waiting: Iterable[_Waiting]) -> None:
        """Scans the files of runs that are new, or have rested, together."""
        files = (
            file
            for entry in waiting
            if entry.run.path not in self._loaders and len(entry.run.files) <= _FEW_FILES
            for file in entry.run.files
        )
        self._scanned.clear()
        self._scanned.update(scan_together(files))

    def _update(self, run: Run) -> bool:
        """Reads a portion of what is new in a run; returns whether that is all."""
        path, until = run.path, time.monotonic() + self._pace.portion_secs
        try:
            for _ in range(_MOST_TRIES):
                loader = self._loader_of(run)
                if not loader.update(run, until):
                    return False
                if loader.is_waiting:
                    self._poller.again(run)
                if loader.fits(run):  # else its lineage states that there are more ranks
                    break
            outputs = self._shown[path] = loader.outputs
            if self._x == SAMPLES and not outputs.totals.known:
                raise ArgumentError(unknown_samples(run.name))
            self.failures.pop(path, None)
        except Exception as error:  # noqa: BLE001 - other runs are shown all the same
            self._fail(path, error)
        return True

    def _loader_of(self, run: Run) -> _Loader:
        """Returns what reads a run: a new loader if there is none, or it has read other records."""
        path, several = run.path, False
        directions: dict[str, str] = {}
        known = self._loaders.get(path)
        if known is not None:
            if known.fits(run):
                return known
            several, directions = known.is_of_several(run), known.directions
            self._release(known.outputs)
        elif path in self._shown:
            targets = self._shown[path].targets
            several, directions = targets.several, targets.directions
            self._release(self._shown[path])
        # What a small run's lineage states is seen while it is read.
        is_small = len(run.ranks) == 1 and run.nbytes < _SMALL
        if not is_small:
            several = several or is_parallel(run)
            directions = directions or directions_at_first(run)
        targets = TargetNames(several, {}, directions)
        if path not in self._shown and run.nbytes > self._pace.large:
            self._show_newest(run, targets)
        loader = self._new_loader(run, self.report, self._scanned, targets)
        self._loaders[path] = loader
        if not is_small:
            self._shown.setdefault(path, loader.outputs)
        return loader

    def _new_loader(
        self, run: Run, report: Report, scanned: dict[str, ScannedFile], targets: TargetNames
    ) -> _Loader:
        patience, targets = self._pace.patience, copy.deepcopy(targets)
        return _Loader(run, self._names, report, scanned, patience, targets=targets, x=self._x)

    def _show_newest(self, run: Run, targets: TargetNames) -> None:
        """Shows the end of the newest summary files of each rank, until all has been read."""
        begins = newest_part(run, self._pace.newest)
        if not any(begins.values()):
            return
        files = (file for file in run.files if begins.get(file, 0) < file.nbytes)
        part = dataclasses.replace(run, files=tuple(files))
        loader = self._new_loader(part, Report(), {}, targets)
        try:
            for file in part.files:
                if begins.get(file):
                    loader.begin_at(file, begins[file])
            while not loader.update(part, time.monotonic() + self._pace.portion_secs):
                if self._stop.is_set():
                    return
            self._shown[run.path] = loader.outputs
        finally:
            self._release(loader.outputs)  # the loader of all files gets the same names

    def _unload(self, path: str) -> None:
        """Keeps what is shown of a run; it is read again from its beginning when it goes on."""
        loader = self._loaders.get(path)
        if loader is not None and not loader.is_waiting:
            loader.outputs.rest()
            del self._loaders[path]

    def _release(self, outputs: ServedRuns | None) -> None:
        if outputs is not None:
            self._names.release(outputs.names())

    def _fail(self, path: str, error: Exception) -> None:
        """Reports a failure, once."""
        text = f"{type(error).__name__}: {reason(error)}"
        if self.failures.get(path) != text:
            self.failures[path] = text
            logger.error("rec_summary: %s cannot be shown: %s", printable(scrubbed(path)), text)


def location(source: str) -> str:
    """Returns the name of a source that pages show: without a password."""
    return printable(scrubbed(os.fspath(source)))
