"""The numbers that are new in the records of a run, in the order of their times.

Scalars are taken as they are recorded. Evaluations that are told in the lineage only, as
MindSpore's collector has it, become values `eval/<metric>`, as those of our collector.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts.conditions import float32
from rec_summary.alerts.states import Point
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import Record
from rec_summary.series.event_reader import EventReader
from rec_summary.series.lineage import metrics_of, numeric
from rec_summary.series.report import Report
from rec_summary.series.words import valid

_EVALUATION: Final = "eval/"
_OVER: Final = frozenset((RunState.FINISHED, RunState.STOPPED, RunState.FAILED))


class News(NamedTuple):
    """What a record says.

    Attributes:
        rank: The rank that wrote it.
        wall_time: When, in seconds since the epoch.
        step: The step it is about; None if it is about none.
        points: The numbers in it.
        over: Whether it says that the run has ended (True) or goes on (False).
    """

    rank: int
    wall_time: float
    step: int | None
    points: list[Point]
    over: bool | None


class RunReader:
    """Reads a run's files, each from where it stopped the last time."""

    def __init__(self, report: Report) -> None:
        """Begins at the beginning of every file; `report` takes damage."""
        self._report = report
        self._places: dict[str, tuple[int, bool]] = {}  # the offset, and whether that is the end
        self._steps: dict[int, int] = {}  # the last step of each rank
        self._recorded: set[tuple[int, str]] = set()  # evaluations that are scalars as well

    def read(self, run: Run, changed_after: float = -math.inf) -> Iterator[News]:
        """Yields what is new.

        Files are read rank after rank; within a rank, by the times of records.

        Args:
            run: The run, with the files that it has now.
            changed_after: Files that have not changed since then, in seconds since the
                epoch, are passed over.
        """
        for rank in run.ranks:
            streams = [
                self._events(run.of(kind, rank), take, changed_after)
                for kind, take in ((Kind.SUMMARY, self._values), (Kind.LINEAGE, self._lineage))
            ]
            for decoded, take in heapq.merge(*streams, key=lambda each: each[0].wall_time):
                yield take(run.name, rank, decoded)
        kept = {file.path for file in run.files}
        self._places = {path: each for path, each in self._places.items() if path in kept}

    def _events(
        self,
        files: tuple[RecordFile, ...],
        take: Callable[[str, int, Record], News],
        changed_after: float,
    ) -> Iterator[tuple[Record, Callable[[str, int, Record], News]]]:
        for file in files:
            start, ended = self._places.get(file.path, (0, False))
            nbytes = file.nbytes
            if nbytes < start:  # it is another file now
                start, ended = 0, False
            if ended or nbytes <= start or _changed(file.path) < changed_after:
                continue
            with EventReader(file, self._report, start) as reader:
                for batch in reader:
                    for decoded in batch.records():
                        yield decoded, take
                        self._places[file.path] = (decoded.end_offset, False)
                self._places[file.path] = (reader.offset, reader.ended)

    def _values(self, run: str, rank: int, decoded: Record) -> News:
        event = decoded.event
        points = []
        if event.summary.value:
            self._steps[rank] = event.step
        for value in event.summary.value:
            if value.WhichOneof("value") == "scalar_value":
                tag = valid(value.tag)
                if tag.startswith(_EVALUATION):
                    self._recorded.add((rank, tag))
                points.append(
                    Point(run, rank, tag, event.step, decoded.wall_time, value.scalar_value)
                )
        step = event.step if event.summary.value else None
        return News(rank, decoded.wall_time, step, points, None)

    def _lineage(self, run: str, rank: int, decoded: Record) -> News:
        event = decoded.event
        kind = event.WhichOneof("what")
        points, over = [], None
        if kind == "train_lineage":
            # MindSpore's collector writes this record at the end of a training, without a state.
            state = event.train_lineage
            over = not state.HasField("run_state") or state.run_state.status in _OVER
        elif kind == "evaluation_lineage":
            evaluation = event.evaluation_lineage
            has_step = evaluation.HasField("train_step")
            step = evaluation.train_step if has_step else self._steps.get(rank, 0)
            self._steps[rank] = step
            for name, metric in metrics_of(evaluation):
                tag, number = _EVALUATION + name, numeric(metric)
                if number is not None and (rank, tag) not in self._recorded:
                    value = _as_recorded(number)
                    points.append(Point(run, rank, tag, step, decoded.wall_time, value))
        return News(rank, decoded.wall_time, None, points, over)


def _as_recorded(number: float) -> float:
    try:
        return float32(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return -math.inf
