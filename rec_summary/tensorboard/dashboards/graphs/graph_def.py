"""Graphs to the Graphs dashboard: names for its scopes, and its own encoding.

The dashboard knows the hierarchy from the slashes in the names, so every node gets the
full name that MindSpore gives it, `Default/network-WideDeep/mlp-Dense/MatMul-op0`.
Source: `tensorflow/core/framework/graph.proto` and `node_def.proto`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
from rec_summary.tensorboard.dashboards.points import Point, plugin, string_value

TAGGED_GRAPHS: Final = plugin(
    "graph_run_metadata_graph", summary_pb2.DATA_CLASS_BLOB_SEQUENCE, b"1"
)
_LONGEST: Final = 400  # characters of an attribute; the page leaves out those beyond 1024 bytes
# A name is repeated at each edge, and so is a scope's at each node in it: without bounds, a
# few kilobytes of names would become gigabytes. MindSpore's names stay far below.
_LONGEST_NAME: Final = 500
_DEEPEST: Final = 40  # scopes in scopes
CUT: Final = "..."  # the page shows what is not ASCII as octal numbers
_PRODUCER: Final = 27  # a version of GraphDef that every reader takes
# Other characters are invalid in the name of a node, for TensorFlow and for the page.
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.\\/>-]")
_SLASHES: Final = re.compile(r"/{2,}")


class NodeNames:
    """Assigns a unique name to each node of a graph; none is a scope of another."""

    def __init__(self, wanted: Iterable[str]) -> None:
        """Begins with the names that are wanted, to know which of them are scopes."""
        self._scopes: set[str] = set()
        for name in map(fit, wanted):
            end = name.rfind("/")
            # Stop at a scope that is known: those around it are known, too.
            while end > 0 and name[:end] not in self._scopes:
                self._scopes.add(name[:end])
                end = name.rfind("/", 0, end)
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def give(self, wanted: str) -> str:
        """Returns a name like the one that is wanted; `_2` and so on is added if need be."""
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
    """Makes sure that there are not too many nodes or edges.

    Raises:
        ValueError: There are.
    """
    if count > most:
        raise ValueError(three_part(f"the number of {what} of a graph", count, f"at most {most:,}"))


def new_graph() -> Any:
    """Returns an empty `GraphDef`."""
    return graph_pb2.GraphDef(versions=versions_pb2.VersionDef(producer=_PRODUCER))


def set_text(node: Any, key: str, text: str) -> None:
    """Gives a `NodeDef` an attribute that the page shows as text; very long ones are cut."""
    if len(text) > _LONGEST:
        text = text[: _LONGEST - len(CUT)] + CUT
    node.attr[fit(key)].s = text.encode()


def set_shapes(node: Any, shapes: Iterable[tuple[int, ...] | None]) -> None:
    """States the shapes of a node's outputs where the page reads them.

    Args:
        node: A `NodeDef`.
        shapes: One for each output. A size of -1 is unknown; None is a shape of which
            nothing is known.
    """
    for shape in shapes:
        stated = node.attr["_output_shapes"].list.shape.add(unknown_rank=shape is None)
        stated.dim.extend(tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in shape or ())


def tagged_graph(tag: str, graph: Any) -> Point:
    """Returns a point that shows a `GraphDef` beside the run's own graph, under a tag."""
    part = config_pb2.RunMetadata.FunctionGraphs(pre_optimization_graph=graph)
    metadata = config_pb2.RunMetadata(function_graphs=[part])
    serialized = metadata.SerializeToString(deterministic=True)
    return Point(tag, TAGGED_GRAPHS, string_value(serialized, [1]))
