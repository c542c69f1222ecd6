"""The graph of a data pipeline: from its sources through its operations to the training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import DatasetGraph, Operation, OperationParameter
from rec_summary.series.limits import MOST_NODES
from rec_summary.series.text import valid
from rec_summary.tensorboard.dashboards.graphs.graph_def import (
    NodeNames,
    check_size,
    new_graph,
    set_text,
)

_MAPS: Final = ("mapStr", "mapBool", "mapInt", "mapDouble")
_NAMES_OF_OPERATIONS: Final = ("tensor_op_name", "sampler_name", "op_type")


def dataset_graph_def(graph: DatasetGraph) -> Any:
    """Returns the `GraphDef` of a data pipeline.

    Each data set is a node, named by its type and numbered where a type is repeated;
    edges lead from the sources to the last one. The operations of a `map`, and a sampler,
    are nodes in a scope with their data set. Their parameters are attributes.
    Any message that protobuf reads is valid: it bounds how deep data sets are nested.

    Args:
        graph: The pipeline, from the last data set to the sources.

    Raises:
        ValueError: It has more nodes than any page can show.
    """
    check_size(_count(graph), "nodes", MOST_NODES)
    result = new_graph()
    names = NodeNames(())
    _add(graph, result, names)
    return result


def _count(graph: DatasetGraph) -> int:
    return 2 + len(graph.operations) + sum(_count(child) for child in graph.children)


def _add(graph: DatasetGraph, result: Any, names: NodeNames) -> str:
    """Adds a data set behind those that it reads; returns its node's name."""
    sources = [_add(child, result, names) for child in graph.children]
    parameters = dict(_parameters(graph.parameter))
    kind = parameters.pop("op_type", "") or "Dataset"
    base = names.give(_leaf(kind))
    inner = bool(graph.operations) or graph.HasField("sampler")
    if graph.HasField("sampler"):
        sources.append(_add_operation(graph.sampler, f"{base}/Sampler", [], result, names))
    for operation in graph.operations:
        sources = [_add_operation(operation, f"{base}/Operation", sources, result, names)]
    name = names.give(f"{base}/{_leaf(kind)}") if inner else base
    _add_node(name, kind, sources, parameters, result)
    return name


def _add_operation(
    operation: Operation, fallback: str, sources: list[str], result: Any, names: NodeNames
) -> str:
    parameters = dict(_parameters(operation.operationParam))
    found = [parameters.pop(key) for key in _NAMES_OF_OPERATIONS if parameters.get(key)]
    scope, _, default = fallback.rpartition("/")
    kind = found[0] if found else default
    for key, numbers in (("size", operation.size), ("weights", operation.weights)):
        if numbers:
            parameters[key] = ", ".join(f"{number:g}" for number in numbers)
    name = names.give(f"{scope}/{_leaf(kind)}")
    _add_node(name, kind, sources, parameters, result)
    return name


def _add_node(
    name: str, kind: str, sources: list[str], parameters: dict[str, str], result: Any
) -> None:
    node = result.node.add(name=name, op=kind, input=sources)
    for key, text in parameters.items():
        set_text(node, key, text)


def _leaf(kind: str) -> str:
    """Returns the end of a node's name; MindSpore calls a function `<lambda>`."""
    return kind.replace("/", "_").strip("<>") or "unnamed"


def _parameters(message: OperationParameter) -> Iterator[tuple[str, str]]:
    """Yields names and values as text; what is not Unicode is left out."""
    for field in _MAPS:
        entries = _entries(getattr(message, field))
        yield from ((key, str(valid(x) if isinstance(x, str | bytes) else x)) for key, x in entries)
    for key, texts in _entries(message.mapStrList):
        yield key, ", ".join(valid(text) for text in texts.strValue)


def _entries(mapping: Any) -> list[tuple[str, Any]]:
    try:
        return sorted(mapping.items(), key=lambda entry: entry[0])
    except ValueError:  # a name is not valid Unicode
        return []
