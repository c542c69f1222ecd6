"""One row for each run: hyper-parameters, data, and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import Record
from rec_summary.series.event_reader import read_events
from rec_summary.series.lineage import Lineage, Plain, recorded_parameters, shortest
from rec_summary.series.report import Report
from rec_summary.series.text import reason, valid

Row = dict[str, Plain]

EVALUATION: Final = "evaluation_lineage"
_TAKE: Final = {"train_lineage": Lineage.take_train, "user_defined_info": Lineage.take_custom}


def rows(runs: Iterable[Run], report: Report) -> list[Row]:
    """Returns a row for each run; unknown values are left out.

    The names are `run`, `status`, the hyper-parameters as TensorBoard shows them, `loss` (the
    last one), `step`, `samples`, `start_time` and `last_update` in seconds since the epoch,
    `host`, then metrics and custom data by their own names. If a name is taken, a metric has
    the prefix `metric.`, and custom data the prefix `custom.`.

    Args:
        runs: The runs.
        report: Takes what cannot be read.
    """
    return [row(run, lineage_of(run, report)) for run in runs]


def row(run: Run, lineage: Lineage) -> Row:
    """Returns the row of a run with a lineage."""
    found: Row = {"run": valid(run.name), "status": RunState.Status.Name(lineage.status)}
    found.update(recorded_parameters(lineage))
    train = lineage.train
    if train is not None:
        state = train.run_state
        if train.algorithm.HasField("loss"):
            found["loss"] = shortest(train.algorithm.loss)
        for name in ("step", "samples", "start_time"):
            if state.HasField(name):
                found[name] = getattr(state, name)
        found["last_update"] = lineage.train_time
        for name in ("host", "reason"):
            if getattr(state, name):
                found[name] = valid(getattr(state, name))
    metrics = {name: _number(metric.value) for name, metric in lineage.metrics.items()}
    for prefix, values in (("metric.", metrics), ("custom.", lineage.custom)):
        for name, value in values.items():
            found[prefix + name if name in found else name] = value
    return found


def lineage_of(run: Run, report: Report) -> Lineage:
    """Returns the lineage of the lowest rank that has one of training; else of any rank."""
    lineages = []
    for rank in run.ranks:
        lineage = Lineage()
        for decoded in lineage_events(run, rank, report):
            take(lineage, decoded, report)
        lineages.append(lineage)
    describing = [lineage for lineage in lineages if lineage.describes_training]
    return (describing or [each for each in lineages if not each.empty] or [Lineage()])[0]


def lineage_events(run: Run, rank: int, report: Report) -> Iterator[Record]:
    """Yields the events of a rank's lineage files."""
    for file in run.of(Kind.LINEAGE, rank):
        yield from read_events(file, report, lambda nbytes: None)


def take(lineage: Lineage, decoded: Record, report: Report) -> None:
    """Adds an event to a lineage; one that holds invalid text is reported and skipped."""
    event = decoded.event
    kind = event.WhichOneof("what")
    try:
        if kind == EVALUATION:
            evaluation = event.evaluation_lineage
            lineage.take_evaluation(evaluation, evaluation.train_step, decoded.wall_time)
        elif kind in _TAKE:
            _TAKE[kind](lineage, event, decoded.wall_time)
    except ValueError as error:
        what = f"this {kind} cannot be read: {reason(error)}; skipped"
        report.problem(decoded.path, decoded.offset, what)


def column_names(table: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the names in any of the rows, in the order of their first appearance."""
    return list(dict.fromkeys(name for each in table for name in each))


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
