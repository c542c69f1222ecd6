"""The metrics of all ranks of a run as one.

A rank records the states of its metrics now and then. They are summed before they are read: the
mean of the curves of the ranks is not the curve of all data. The merged value at a step is made of
the latest states of all ranks up to there, as soon as all ranks have reached it: where they record
at the same steps, it is what one process would have recorded for all their data. States are read
again when they are needed, so that memory does not grow with them.
"""

from __future__ import annotations

import bisect
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from rec_summary._pb.summary_pb2 import MetricStates, Summary
from rec_summary.metrics.report import Detail, read
from rec_summary.metrics.state import State, restore
from rec_summary.metrics.tags import PREFIX
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import Record
from rec_summary.series.event_reader import record_at
from rec_summary.series.limits import Count, Rank, Seconds, Step
from rec_summary.series.ranks.restarts import Place, Reached, Restarts, find_restart, starts_at
from rec_summary.series.report import Report
from rec_summary.series.text import printable, reason, valid
from rec_summary.values.recommender import MOST_STATES, recommender_values, unpack_states

KIND = "metric_states"
"""The field of `Summary.Value` that holds states; no dashboard shows them as they are."""


_KEPT_BYTES: Final = 256 << 20  # of states of ranks that may be needed for the next step
_LEAST_SECS: Final = 1e-6  # between two records of a rank; a few units of the last place of a time


class RecordedStates(NamedTuple):
    """Where and when a rank recorded states.

    Attributes:
        wall_time: When, in seconds since the epoch; later than what the rank recorded before.
        step: The step.
        file: The name of the file.
        offset: Where in it the record begins, in bytes.
        final: Whether the run of this rank ended here.
        rank_size: The number of ranks that trained together.
    """

    wall_time: Seconds
    step: Step
    file: str
    offset: Count
    final: bool
    rank_size: Count


class _Loaded(NamedTuple):
    """States that were read again.

    Attributes:
        recorded: Where they were recorded.
        record: Their record.
        states: The states.
        size: The size of their arrays, in bytes.
        brief: Whether the rank records the most important metrics only.
    """

    recorded: RecordedStates
    record: Record
    states: dict[str, State]
    size: int
    brief: bool


class MergingState(Struct, forbid_unknown_fields=True):
    """What a later `Merging` needs to continue.

    Attributes:
        recorded: Where each rank recorded states that may be needed still, in order.
        restarts: When training began again.
        done: The start and the step that were merged last.
    """

    recorded: dict[Rank, Annotated[list[RecordedStates], Meta(min_length=1)]] = {}
    restarts: Restarts = []
    done: Place = (0, -1)


@dataclass(frozen=True)
class MergedPoint:
    """The metrics of all ranks at a step.

    Attributes:
        start: How often training had begun again before.
        step: The step.
        values: Values of the kinds that a rank records by itself.
        origin: The latest of the records that it was made of.
    """

    start: int
    step: int
    values: list[Summary.Value]
    origin: Record


