"""The Graphs dashboard: every operator, parameter and constant, and what feeds what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import text_format
from tensorboard.compat.proto.graph_pb2 import GraphDef

from tools.checks.acceptance import series
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "graphs"

_OPERATION_NAMES: Final = ("tensor_op_name", "sampler_name", "op_type")
_OWN_OPS: Final = {"Parameter": "parameter", "Const": "constant", "Output": "output"}

Form = Counter[tuple[str, ...]]
"""How often a graph has each of its nodes and edges, each told by words."""


def expected(records: Records) -> Items:
    """Yields counts of nodes and edges by run, graph and words."""
    for run in records:
        for rank in run.ranks:
            for first, graphs, form in (
                ("", rank.graphs, _computation),
                (series.DATASET_GRAPH, rank.pipelines, _pipeline),
            ):
                forms: list[Form] = []
                for graph in graphs:
                    if (found := form(graph)) not in forms:
                        forms.append(found)
                for number, found in enumerate(forms, start=1):
                    name = first if number == 1 else f"{first or series.GRAPH}_{number}"
                    yield from _items(rank.run, name, found)


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface."""
    for run, info in server.get("plugin/graphs/info").items():
        tags = [tag for tag, kinds in info["tags"].items() if kinds["op_graph"]]
        for tag in ([""] if info["run_graph"] else []) + tags:
            query = {"run": run, "tag": tag} if tag else {"run": run}
            text = server.fetch_query("plugin/graphs/graph", **query)
            graph = text_format.Parse(text.decode(), GraphDef())
            is_pipeline = tag.startswith(series.DATASET_GRAPH)
            yield from _items(run, tag, _shown(graph, is_pipeline=is_pipeline))


def _items(run: str, name: str, form: Form) -> Items:
    yield (run, name), "a graph"
    for words, count in form.items():
        yield (run, name, *words), count


def _computation(graph: Any) -> Form:
    """Returns what a recorded computation graph has; each edge counts once."""
    operators = {node.name: _label(_full_name(node)) for node in graph.node}
    parameters = {each.name: _label(each.name) for each in graph.parameters}
    constants = {each.key: _label(each.key.replace("/", ".")) for each in graph.const_vals}
    form: Form = Counter(
        ("operator", operators[n.name], n.op_type or "unknown") for n in graph.node
    )
    form.update(("parameter", label) for label in parameters.values())
    form.update({("constant", label): 1 for label in constants.values()})
    form.update(("output",) for _ in graph.outputs)
    sources = {**constants, **parameters, **operators}
    edges = {
        ("edge", sources[each.name], operators[node.name])
        for node in graph.node
        for each in node.input
        if each.name in sources
    }
    edges |= {("edge", sources[e.name], "output") for e in graph.outputs if e.name in sources}
    form.update(edges)
    return form


def _pipeline(graph: Any) -> Form:
    """Returns what a recorded data pipeline has: data sets, operations, and their parameters."""
    form: Form = Counter()

    def add(message: Any) -> str:
        sources = [add(child) for child in message.children]
        given = dict(_given(message.parameter))
        kind = given.pop("op_type", "")
        if message.HasField("sampler"):
            sources.append(add_operation(message.sampler, []))
        for operation in message.operations:
            sources = [add_operation(operation, sources)]
        return add_node(kind, given, sources)

    def add_operation(message: Any, sources: list[str]) -> str:
        given = dict(_given(message.operationParam))
        names = [given.pop(name) for name in _OPERATION_NAMES if name in given]
        for name in ("size", "weights"):
            if numbers := getattr(message, name):
                given[name] = ", ".join(f"{number:g}" for number in numbers)
        return add_node(names[0], given, sources)

    def add_node(kind: str, given: dict[str, str], sources: list[str]) -> str:
        form["node", kind] += 1
        form.update(("edge", source, kind) for source in sources)
        form.update(("parameter", kind, name, value) for name, value in given.items())
        return kind

    add(graph)
    return form


def _given(parameter: Any) -> Iterator[tuple[str, str]]:
    for entries in (parameter.mapStr, parameter.mapBool, parameter.mapInt, parameter.mapDouble):
        yield from ((name, str(value)) for name, value in entries.items())
    for name, texts in parameter.mapStrList.items():
        yield name, ", ".join(texts.strValue)


def _shown(graph: Any, *, is_pipeline: bool) -> Form:
    labels = {}
    form: Form = Counter()
    for node in graph.node:
        if is_pipeline:
            labels[node.name] = node.op
            form["node", node.op] += 1
            form.update(
                ("parameter", node.op, name, value.s.decode()) for name, value in node.attr.items()
            )
            continue
        kind = _OWN_OPS.get(node.op, "operator")
        if kind == "operator":
            labels[node.name] = _label(node.name)
            form[kind, labels[node.name], node.op] += 1
        elif kind == "parameter":
            labels[node.name] = _label(node.attr["parameter"].s.decode())
            form[kind, labels[node.name]] += 1
        elif kind == "constant":
            # It is drawn beside each scope that reads it.
            labels[node.name] = _label(node.name.rpartition("/")[2])
            form[kind, labels[node.name]] = 1
        else:
            labels[node.name] = kind
            form[(kind,)] += 1
    edges = [
        ("edge", labels.get(source.lstrip("^"), "nothing"), labels[node.name])
        for node in graph.node
        for source in node.input
    ]
    form.update(edges if is_pipeline else set(edges))
    return form


def _full_name(node: Any) -> str:
    parts = (node.op_type or "unknown", node.name)
    return str(node.full_name) or f"{node.scope}/{'-'.join(part for part in parts if part)}"


def _label(name: str) -> str:
    """Returns a name as far as TensorBoard can show it, without the number of a double."""
    return re.sub(r"_\d+$", "", re.sub(r"[^\w.\\/>-]", "_", name, flags=re.ASCII).strip("/"))
