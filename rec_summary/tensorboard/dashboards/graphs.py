"""Computation graphs and data pipelines to the Graphs dashboard.

The dashboard reads the hierarchy from the slashes in the names. So every node has the full
name that MindSpore gives it, such as `Default/network-WideDeep/mlp-Dense/MatMul-op0`.
Source: `tensorflow/core/framework/graph.proto` and `node_def.proto`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tensorboard.compat.proto import config_pb2, graph_pb2, summary_pb2, types_pb2, versions_pb2
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from rec_summary._pb import anf_ir_pb2
from rec_summary._pb.anf_ir_pb2 import GraphProto, TypeProto, ValueProto
from rec_summary._pb.lineage_pb2 import DatasetGraph, Operation
from rec_summary.errors import three_part
from rec_summary.series.graphs import OPERATION_NAMES, full_name, operation_parameters
from rec_summary.series.limits import MOST_EDGES, MOST_NODES
from rec_summary.series.text import valid
from rec_summary.tensorboard.dashboards.points import Point, plugin, tensor_value

TAGGED_GRAPHS: Final = plugin(
    "graph_run_metadata_graph", summary_pb2.DATA_CLASS_BLOB_SEQUENCE, b"1"
)
_LONGEST: Final = 400  # characters of an attribute; the page leaves out those beyond 1024 bytes
# Each edge repeats a name, and each node repeats the name of its scope. Without limits, a few
# kilobytes of names become gigabytes. MindSpore's names are far shorter.
_LONGEST_NAME: Final = 500
_DEEPEST: Final = 40  # scopes in scopes
CUT: Final = "..."  # the page shows what is not ASCII as octal numbers
_PRODUCER: Final = 27  # a version of GraphDef that every reader accepts
# Other characters are invalid in the name of a node, for TensorFlow and for the page.
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.\\/>-]")
_SLASHES: Final = re.compile(r"/{2,}")

PARAMETER: Final = "Parameter"
CONSTANT: Final = "Const"  # the page draws it small, beside the node that reads it
OUTPUT: Final = "Output"
_INPUTS_SCOPE: Final = "inputs"
_UNUSED_SCOPE: Final = "unused"
_ORDER: Final = "UpdateState"  # computes nothing; keeps other operators in order
_FIRST_AFTER_OTHERS: Final = "Depend"  # returns its first input after the others are computed

_RENAMED: Final = {"DT_FLOAT16": "DT_HALF", "DT_FLOAT32": "DT_FLOAT", "DT_FLOAT64": "DT_DOUBLE"}
_THEIRS: Final = dict(types_pb2.DataType.items())
_TYPES: Final = {
    number: _THEIRS[theirs]
    for ours, number in anf_ir_pb2.DataType.items()
    if (theirs := _RENAMED.get(ours, ours)) in _THEIRS
}
_SHOWN_VALUES: Final = 12  # of a list, a tuple or a tensor
_DEEPEST_TUPLE: Final = 4  # tuples in tuples that are shown


def graph_def(graph: GraphProto) -> Any:
    """Returns the `GraphDef` of a computation graph.

    Operators have their full names. A parameter has its own name, in the scope of the operator
    that reads it first: weights are in their layer, and moments in the optimizer. The scope
    `inputs` has the inputs of the network, and the parameters that nothing reads (of a network
    with branches or loops, MindSpore records little more than its parameters). Each scope that
    reads a constant has a copy of it. Edges that only keep operators in order, to and from
    `UpdateState` and to `Depend`, are control edges. An input without a definition is left out.
    Repeated names get a number.

    Any graph is valid. Time and memory are linear in the size of the graph.

    Args:
        graph: The graph that MindSpore's `Cell.get_func_graph_proto` returns.

    Raises:
        ValueError: It has more nodes or edges than any page can show.
    """
    nodes = len(graph.node) + len(graph.parameters) + len(graph.const_vals) + len(graph.outputs)
    _check_size(nodes, "nodes", MOST_NODES)
    _check_size(sum(len(node.input) for node in graph.node), "edges", MOST_EDGES)
    return _Builder(graph).build()


class _Builder:
    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._result = _new_graph()
        self._operators = {valid(node.name): node for node in graph.node}
        self._parameters = {valid(parameter.name): parameter for parameter in graph.parameters}
        self._constants = {valid(constant.key): constant.value for constant in graph.const_vals}
        self._wanted = [fit(full_name(node)) for node in graph.node]
        self._homes = self._find_homes()
        scopes = (f"{_INPUTS_SCOPE}/_", f"{_UNUSED_SCOPE}/_")
        self._names = NodeNames([*self._wanted, *self._homes.values(), *scopes])
        self._shown: dict[str, str] = {}  # operators and parameters: name by key
        self._copies: dict[tuple[str, str], str] = {}  # constants: name by scope and key
        self._texts: dict[str, str] = {}  # constants: value by key, which may be large

    def build(self) -> Any:
        names = [self._names.give(wanted) for wanted in self._wanted]
        for node, name in zip(self._graph.node, names, strict=True):
            self._shown.setdefault(valid(node.name), name)
        for name, parameter in self._parameters.items():
            if name not in self._shown:
                self._add_parameter(name, parameter)
        for node, name in zip(self._graph.node, names, strict=True):
            self._add_operator(node, name)
        for output in self._graph.outputs:
            self._add_output(output)
        self._add_unread_constants()
        return self._result

    def _find_homes(self) -> dict[str, str]:
        """Returns full names of parameters: the scope of the first reader, then the own name."""
        homes: dict[str, str] = {}
        for node, wanted in zip(self._graph.node, self._wanted, strict=True):
            scope = wanted.rpartition("/")[0]
            for edge in node.input:
                name = valid(edge.name)
                if name in self._parameters and name not in homes:
                    # The inputs of a network have a number in their names.
                    is_input = name.startswith(_INPUTS_SCOPE) and name[6:].isdigit()
                    homes[name] = f"{_INPUTS_SCOPE if is_input else scope}/{_leaf(name)}"
        return homes

    def _add_parameter(self, name: str, parameter: Any) -> None:
        wanted = self._homes.get(name, f"{_INPUTS_SCOPE}/{_leaf(name)}")
        name_shown = self._shown[name] = self._names.give(wanted)
        node = _add_node(self._result, name_shown, PARAMETER, {"parameter": name})
        _describe(node, parameter.type)

    def _add_operator(self, operator: Any, name: str) -> None:
        scope = name.rpartition("/")[0]
        op = valid(operator.op_type) or "unknown"
        node = _add_node(self._result, name, op, {})  # before its constants
        data, control = [], []
        for position, edge in enumerate(operator.input):
            key = valid(edge.name)
            source = self._source(key, scope)
            if source is None:
                continue
            awaited = op == _ORDER or (op == _FIRST_AFTER_OTHERS and position > 0)
            if awaited or edge.type == edge.CONTROL_EDGE or self._is_order(key):
                control.append(f"^{source}")
            else:
                data.append(source)
        texts = {valid(attr.name): value_text(attr.value) for attr in operator.attribute}
        if operator.instance_name:
            # At the end: it wins over an attribute whose name becomes the same.
            texts.pop("instance_name", None)
            texts["instance_name"] = valid(operator.instance_name)
        _set_texts(node, texts)
        node.input.extend([*data, *dict.fromkeys(control)])
        _describe(node, operator.output_type)

    def _is_order(self, key: str) -> bool:
        operator = self._operators.get(key)
        if operator is not None:
            return valid(operator.op_type) == _ORDER
        value = self._constants.get(key)
        return value is not None and not value.HasField("dtype") and value.str_val in ("U", "IO")

    def _source(self, key: str, scope: str) -> str | None:
        """Returns the name of the node that an input reads; adds the node of a constant."""
        name_shown = self._shown.get(key)
        if name_shown is not None:
            return name_shown
        value = self._constants.get(key)
        if value is None:
            return None
        name = self._copies.get((scope, key))
        if name is None:
            name = self._copies[scope, key] = self._add_constant(key, value, scope)
        return name

    def _add_constant(self, key: str, value: ValueProto, scope: str) -> str:
        name = self._names.give(f"{scope}/{_leaf(key)}" if scope else _leaf(key))
        if key not in self._texts:
            self._texts[key] = value_text(value)
        node = _add_node(self._result, name, CONSTANT, {"value": self._texts[key]})
        dtype = value.tensor_val.data_type if value.HasField("tensor_val") else value.dtype
        if dtype in _TYPES:
            node.attr["dtype"].type = _TYPES[dtype]
        return name

    def _add_unread_constants(self) -> None:
        read = {key for _, key in self._copies}
        for key, value in self._constants.items():
            if key not in read and key not in self._shown:
                self._add_constant(key, value, _UNUSED_SCOPE)

    def _add_output(self, output: Any) -> None:
        source = self._source(valid(output.name), "")
        inputs = [] if source is None else [source]
        node = _add_node(self._result, self._names.give("output"), OUTPUT, {}, inputs)
        _describe(node, output.type)


def _leaf(name: str) -> str:
    return name.replace("/", ".")


def _describe(node: Any, kind: TypeProto) -> None:
    """Sets the shapes and types of a node's outputs, in the attributes that the page reads."""
    dtypes = []
    shapes: list[tuple[int, ...] | None] = []
    for part in _flattened(kind):
        tensor = part.tensor_type
        # MindSpore leaves out the shape of a scalar, and all shapes in a tuple.
        has_shape = tensor.HasField("shape") or part is kind
        shapes.append(tuple(max(dim.size, -1) for dim in tensor.shape.dim) if has_shape else None)
        dtypes.append(tensor.elem_type)
    if not dtypes:
        return
    for shape in shapes:  # a size of -1 is unknown; None is an unknown shape
        stated = node.attr["_output_shapes"].list.shape.add(unknown_rank=shape is None)
        stated.dim.extend(TensorShapeProto.Dim(size=size) for size in shape or ())
    if len(dtypes) == 1 and dtypes[0] in _TYPES:
        node.attr["dtype"].type = _TYPES[dtypes[0]]
    elif any(dtype in _TYPES for dtype in dtypes):
        types = [_TYPES.get(dtype, types_pb2.DT_INVALID) for dtype in dtypes[:_SHOWN_VALUES]]
        node.attr["dtypes"].list.type.extend(types)