class Merging:
    """Merges the states of all ranks of one run."""

    def __init__(
        self, run: str, report: Report, state: MergingState, kept_bytes: int = _KEPT_BYTES
    ) -> None:
        """Begins.

        Args:
            run: The run's name, for notes.
            report: Takes what cannot be merged.
            state: The state to continue with; it is kept up to date.
            kept_bytes: How large the states of ranks may be that are kept for the next step.
        """
        self._run = run
        self._report = report
        self._state = state
        self._kept_bytes = kept_bytes
        self._noted: set[str] = set()

    def take(self, rank: int, decoded: Record) -> None:
        """Keeps the place of a record that has states."""
        for value in decoded.event.summary.value:
            if value.WhichOneof("value") != KIND:
                continue
            step, states = int(decoded.event.step), value.metric_states
            recorded = self._state.recorded.setdefault(rank, [])
            wall_time = decoded.wall_time
            if recorded:
                # A clock that was set back must not hide a restart.
                wall_time = max(wall_time, recorded[-1].wall_time + _LEAST_SECS)
                last = Reached(recorded[-1].step, recorded[-1].wall_time)
                find_restart(self._state.restarts, last, Reached(step, wall_time))
            name = os.path.basename(decoded.path)
            size = max(states.rank_size, 1)
            recorded.append(
                RecordedStates(wall_time, step, name, decoded.offset, bool(states.final), size)
            )

    def points(self, files: Sequence[RecordFile]) -> Iterator[MergedPoint]:
        """Yields the points that can be merged now and could not before, by step."""
        last = {rank: recorded[-1] for rank, recorded in self._state.recorded.items()}
        training = _training(last)
        if training is None:
            return
        known = {os.path.basename(file.path): file for file in files}
        places = {rank: self._places(rank) for rank in sorted(self._state.recorded)}
        limit = min(_horizon(places[rank][-1], each) for rank, each in training.items())
        wanted: set[Place] = set()
        for of_rank in places.values():
            first, end = (bisect.bisect_right(of_rank, at) for at in (self._state.done, limit))
            wanted.update(of_rank[first:end])
        latest: dict[int, _Loaded] = {}
        try:
            for start, step in sorted(wanted):
                try:
                    point = self._merged((start, step), places, known, latest)
                except (ArithmeticError, MemoryError) as error:
                    self._note(f"step {step}: {reason(error)}")
                    point = None
                self._state.done = (start, step)
                if point is not None:
                    yield point
        finally:
            self._forget(places)

    def _places(self, rank: int) -> list[Place]:
        """Returns the start and step of each record of a rank, which ascend."""
        recorded = self._state.recorded[rank]
        starts = starts_at(self._state.restarts, [each.wall_time for each in recorded]).tolist()
        places = zip(starts, (each.step for each in recorded), strict=True)
        return list(itertools.accumulate(places, max))

    def _merged(
        self,
        at: Place,
        places: Mapping[int, list[Place]],
        files: Mapping[str, RecordFile],
        latest: dict[int, _Loaded],
    ) -> MergedPoint | None:
        """Merges the states of one rank after another: all together may be too large."""
        reached: dict[int, RecordedStates] = {}
        for rank, of_rank in places.items():
            count = bisect.bisect_right(of_rank, at)
            if count and of_rank[count - 1][0] == at[0]:
                reached[rank] = self._state.recorded[rank][count - 1]
        training = _training(reached)
        if training is None:
            return None
        total: dict[str, State] = {}
        lost: set[str] = set()
        brief = False
        origin: Record | None = None
        for rank, recorded in training.items():
            loaded = latest.get(rank)
            if loaded is None or loaded.recorded != recorded:
                latest.pop(rank, None)
                loaded = self._load(recorded, files)
                if loaded is None:
                    return None
                if loaded.size + sum(point.size for point in latest.values()) <= self._kept_bytes:
                    latest[rank] = loaded
            if origin is None:
                total = {key: state.copy() for key, state in loaded.states.items()}
            else:
                self._add(total, loaded.states)
            if origin is None or loaded.record.wall_time > origin.wall_time:
                origin = loaded.record
            lost |= _lost(loaded.record)
            brief = loaded.brief
        readings = read(total, Detail(full=not brief))
        readings.scalars.update(dict.fromkeys(lost, math.nan))
        encoded = recommender_values(**vars(readings))
        if not encoded or origin is None:
            return None
        values = [Summary.Value.FromString(state) for state in encoded]
        return MergedPoint(*at, values, origin)

    def _load(self, recorded: RecordedStates, files: Mapping[str, RecordFile]) -> _Loaded | None:
        if recorded.file not in files:
            self._note(f"{recorded.file} is gone, with states of its rank")
            return None
        # Read for a second time: the problems of the file are reported already.
        decoded = record_at(files[recorded.file], recorded.offset)
        if decoded is None:
            return None
        try:
            return _Loaded(recorded, decoded, *_states(decoded))
        except (ValueError, ArithmeticError, MemoryError) as error:
            self._note(f"{recorded.file}, offset {recorded.offset}: {reason(error)}")
            return None

    def _add(self, total: dict[str, State], states: Mapping[str, State]) -> None:
        """Adds the states of a rank; drops what it does not have, or has in another form."""
        for key in list(total):
            try:
                if key in states:
                    total[key].merge(states[key])
                    continue
            except ValueError as error:
                self._note(f"{key} differs from rank to rank. {error}")
            del total[key]

    def _forget(self, places: Mapping[int, list[Place]]) -> None:
        """Drops what no later point needs."""
        for rank, of_rank in places.items():
            merged = bisect.bisect_right(of_rank, self._state.done)
            self._state.recorded[rank] = self._state.recorded[rank][max(merged - 1, 0) :]

    def _note(self, what: str) -> None:
        """Adds a note, one for each file or metric."""
        kind = what.partition(" ")[0]
        if kind not in self._noted:
            self._noted.add(kind)
            self._report.note(f"run {printable(self._run)}: metrics are not merged: {what}")


def _training(last: Mapping[int, RecordedStates]) -> dict[int, RecordedStates] | None:
    """Returns the last states of the ranks that train together; None if one has none.

    A training may go on with fewer ranks or with more of them. The latest record says how many
    there are: those from this number on have left.
    """
    if not last:
        return None
    size = max(last.values(), key=lambda recorded: recorded.wall_time).rank_size
    training = {rank: recorded for rank, recorded in last.items() if rank < size}
    return training if len(training) == size else None


def _horizon(place: Place, recorded: RecordedStates) -> tuple[int, float]:
    """Returns the last start and step up to which a rank has recorded all its states."""
    start, step = place
    return start, math.inf if recorded.final else step


def _lost(decoded: Record) -> set[str]:
    """Returns the tags of metrics that a rank records as NaN.

    Its network predicts NaN: the states only have the time before that.
    """
    return {
        valid(value.tag)
        for value in decoded.event.summary.value
        if valid(value.tag).startswith(PREFIX) and math.isnan(value.scalar_value)
    }


def _states(decoded: Record) -> tuple[dict[str, State], int, bool]:
    """Returns the states of a record, the bytes of their arrays, and whether it is brief."""
    for value in decoded.event.summary.value:
        if value.WhichOneof("value") == KIND:
            message: MetricStates = value.metric_states
            stored = unpack_states(message, MOST_STATES)
            size = sum(array.nbytes for _, arrays in stored.values() for array in arrays.values())
            states = {key: restore(kind, arrays) for key, (kind, arrays) in stored.items()}
            return states, size, message.brief
    return {}, 0, False
