"""What differs between two runs: lineage, parameters, data, versions, graph, curves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rec_summary._pb.lineage_pb2 import DatasetGraph
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import by_tag, concatenated
from rec_summary.series.comparison.curves import Curve, Parting, parting
from rec_summary.series.event_reader import read_batches
from rec_summary.series.graphs import OPERATION_NAMES, full_name, operation_parameters
from rec_summary.series.lineage import Lineage, Plain, hyper_parameters, lineage_events, lineage_of
from rec_summary.series.options import Selection
from rec_summary.series.overview.rows import TIMES, rows_of
from rec_summary.series.report import Report
from rec_summary.series.runs.values import scalars_in_memory
from rec_summary.series.text import valid

Facts = Mapping[str, Plain]

_DATA: Final = re.compile(r"train_dataset|batch_size|valid_dataset|pipeline\.")
_UNLIKE: Final = ("run", "host", "reason", *TIMES)  # any two runs differ in these
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
class CurveChange:
    """A curve that differs.

    Attributes:
        tag: Its tag.
        parting: Where it parts; None if the runs have no step in common.
    """

    tag: str
    parting: Parting | None


@dataclass(frozen=True)
class Difference:
    """What differs between two runs; empty where nothing does.

    Attributes:
        facts: What differs in the lineage, by section: `versions`, `data`, `parameters`,
            `settings`, `results`.
        graph: The graph; None if it is the same, or if no run has one.
        curves: The curves, the one that parts first before the others.
        same_curves: How many curves do not differ.
        only: The tags of scalars that only the first run has, and only the second.
    """

    facts: dict[str, list[FactChange]]
    graph: GraphChange | None
    curves: list[CurveChange]
    same_curves: int = 0
    only: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.facts or self.graph or self.curves or any(self.only))


def difference(runs: tuple[Run, Run], selection: Selection, report: Report) -> Difference:
    """Compares two runs.

    Times, hosts, names, and scalars that measure time or the telemetry itself are not compared. Of
    several ranks, the lowest counts; of several writers, the first.

    Args:
        runs: The runs.
        selection: Which curves and steps.
        report: Counts what is read, and takes problems.
    """
    ours, theirs = (_sections(run, report) for run in runs)
    facts = {name: _changes(ours[name], theirs[name]) for name in ours}
    before, after = (_curves(run, selection) for run in runs)
    common = [tag for tag in before if tag in after]
    parted = [CurveChange(tag, parting(before[tag], after[tag])) for tag in common]
    changed = [curve for curve in parted if not (curve.parting and curve.parting.same)]
    return Difference(
        {name: changes for name, changes in facts.items() if changes},
        _graph_change(*map(_graph, runs)),
        sorted(changed, key=_order),
        len(common) - len(changed),
        (sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())),
    )


def _order(change: CurveChange) -> tuple[float, float, str]:
    parting = change.parting
    if parting is None:
        return np.inf, np.inf, change.tag
    steps = (np.inf if step is None else step for step in (parting.parts_at, parting.differs_at))
    return (*steps, change.tag)  # type: ignore[return-value]


def _sections(run: Run, report: Report) -> dict[str, Facts]:
    """Returns what a run states, by section."""
    lineage = lineage_of(run, Report())
    state = lineage.state
    parameters = {**hyper_parameters(lineage), **_validation(lineage), **_pipeline(run)}
    results = next(rows_of(run, report))  # it alone reports problems: it reads all that counts
    return {
        "versions": {
            name: getattr(state, name)
            for name in ("mindspore_version", "rec_summary_version")
            if state.HasField(name)
        },
        "data": {name: value for name, value in parameters.items() if _DATA.match(name)},
        "parameters": {name: value for name, value in parameters.items() if not _DATA.match(name)},
        "settings": {valid(name): valid(value) for name, value in sorted(state.settings.items())},
        "results": {
            name: value
            for name, value in results.items()
            if name not in parameters and name not in _UNLIKE
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
    # NaN is the same as NaN.
    return [
        FactChange(name, (a, b)) for name, (a, b) in both if not (a == b or (a != a and b != b))
    ]


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


def _curves(run: Run, selection: Selection) -> dict[str, Curve]:
    """Returns the scalars of a run that measure the training, by tag."""
    every = scalars_in_memory(run, selection, Report())
    first = min(((writer.rank, writer.number) for writer, _ in every), default=None)
    parts = [part for writer, part in every if (writer.rank, writer.number) == first]
    curves = {}
    for tag, columns in by_tag(concatenated(parts)):
        if not _TIMED.match(tag):
            # The values of a very large step come in parts: the last of a step counts.
            last = np.append(columns.steps[1:] != columns.steps[:-1], True)
            curves[tag] = Curve(columns.steps[last], columns.values[last])
    return curves