def _flattened(kind: TypeProto, depth: int = 0) -> list[TypeProto]:
    if kind.HasField("tensor_type"):
        return [kind]
    if depth > _DEEPEST_TUPLE:
        return []
    return [part for elem in kind.sequence_type.elem_types for part in _flattened(elem, depth + 1)]


def value_text(value: ValueProto, depth: int = 0) -> str:
    """Returns a value of MindSpore's intermediate representation as readable text."""
    if value.HasField("tensor_val"):
        tensor = value.tensor_val
        name = type_name(tensor.data_type)
        numbers = _joined(f"{number:g}" for number in tensor.float_data[: _SHOWN_VALUES + 1])
        return f"{name} tensor {list(tensor.dims)}" + (f": {numbers}" if numbers else "")
    if value.values:
        if depth > _DEEPEST_TUPLE:
            return f"({CUT})"
        parts = (value_text(elem, depth + 1) for elem in value.values[: _SHOWN_VALUES + 1])
        return f"({_joined(parts)})"
    if value.HasField("graph"):
        return f"graph {valid(value.graph.name)}"
    if value.HasField("type_val"):
        return type_name(value.type_val.data_type)
    for field, content in value.ListFields():
        if field.name == "dtype":
            continue
        if isinstance(content, str | bytes):
            return valid(content)
        if isinstance(content, int):
            return str(content)
        if isinstance(content, float):
            return f"{content:g}"
        if field.name.endswith("_vals") and field.name != "tensor_vals":
            show = valid if field.name == "str_vals" else str
            return f"({_joined(show(elem) for elem in content[: _SHOWN_VALUES + 1])})"
        return f"{len(content)} values" if hasattr(content, "__len__") else field.name
    name = type_name(value.dtype) if value.HasField("dtype") else ""
    return "()" if name in ("tuple", "list") else name


