"""What differs between two runs: lineage, parameters, data, versions, graph, last values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rec_summary._pb.lineage_pb2 import DatasetGraph
from rec_summary.metrics.tags import EVALUATION
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import by_tag
from rec_summary.series.event_reader import read_batches
from rec_summary.series.graphs import OPERATION_NAMES, full_name, operation_parameters
from rec_summary.series.lineage import Lineage, Plain, hyper_parameters, lineage_events, lineage_of
from rec_summary.series.options import Selection
from rec_summary.series.overview.rows import BEST, BEST_STEP, TIMES, is_metric, rows_of
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars
from rec_summary.series.text import valid

Facts = Mapping[str, Plain]

_DATA: Final = re.compile(r"train_dataset|batch_size|valid_dataset|pipeline\.")
# Any two runs may differ in these; packages are among the versions.
_UNLIKE: Final = ("run", "host", "reason", "commit", "command", "packages", *TIMES)
_TIMED: Final = re.compile(r"rec_summary/|recommender/(?:host|throughput)/")
_NUMBER: Final = re.compile(r"-op\d+$")  # of an operator; it changes when another one is added
_GRAPH: Final = "graph_def"
_PIPELINE: Final = "dataset_graph"


@dataclass(frozen=True)
class FactChange:
    """A fact that differs; None where a run does not have it.

    Attributes:
        name: Its name.
        values: Its value in the first run and in the second.
    """

    name: str
    values: tuple[Plain | None, Plain | None]


@dataclass(frozen=True)
class GraphChange:
    """How the computation graph differs.

    Attributes:
        nodes: The number of operators of both runs.
        removed: The operators that only the first run has: how many there are of a name.
        added: Those that only the second run has.
    """

    nodes: tuple[int, int]
    removed: dict[str, int]
    added: dict[str, int]


@dataclass(frozen=True)
class ValueChange:
    """A scalar whose last value differs.

    Attributes:
        tag: Its tag.
        values: Its last value in the first run and in the second.
        steps: The steps of these values.
        difference: The difference of the second value from the first.
    """

    tag: str
    values: tuple[float, float]
    steps: tuple[int, int]
    difference: float


@dataclass(frozen=True)
class Difference:
    """What differs between two runs; empty where nothing does.

    Attributes:
        facts: What differs in the lineage, by section: `versions`, `data`, `parameters`,
            `settings`, `results`.
        graph: The graph; None if it is the same, or if no run has one.
        values: The scalars whose last values differ, the greatest relative difference first.
        same_values: How many scalars of both runs have the same last value.
        only: The tags of scalars that only the first run has, and only the second.
    """

    facts: dict[str, list[FactChange]]
    graph: GraphChange | None
    values: list[ValueChange]
    same_values: int = 0
    only: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.facts or self.graph or self.values or any(self.only))


class _Last(NamedTuple):
    value: float
    step: int


def difference(runs: tuple[Run, Run], selection: Selection, report: Report) -> Difference:
    """Compares two runs.

    Times, hosts, names, commits, command lines, and scalars that measure time or the telemetry
    itself are not compared. Of several ranks, the lowest counts; of several writers, the first.

    Args:
        runs: The runs.
        selection: Which scalars and steps.
        report: Counts what is read, and takes problems.
    """
    before, after = (_last_values(run, selection) for run in runs)
    common = [tag for tag in before if tag in after]
    ours, theirs = (_sections(run, common, selection, report) for run in runs)
    facts = {name: _changes(ours[name], theirs[name]) for name in ours}
    values = [
        ValueChange(tag, (one.value, other.value), (one.step, other.step), other.value - one.value)
        for tag in common
        if not _same((one := before[tag]).value, (other := after[tag]).value)
    ]
    return Difference(
        {name: changes for name, changes in facts.items() if changes},
        _graph_change(*map(_graph, runs)),
        sorted(values, key=_order),
        len(common) - len(values),
        (sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())),
    )


def _order(change: ValueChange) -> tuple[float, str]:
    share = abs(change.difference) / max(map(abs, change.values))
    return -share if math.isfinite(share) else -math.inf, change.tag


def _sections(
    run: Run, tags: Iterable[str], selection: Selection, report: Report
) -> dict[str, Facts]:
    """Returns what a run states, by section; of metrics, the selected ones without these tags."""
    lineage = lineage_of(run, Report())
    state = lineage.state
    parameters = {**hyper_parameters(lineage), **_validation(lineage), **_pipeline(run)}
    results = next(rows_of(run, report))  # it alone reports problems: it reads all that counts
    known = {name for tag in tags for name in (tag, tag.removeprefix(EVALUATION))}

    def is_wanted(name: str) -> bool:
        if not is_metric(name, results):
            return name != "loss" or selection.tag(name)
        tag = name.removeprefix(BEST_STEP).removeprefix(BEST)
        return name not in known and selection.tag(
            EVALUATION + tag if tag in lineage.metrics else tag
        )

    return {
        "versions": {
            **{
                name: valid(getattr(state, name))
                for name in ("mindspore_version", "rec_summary_version")
                if state.HasField(name)
            },
            **{
                name: valid(text)
                for name, text in sorted(state.packages.items())
                if name != "mindspore"  # above
            },
        },
        "data": {name: value for name, value in parameters.items() if _DATA.match(name)},
        "parameters": {name: value for name, value in parameters.items() if not _DATA.match(name)},
        "settings": {valid(name): valid(value) for name, value in sorted(state.settings.items())},
        "results": {
            name: value
            for name, value in results.items()
            if name not in parameters and name not in _UNLIKE and is_wanted(name)
        },
    }


def _validation(lineage: Lineage) -> dict[str, Plain]:
    path, size = lineage.valid_dataset or ("", 0)
    return {"valid_dataset_path": path, "valid_dataset_size": size} if path or size else {}


def _pipeline(run: Run) -> dict[str, Plain]:
    """Returns the parameters of the last data pipeline of the lowest rank."""
    parameters: dict[str, Plain] = {}
    for record in lineage_events(run, run.ranks[0], Report()):
        if record.kind == _PIPELINE:
            parameters = {}
            _add_parameters(parameters, record.event.dataset_graph)
    return parameters


def _add_parameters(into: dict[str, Plain], graph: DatasetGraph) -> None:
    """Adds the parameters of a data set and of those that it reads, under the name of its type."""
    messages = [graph.parameter, graph.sampler.operationParam]
    messages += [operation.operationParam for operation in graph.operations]
    for message in messages:
        parameters = dict(operation_parameters(message))
        kinds = [parameters.pop(name) for name in OPERATION_NAMES if parameters.get(name)]
        wanted = f"pipeline.{kinds[0] if kinds else 'unnamed'}"
        name, number = wanted, 1
        while name in into:
            number += 1
            name = f"{wanted}_{number}"
        if kinds or parameters:
            into[name] = True
        into.update({f"{name}.{key}": value for key, value in parameters.items()})
    for child in graph.children:
        _add_parameters(into, child)


def _changes(ours: Facts, theirs: Facts) -> list[FactChange]:
    names = dict.fromkeys((*ours, *theirs))
    both = ((name, (ours.get(name), theirs.get(name))) for name in names)
    return [FactChange(name, (a, b)) for name, (a, b) in both if not _same(a, b)]


def _same(one: Plain | None, other: Plain | None) -> bool:
    return one == other or (one != one and other != other)  # NaN is the same as NaN


def _graph(run: Run) -> Counter[str]:
    """Returns how many operators and parameters of each name the computation graph has."""
    for file in run.files_of(Kind.SUMMARY, run.ranks[0]):  # a start may fail before its graph
        for batch in read_batches(file, Report()):
            if batch.kind == _GRAPH:
                graph = next(iter(batch.records())).event.graph_def
                names = [_NUMBER.sub("", full_name(node)) for node in graph.node]
                return Counter([*names, *map(_parameter, graph.parameters)])
    return Counter()


def _parameter(parameter: Any) -> str:
    kind = parameter.type.tensor_type
    shape = ", ".join(str(dimension.size) for dimension in kind.shape.dim)
    return f"{valid(parameter.name)} [{shape}]"


def _graph_change(ours: Counter[str], theirs: Counter[str]) -> GraphChange | None:
    if ours == theirs:
        return None
    nodes = (ours.total(), theirs.total())
    return GraphChange(nodes, dict(ours - theirs), dict(theirs - ours))


def _last_values(run: Run, selection: Selection) -> dict[str, _Last]:
    """Returns the last values of the scalars that measure the training, by tag."""
    first = None
    values: dict[str, _Last] = {}
    for writer, columns in finished_scalars(run, selection, Report()):
        place = writer.rank, writer.number
        if first is None or place < first:
            first, values = place, {}
        if place == first:
            for tag, of_tag in by_tag(columns):
                if not _TIMED.match(tag):
                    values[tag] = _Last(of_tag.values[-1].item(), of_tag.steps[-1].item())
    return values
