"""The recorded values, read with the record reader and the protobufs alone.

* Of several values for one step of a series, the last one counts.
* A series of scalars or histograms whose steps go back means that training was started again:
  what its rank recorded before for that step and later ones is superseded.
* The ranks of one directory are runs of their own, `<run>/rank_<n>`.
* A wall time that is not a finite number is replaced by that of the record before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import LostRecord, RecordError, RecordReader
from rec_summary.records.reading.runs import RecordFile, Run, find_runs

_STEP_BY_STEP: Final = ("scalar_value", "histogram")


@dataclass(eq=False)
class Value:
    """A recorded value.

    Attributes:
        run: The TensorBoard run that shows it.
        step: The training step.
        wall_time: Seconds since the epoch.
        message: The value with its tag.
        superseded: Whether training was started again from its step or an earlier one.
    """

    run: str
    step: int
    wall_time: float
    message: Summary.Value
    superseded: bool = False

    @property
    def kind(self) -> str:
        """The field of `Summary.Value` that it is in."""
        return str(self.message.WhichOneof("value"))


def read(source: Path) -> list[Value]:
    """Returns the values in a tree of record directories, each run's in their order."""
    return [value for run in find_runs(source) for value in _read_run(run)]


def _read_run(run: Run) -> Iterator[Value]:
    lineage = {
        rank: [event for file in run.files_of(Kind.LINEAGE, rank) for event in _events(file)]
        for rank in run.ranks
    }
    states = [event.train_lineage.run_state for events in lineage.values() for _, event in events]
    several = len(run.ranks) > 1 or any(state.rank_size > 1 for state in states)
    reached, metrics = 0, None
    for rank in run.ranks:
        history = _History(f"{run.name}/rank_{rank}" if several else run.name)
        for file in run.files_of(Kind.SUMMARY, rank):
            for wall_time, event in _events(file):
                if event.HasField("summary"):
                    reached = max(reached, event.step)
                    history.add(event.step, wall_time, event.summary.value)
        yield from history.values
        evaluated = [pair for pair in lineage[rank] if pair[1].HasField("evaluation_lineage")]
        if evaluated and metrics is None:  # the first rank with evaluations is shown
            metrics = _History(f"{run.name}/eval")
            known = {value.message.tag for value in history.values}
            for wall_time, event in evaluated:
                message = event.evaluation_lineage
                step = message.train_step if message.HasField("train_step") else reached
                metrics.add(step, wall_time, _metrics(message, known))
    if metrics is not None:
        yield from metrics.values


def _metrics(message: Any, known: set[str]) -> list[Summary.Value]:
    """Returns the numeric results of an evaluation that are not recorded as scalars."""
    return [
        Summary.Value(tag=name, scalar_value=value)
        for name, value in json.loads(message.metric or "{}").items()
        if isinstance(value, int | float) and not isinstance(value, bool)
        if f"eval/{name}" not in known
    ]


class _History:
    """The values of one TensorBoard run; later ones replace or supersede earlier ones."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._all: dict[int, Value] = {}
        self._standing: dict[tuple[str, str], dict[int, Value]] = {}
        self._last: dict[tuple[str, str], int] = {}

    def add(self, step: int, wall_time: float, messages: Any) -> None:
        new = [Value(self._run, step, wall_time, message) for message in messages]
        for value in new:
            series = (value.kind, value.message.tag)
            if value.kind in _STEP_BY_STEP:
                if self._last.get(series, step) > step:
                    self._restart(step)
                self._last[series] = step
        for value in new:
            standing = self._standing.setdefault((value.kind, value.message.tag), {})
            if step in standing:
                del self._all[id(standing[step])]
            standing[step] = self._all[id(value)] = value

    @property
    def values(self) -> list[Value]:
        return list(self._all.values())

    def _restart(self, step: int) -> None:
        self._last = {series: last for series, last in self._last.items() if last <= step}
        for standing in self._standing.values():
            for later in [known for known in standing if known >= step]:
                standing.pop(later).superseded = True


def _events(file: RecordFile) -> Iterator[tuple[float, Any]]:
    """Yields wall times and events; damaged records are skipped."""
    message = Event if file.name.kind is Kind.SUMMARY else LineageEvent
    wall_time = float(file.name.stamp)
    with RecordReader(file.path) as reader:
        while True:
            try:
                record = reader.read()
            except LostRecord:
                continue
            except RecordError:
                return
            if record is None:
                return
            event = message.FromString(record.payload)
            if math.isfinite(event.wall_time):
                wall_time = event.wall_time
            yield wall_time, event
