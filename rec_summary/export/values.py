"""The values of runs as a stream of plain rows, for everything that is no TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rec_summary.export.events import read_events
from rec_summary.export.lineage import metrics_of, numeric
from rec_summary.export.options import Selection
from rec_summary.export.repeats import Origin, Recorded, StepBuffer
from rec_summary.export.report import Tally
from rec_summary.export.runs_table import EVALUATION, lineage_events
from rec_summary.export.words import valid
from rec_summary.records.directory import Run
from rec_summary.records.names import Kind


class Value(NamedTuple):
    """A recorded value.

    Attributes:
        run: The run's name.
        rank: The rank that recorded it.
        step: The training step.
        recorded: Its kind, tag, protobuf message, and the record it comes from.
    """

    run: str
    rank: int
    step: int
    recorded: Recorded


class Evaluation(NamedTuple):
    """A metric of an evaluation.

    Attributes:
        run: The run's name.
        rank: The rank that evaluated.
        step: The training step; None if it is not recorded.
        wall_time: Seconds since the epoch.
        metric: The metric's name.
        value: Its value, if that is a number.
    """

    run: str
    rank: int
    step: int | None
    wall_time: float
    metric: str
    value: float | None


def recorded_values(
    run: Run,
    kinds: Iterable[str],
    selection: Selection,
    tally: Tally,
    advance: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[Value]:
    """Yields the values of some kinds, rank after rank.

    Of a value that was recorded several times for a step, the last is yielded. Memory is
    bounded by what is recorded for one step.

    Args:
        run: The run.
        kinds: Fields of `Summary.Value`, such as `scalar_value`.
        selection: Which tags and steps.
        tally: Told of what cannot be read.
        advance: Called with the number of bytes after each record that was read.
    """
    wanted = frozenset(kinds)
    name = valid(run.name)
    for rank in run.ranks:
        ready: list[Value] = []

        def emit(
            step: int, values: list[Recorded], rank: int = rank, ready: list[Value] = ready
        ) -> None:
            ready.extend(Value(name, rank, step, recorded) for recorded in values)

        buffer = StepBuffer(run.name, tally, emit, lambda step, origin: None)
        for file in run.of(Kind.SUMMARY, rank):
            for decoded in read_events(file, tally, advance):
                event = decoded.event
                if not event.summary.value or not selection.step(event.step):
                    continue
                origin = Origin(decoded.path, decoded.offset, decoded.wall_time)
                values = [
                    Recorded(kind, tag, value, origin)
                    for value in event.summary.value
                    if (kind := value.WhichOneof("value")) in wanted
                    and selection.tag(tag := valid(value.tag))
                ]
                if values:
                    buffer.add(event.step, decoded.nbytes, values)
                    yield from ready
                    ready.clear()
        buffer.pause()
        yield from ready


def evaluations(run: Run, tally: Tally) -> Iterator[Evaluation]:
    """Yields the metrics of all evaluations of a run."""
    name = valid(run.name)
    for rank in run.ranks:
        for decoded in lineage_events(run, rank, tally):
            event: Any = decoded.event
            if event.WhichOneof("what") != EVALUATION:
                continue
            evaluation = event.evaluation_lineage
            step = evaluation.train_step if evaluation.HasField("train_step") else None
            for metric, value in metrics_of(evaluation):
                yield Evaluation(name, rank, step, decoded.wall_time, metric, numeric(value))
