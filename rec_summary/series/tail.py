"""What is new in records: the scalars of runs, read on from where the last look ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SCALAR
from rec_summary.series.event_reader import EventReader
from rec_summary.series.glance import Series
from rec_summary.series.options import ExportOptions, Selection, matching_runs
from rec_summary.series.report import Report
from rec_summary.series.run_poller import Watch
from rec_summary.series.runs import lineage_of
from rec_summary.series.words import valid

Point = tuple[Series, int, float, float]
"""A value that was read: its series, the step, the wall time, the value."""

_MOST_SERIES: Final = 100_000


@dataclass
class _Place:
    """How far a file has been read."""

    offset: int = 0
    ended: bool = False


class Tail:
    """Reads the scalars of a source, and goes on with what is written.

    Attributes:
        series: What was read, by run, rank and tag.
        status: How far each run has come, by its name, as in `rec-summary lineage`.
        report: What could not be read.
        ignored: How many values were passed over because there are too many tags.
    """

    def __init__(
        self,
        source: str,
        *,
        runs: str | None = None,
        tags: str | None = None,
    ) -> None:
        """Begins; nothing is read yet.

        Args:
            source: A record directory or a tree of them; it need not exist yet.
            runs: A pattern as of `fnmatch`: only these runs.
            tags: A regular expression: only tags in which it is found.

        Raises:
            ArgumentError: `tags` does not compile.
        """
        self.series: dict[tuple[str, int, str], Series] = {}
        self.status: dict[str, str] = {}
        self.report = Report()
        self.ignored = 0
        self._watch = Watch(source)
        self._runs = runs
        self._selection = Selection(ExportOptions(tags=tags))
        self._places: dict[str, _Place] = {}

    def look(
        self,
        told: Callable[[Point], None] | None = None,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> bool:
        """Reads what is new; tells whether there was anything.

        Args:
            told: Told each new value, in the order of the file.
            advance: Called with the number of bytes after each record.
        """
        changed = matching_runs(self._watch.look(), self._runs)
        for run in changed:
            name = valid(run.name)
            for file in run.files:
                if file.name.kind is Kind.SUMMARY:
                    self._read(name, file, told, advance)
            # Lineage files are small, and what counts is what was written last.
            self.status[name] = RunState.Status.Name(
                lineage_of(_lineage_only(run), Report()).status
            )
        return bool(changed)

    def _read(
        self,
        run: str,
        file: RecordFile,
        told: Callable[[Point], None] | None,
        advance: Callable[[int], None],
    ) -> None:
        place = self._places.setdefault(file.path, _Place())
        size = file.nbytes
        if size < place.offset:  # replaced by a shorter one
            place.offset, place.ended = 0, False
        if place.ended or size == place.offset:
            return
        with EventReader(file, self.report, place.offset) as reader:
            for batch in reader:
                advance(reader.offset - place.offset)
                place.offset = reader.offset
                columns = batch.select(self._selection, (SCALAR,)).scalars()
                for code, *point in zip(*(each.tolist() for each in columns[1:]), strict=True):
                    step, wall_time, value = point
                    tag = columns.tags[code]
                    self._take(run, file.name.rank, tag, (step, wall_time, value), told)
            place.offset, place.ended = reader.offset, reader.ended

    def _take(
        self,
        run: str,
        rank: int,
        tag: str,
        point: tuple[int, float, float],
        told: Callable[[Point], None] | None,
    ) -> None:
        key = (run, rank, tag)
        series = self.series.get(key)
        if series is None:
            if len(self.series) >= _MOST_SERIES:
                self.ignored += 1
                return
            series = self.series[key] = Series(run, rank, tag)
        series.add(*point)
        if told is not None:
            told((series, *point))


def _lineage_only(run: Run) -> Run:
    files = tuple(file for file in run.files if file.name.kind is Kind.LINEAGE)
    return Run(run.name, run.path, files)
