"""What all graphs share: unique node names, attributes as text, and graphs under a tag.

The dashboard reads the hierarchy from the slashes in the names. So every node has the full
name that MindSpore gives it, such as `Default/network-WideDeep/mlp-Dense/MatMul-op0`.
Source: `tensorflow/core/framework/graph.proto` and `node_def.proto`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tensorboard.compat.proto import (
    config_pb2,
    graph_pb2,
    summary_pb2,
    tensor_shape_pb2,
    versions_pb2,
)

from rec_summary.errors import three_part
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


def check_size(count: int, what: str, most: int) -> None:
    """Checks the number of nodes or edges.

    Raises:
        ValueError: There are more than `most`.
    """
    if count > most:
        raise ValueError(three_part(f"the number of {what} of a graph", count, f"at most {most:,}"))


def new_graph() -> Any:
    """Returns an empty `GraphDef`."""
    return graph_pb2.GraphDef(versions=versions_pb2.VersionDef(producer=_PRODUCER))


def add_node(
    graph: Any, name: str, op: str, texts: Mapping[str, str], inputs: Sequence[str] = ()
) -> Any:
    """Adds a node to a `GraphDef`, and returns it.

    Args:
        graph: The graph.
        name: The name of the node.
        op: The name of its operator.
        texts: Attributes that the page shows as text; very long ones are cut.
        inputs: The names of the nodes that it reads.
    """
    node = graph.node.add(name=name, op=op, input=inputs)
    set_texts(node, texts)
    return node


def set_texts(node: Any, texts: Mapping[str, str]) -> None:
    """Sets attributes of a node that the page shows as text; very long ones are cut."""
    for key, text in texts.items():
        cut = text if len(text) <= _LONGEST else text[: _LONGEST - len(CUT)] + CUT
        node.attr[fit(key)].s = cut.encode()


def set_shapes(node: Any, shapes: Iterable[tuple[int, ...] | None]) -> None:
    """Sets the shapes of a node's outputs, in the attribute that the page reads.

    Args:
        node: A `NodeDef`.
        shapes: One for each output. A size of -1 is unknown; None is an unknown shape.
    """
    for shape in shapes:
        stated = node.attr["_output_shapes"].list.shape.add(unknown_rank=shape is None)
        stated.dim.extend(tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in shape or ())


def tagged_graph(tag: str, graph: Any) -> Point:
    """Returns the point of a `GraphDef` under a tag; the page lists it beside the run's graph."""
    part = config_pb2.RunMetadata.FunctionGraphs(pre_optimization_graph=graph)
    metadata = config_pb2.RunMetadata(function_graphs=[part])
    serialized = metadata.SerializeToString(deterministic=True)
    return Point(tag, TAGGED_GRAPHS, tensor_value([serialized]))
