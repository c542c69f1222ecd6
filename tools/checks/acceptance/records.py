"""What was recorded, read with the record reader and the protobufs alone.

Four rules say which of the recorded values count:

* Of several values for one step of a series, the last one.
* A series of scalars or histograms whose steps go back means that training was started again
  there: what its rank recorded before for that step and later ones is superseded.
* The ranks of one directory are runs of their own, `<run>/rank_<n>`.
* A wall time that is no number is that of the record before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
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
        run: The TensorBoard run that it belongs to.
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


@dataclass
class Evaluation:
    """An evaluation: at which step, when, what, and on how many samples."""

    step: int
    wall_time: float
    metrics: dict[str, Any]
    message: Any


@dataclass
class Rank:
    """What one rank has recorded.

    Attributes:
        run: The TensorBoard run of its values.
        values: Its values, in order, each series' last ones for each step.
        graphs: Computation graphs.
        pipelines: Dataset graphs.
        train: Its last training lineage, and when that was written.
        custom: Custom data, nested names dotted.
        evaluations: What was evaluated, in order.
        last_lineage: When its last lineage was written.
    """

    run: str
    values: list[Value] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    pipelines: list[Any] = field(default_factory=list)
    train: tuple[Any, float] | None = None
    custom: dict[str, Any] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)
    last_lineage: float = 0.0

    @property
    def has_lineage(self) -> bool:
        """Whether anything is known of it but its values."""
        return bool(self.train or self.custom or self.evaluations)


@dataclass
class RecordedRun:
    """What was recorded in one directory.

    Attributes:
        name: The run's name.
        ranks: Its ranks, ascending.
        began: When its first record was written.
        reached: Its highest step.
        metrics: The numeric results of evaluations that no rank has recorded as scalars.
    """

    name: str
    ranks: list[Rank]
    began: float
    reached: int
    metrics: list[Value]

    @property
    def values(self) -> Iterator[Value]:
        """All values of all ranks, and the metrics."""
        for rank in self.ranks:
            yield from rank.values
        yield from self.metrics


Records = list[RecordedRun]


def read(source: Path) -> Records:
    """Reads a tree of record directories."""
    return [_read_run(run) for run in find_runs(source)]


def _read_run(run: Run) -> RecordedRun:
    events = {file: list(_events(file)) for file in run.files}
    lineage = [event for found in events.values() for _, event in found if _is_lineage(event)]
    several = len(run.ranks) > 1 or any(
        event.train_lineage.run_state.rank_size > 1 for event in lineage
    )
    ranks, began, reached = {}, math.inf, 0
    for number in run.ranks:
        name = f"{run.name}/rank_{number}" if several else run.name
        rank = ranks[number] = Rank(name)
        history = _History(name)
        for file in run.of(Kind.SUMMARY, number):
            for wall_time, event in events[file]:
                began = min(began, wall_time) if began == math.inf else began
                if event.HasField("graph_def"):
                    rank.graphs.append(event.graph_def)
                if event.HasField("summary"):
                    reached = max(reached, event.step)
                    history.add(event.step, wall_time, event.summary.value)
        rank.values = history.values()
        for file in run.of(Kind.LINEAGE, number):
            for wall_time, event in events[file]:
                began = min(began, wall_time) if began == math.inf else began
                _take_lineage(rank, event, wall_time, reached)
    found = list(ranks.values())
    return RecordedRun(run.name, found, began, reached, _metrics(run.name, found))


def _take_lineage(rank: Rank, event: Any, wall_time: float, reached: int) -> None:
    kind = event.WhichOneof("what")
    if kind == "dataset_graph":
        rank.pipelines.append(event.dataset_graph)
        return
    if kind == "train_lineage":
        rank.train = (event.train_lineage, wall_time)
    elif kind == "user_defined_info":
        rank.custom.update(_flattened(event.user_defined_info))
    elif kind == "evaluation_lineage":
        message = event.evaluation_lineage
        step = message.train_step if message.HasField("train_step") else reached
        metrics = json.loads(message.metric) if message.metric else {}
        rank.evaluations.append(Evaluation(step, wall_time, metrics, message))
    else:
        return
    rank.last_lineage = wall_time


def _metrics(run: str, ranks: list[Rank]) -> list[Value]:
    """Returns what the first rank that has evaluated says, unless it is a scalar already."""
    evaluated = [rank for rank in ranks if rank.evaluations]
    if not evaluated:
        return []
    known = {value.message.tag for value in evaluated[0].values}
    history = _History(f"{run}/eval")
    for each in evaluated[0].evaluations:
        numbers = [
            Summary.Value(tag=name, scalar_value=value)
            for name, value in each.metrics.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
            if f"eval/{name}" not in known
        ]
        history.add(each.step, each.wall_time, numbers)
    return history.values()


class _History:
    """The values of one TensorBoard run, of which later ones may take the place of others."""

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

    def values(self) -> list[Value]:
        return list(self._all.values())

    def _restart(self, step: int) -> None:
        self._last = {series: last for series, last in self._last.items() if last <= step}
        for standing in self._standing.values():
            for later in [each for each in standing if each >= step]:
                standing.pop(later).superseded = True


def _flattened(info: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for part in info.user_info:
        yield from _flattened(part, prefix)
    for entries in (info.map_double, info.map_int32, info.map_str, info.map_bool, info.map_int64):
        yield from ((prefix + key, value) for key, value in entries.items())
    for key, inner in info.map_dict.items():
        yield from _flattened(inner, f"{prefix}{key}.")


def _is_lineage(event: Any) -> bool:
    return isinstance(event, LineageEvent)


def _events(file: RecordFile) -> Iterator[tuple[float, Any]]:
    """Yields times and events; what is damaged is passed over."""
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
