"""The scalars of runs while they are written."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.metrics.directions import NAMED
from rec_summary.metrics.tags import EVALUATION
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SCALAR, SUMMARY, Columns, by_tag, gathered, rows_of
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.limits import MOST_SERIES
from rec_summary.series.lineage import lineage_of
from rec_summary.series.new_records import PATIENCE_SECS, NewRecords, newest_part
from rec_summary.series.options import ExportOptions, Selection, matching_runs, tags_named
from rec_summary.series.overview.rows import judging_columns, shows_life
from rec_summary.series.overview.statistics import HEALTH, ScalarSummary
from rec_summary.series.report import Report
from rec_summary.series.runs.values import RankScalars
from rec_summary.series.runs.writers import Writers
from rec_summary.series.text import valid

_TOLD: Final = re.compile(rf"{tags_named('loss')}|\A{EVALUATION}|{NAMED}")


class Tail:
    """Reads the scalars of a source, and goes on with what is written.

    Attributes:
        series: The scalars so far, by run, rank and tag; a second process that records as the same
            rank at the same time has the run `<run>/writer_2`.
        status: The status of each run, by its name, as in `rec-summary lineage`.
        report: How much was read, and what could not be read.
        selection: Which values are read.
        skipped: How many bytes of each run `skip` has left out, by its path.
        ignored: How many values were ignored because there are too many tags.
    """

    def __init__(
        self,
        source: str,
        *,
        runs: str | None = None,
        tags: str | None = None,
        since: int | str | None = None,
        ranks: str | None = None,
        patience: float = PATIENCE_SECS,
    ) -> None:
        """Begins; nothing is read yet.

        Args:
            source: A record directory or a tree of them; it need not exist yet.
            runs: A pattern for `fnmatch`: only these runs.
            tags: A regular expression: only tags in which it is found.
            since: Only values from here on, as in `ExportOptions`.
            ranks: The ranks that are shown, as in `ExportOptions`.
            patience: As in `NewRecords`.

        Raises:
            ArgumentError: `tags` or `since` is invalid.
        """
        self.series: dict[tuple[str, int, str], ScalarSummary] = {}
        self.status: dict[str, str] = {}
        self.report = Report()
        self.ignored = 0
        self.skipped: dict[str, int] = {}
        self._poller = RunPoller(source)
        self._new = NewRecords(self.report, patience=patience)
        self._writers: dict[str, Writers] = {}  # by the path of the run
        # By the names of runs: what a run states, and when its last record came.
        self._states: dict[str, tuple[Run, RunState, float]] = {}
        self._runs = runs
        self.selection = Selection(ExportOptions(tags=tags, since=since, ranks=ranks))

    def find(self) -> list[Run]:
        """Returns all runs that there are now, chosen or not; reading begins with them.

        Raises:
            NotFoundError, SourceError: As `find_runs`.
        """
        return self._poller.find()

    def skip(self, newest: int = 0) -> None:
        """Skips the scalars that are there now, without reading them.

        Args:
            newest: The size of the newest part of each run that is not skipped, in bytes. If it has
                no scalar that is chosen, all of the run is read.
        """
        new = self.find() if newest else self._poller.poll()  # the next poll reads what was found
        for run in matching_runs(new, self._runs):
            for file, begin in newest_part(run, newest).items():
                if begin:
                    self._new.skip(file, begin)
                    self.skipped[run.path] = self.skipped.get(run.path, 0) + begin

    def poll(self) -> Iterator[RankScalars]:
        """Reads what is new, while it is iterated over; yields new scalars."""
        for run in matching_runs(self._poller.poll(), self._runs):
            files = [file for file in run.files if file.name.kind is Kind.SUMMARY]
            yield from self._scalars(run, files)
            if run.path in self.skipped and not self._has_scalars(run):
                del self.skipped[run.path], self._writers[run.path]
                for file in files:
                    self._new.skip(file, 0)
                yield from self._scalars(run, files)
            if self._new.is_waiting(files):
                self._poller.again(run)
            # Lineage files are small, and the last record counts.
            name, writers = valid(run.name), self._writers[run.path].writers
            lineage = lineage_of(run, Report())
            last = max((writer.last for writer in writers), default=0.0)
            for run_name in (name, *(writer.name(name) for writer in writers)):
                self.status[run_name] = RunState.Status.Name(lineage.status)
                self._states[run_name] = run, lineage.state, max(last, lineage.last_time)

    def silent_since(self, run: str) -> float | None:
        """Returns when a run recorded last that should be running and gives no sign of life."""
        known = self._states.get(run)
        return None if known is None or shows_life(*known) else known[2]

    def ordered(self) -> list[ScalarSummary]:
        """Returns the series by run, rank and tag; the telemetry's counters come last of each."""
        keys = sorted(self.series, key=lambda key: (*key[:2], key[2].startswith(HEALTH), key[2]))
        return [self.series[key] for key in keys]

    def overview(self) -> list[ScalarSummary]:
        """Returns the losses, the AUC and calibration of each task, and other metrics.

        Of a run without any, it returns all series.
        """
        shown = list[ScalarSummary]()
        for _, group in itertools.groupby(self.ordered(), lambda series: (series.run, series.rank)):
            every = list(group)
            judging = judging_columns([[series.tag for series in every]])
            wanted = {*judging, *(tag.replace("/auc/", "/calibration/") for tag in judging)}
            chosen = [each for each in every if each.tag in wanted or _TOLD.search(each.tag)]
            shown += chosen or every
        return shown

    def _has_scalars(self, run: Run) -> bool:
        names = {writer.name(valid(run.name)) for writer in self._writers[run.path].writers}
        return any(name in names for name, *_ in self.series)

    def _scalars(self, run: Run, files: Sequence[RecordFile]) -> Iterator[RankScalars]:
        """Reads what is new in the files of a run."""
        name, writers = valid(run.name), self._writers.setdefault(run.path, Writers())
        newest = {file.name.rank: file for file in files}  # the last one of each rank
        for file in files:
            for columns in gathered(self._read(file, newest[file.name.rank], writers)):
                writer = writers.known(file)
                if self.selection.rank(writer.rank, run.ranks):
                    place = writer.name(name), writer.rank
                    yield RankScalars(*place, self._add(place, columns))

    def _read(self, file: RecordFile, newest: RecordFile, writers: Writers) -> Iterator[Columns]:
        # The newest file says when a process recorded for the last time.
        after = -math.inf if file == newest else self.selection.since.wall_time
        for batch in self._new.batches((file,), after, newest):
            if batch.kind == SUMMARY:
                writers.of(file, batch)
                yield batch.select(self.selection, (SCALAR,)).scalars()
            else:
                writers.begins(file, batch)

    def _add(self, run: tuple[str, int], columns: Columns) -> Columns:
        """Adds scalars to their series; returns those for whose series there was room."""
        ignored = []
        for tag, values in by_tag(columns):
            key = (*run, tag)
            series = self.series.get(key)
            if series is None and len(self.series) >= MOST_SERIES:
                self.ignored += len(values.codes)
                ignored.append(int(values.codes[0]))
                continue
            if series is None:
                series = self.series[key] = ScalarSummary(*key)
            series.extend(values)
        if ignored:
            columns = rows_of(columns, ~np.isin(columns.codes, ignored))
        return columns