def type_name(dtype: int) -> str:
    """Returns the name of a MindSpore type, such as `float32`."""
    return anf_ir_pb2.DataType.Name(dtype).removeprefix("DT_").lower()


def _joined(parts: Any) -> str:
    texts = list(parts)
    if len(texts) > _SHOWN_VALUES:
        texts = [*texts[:_SHOWN_VALUES], CUT]
    return ", ".join(texts)


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
    _check_size(_count(graph), "nodes", MOST_NODES)
    pipeline = _Pipeline()
    pipeline.add(graph)
    return pipeline.graph


def _count(graph: DatasetGraph) -> int:
    return 2 + len(graph.operations) + sum(_count(child) for child in graph.children)


class _Pipeline:
    """A `GraphDef` to which data sets are added."""

    def __init__(self) -> None:
        self.graph = _new_graph()
        self._names = NodeNames(())

    def add(self, graph: DatasetGraph) -> str:
        """Adds a data set, after those that it reads; returns the name of its node."""
        sources = [self.add(child) for child in graph.children]
        parameters = dict(operation_parameters(graph.parameter))
        kind = parameters.pop("op_type", "") or "Dataset"
        scope = name = self._names.give(_kind_name(kind))
        if graph.HasField("sampler"):
            sources.append(self._operation(graph.sampler, scope, "Sampler", []))
        for operation in graph.operations:
            sources = [self._operation(operation, scope, "Operation", sources)]
        if graph.operations or graph.HasField("sampler"):
            name = self._names.give(f"{scope}/{_kind_name(kind)}")
        _add_node(self.graph, name, kind, parameters, sources)
        return name

    def _operation(self, operation: Operation, scope: str, default: str, sources: list[str]) -> str:
        """Adds an operation or a sampler; returns the name of its node."""
        parameters = dict(operation_parameters(operation.operationParam))
        kinds = [parameters.pop(key) for key in OPERATION_NAMES if parameters.get(key)]
        kind = next(iter(kinds), default)
        for key in ("size", "weights"):
            if numbers := getattr(operation, key):
                parameters[key] = ", ".join(f"{number:g}" for number in numbers)
        name = self._names.give(f"{scope}/{_kind_name(kind)}")
        _add_node(self.graph, name, kind, parameters, sources)
        return name


