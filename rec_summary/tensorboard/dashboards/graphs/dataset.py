"""The graph of a data pipeline, from its sources to the training."""

from __future__ import annotations

from typing import Any

from rec_summary._pb.lineage_pb2 import DatasetGraph, Operation
from rec_summary.series.graphs import OPERATION_NAMES, operation_parameters
from rec_summary.series.limits import MOST_NODES
from rec_summary.tensorboard.dashboards.graphs.graph_def import (
    NodeNames,
    add_node,
    check_size,
    new_graph,
)


def dataset_graph_def(graph: DatasetGraph) -> Any:
    """Returns the `GraphDef` of a data pipeline.

    Each data set is a node with the name of its type; repeated types get a number. Edges lead
    from the sources to the last data set. The operations of a `map`, and a sampler, are nodes
    in the scope of their data set. Parameters are attributes. Any message is valid: protobuf
    limits the depth of nested data sets.

    Args:
        graph: The pipeline, from the last data set to the sources.

    Raises:
        ValueError: It has more nodes than any page can show.
    """
    check_size(_count(graph), "nodes", MOST_NODES)
    pipeline = _Pipeline()
    pipeline.add(graph)
    return pipeline.graph


def _count(graph: DatasetGraph) -> int:
    return 2 + len(graph.operations) + sum(_count(child) for child in graph.children)


class _Pipeline:
    """A `GraphDef` to which data sets are added."""

    def __init__(self) -> None:
        self.graph = new_graph()
        self._names = NodeNames(())

    def add(self, graph: DatasetGraph) -> str:
        """Adds a data set, after those that it reads; returns the name of its node."""
        sources = [self.add(child) for child in graph.children]
        parameters = dict(operation_parameters(graph.parameter))
        kind = parameters.pop("op_type", "") or "Dataset"
        scope = name = self._names.give(_leaf(kind))
        if graph.HasField("sampler"):
            sources.append(self._operation(graph.sampler, scope, "Sampler", []))
        for operation in graph.operations:
            sources = [self._operation(operation, scope, "Operation", sources)]
        if graph.operations or graph.HasField("sampler"):
            name = self._names.give(f"{scope}/{_leaf(kind)}")
        add_node(self.graph, name, kind, parameters, sources)
        return name

    def _operation(self, operation: Operation, scope: str, default: str, sources: list[str]) -> str:
        """Adds an operation or a sampler; returns the name of its node."""
        parameters = dict(operation_parameters(operation.operationParam))
        found = [parameters.pop(key) for key in OPERATION_NAMES if parameters.get(key)]
        kind = next(iter(found), default)
        for key in ("size", "weights"):
            if numbers := getattr(operation, key):
                parameters[key] = ", ".join(f"{number:g}" for number in numbers)
        name = self._names.give(f"{scope}/{_leaf(kind)}")
        add_node(self.graph, name, kind, parameters, sources)
        return name


def _leaf(kind: str) -> str:
    """Returns the last part of a node's name; MindSpore names a function `<lambda>`."""
    return kind.replace("/", "_").strip("<>") or "unnamed"