def _kind_name(kind: str) -> str:
    """Returns the last part of a node's name; MindSpore names a function `<lambda>`."""
    return kind.replace("/", "_").strip("<>") or "unnamed"


class NodeNames:
    """Assigns a unique name to each node of a graph; none is a scope of another."""

    def __init__(self, wanted: Iterable[str]) -> None:
        """Takes all names that will be requested, to find the scopes among them."""
        self._scopes: set[str] = set()
        for name in map(fit, wanted):
            end = name.rfind("/")
            # The scopes around a known scope are known, too.
            while end > 0 and name[:end] not in self._scopes:
                self._scopes.add(name[:end])
                end = name.rfind("/", 0, end)
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def give(self, wanted: str) -> str:
        """Returns a unique name: `wanted`, or `wanted` with a number such as `_2`."""
        base = fit(wanted)
        name, count = base, self._counts.get(base, 1)
        while name in self._taken or name in self._scopes:
            count += 1
            name = f"{base}_{count}"
        self._counts[base] = count
        self._taken.add(name)
        return name


def fit(name: str | bytes) -> str:
    """Returns `name` with characters replaced that are invalid in the name of a node.

    Names of more than 500 characters are cut, and scopes beyond the fortieth are joined.
    """
    text = _SLASHES.sub("/", _UNFIT.sub("_", valid(name))).strip("/")
    if not text:
        return "unnamed"
    if text[0] in "_->\\":
        text = f"x{text}"
    if text.count("/") > _DEEPEST:
        *scopes, rest = text.split("/", _DEEPEST)
        text = "/".join([*scopes, rest.replace("/", ".")])
    return text[:_LONGEST_NAME].rstrip("/")


def _check_size(count: int, what: str, most: int) -> None:
    """Checks the number of nodes or edges.

    Raises:
        ValueError: There are more than `most`.
    """
    if count > most:
        raise ValueError(three_part(f"the number of {what} of a graph", count, f"at most {most:,}"))


def _new_graph() -> Any:
    return graph_pb2.GraphDef(versions=versions_pb2.VersionDef(producer=_PRODUCER))


def _set_texts(node: Any, texts: Mapping[str, str]) -> None:
    """Sets attributes of a node that the page shows as text; very long ones are cut."""
    for key, text in texts.items():
        cut = text if len(text) <= _LONGEST else text[: _LONGEST - len(CUT)] + CUT
        node.attr[fit(key)].s = cut.encode()


def _add_node(
    graph: Any, name: str, op: str, texts: Mapping[str, str], inputs: Sequence[str] = ()
) -> Any:
    """Adds a node with attributes as text to a `GraphDef`, and returns it."""
    node = graph.node.add(name=name, op=op, input=inputs)
    _set_texts(node, texts)
    return node


def tagged_graph(tag: str, graph: Any) -> Point:
    """Returns the point of a `GraphDef` under a tag; the page lists it beside the run's graph."""
    part = config_pb2.RunMetadata.FunctionGraphs(pre_optimization_graph=graph)
    metadata = config_pb2.RunMetadata(function_graphs=[part])
    serialized = metadata.SerializeToString(deterministic=True)
    return Point(tag, TAGGED_GRAPHS, tensor_value([serialized]))
