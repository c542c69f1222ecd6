"""Names and parameters in the messages of graphs: of a computation, and of a data pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import OperationParameter
from rec_summary.series.text import valid

OPERATION_NAMES: Final = ("tensor_op_name", "sampler_name", "op_type")
"""The parameters that have the name of an operation of a pipeline."""

_MAPS: Final = ("mapStr", "mapBool", "mapInt", "mapDouble")


def full_name(node: Any) -> str:
    """Returns the full name of an operator of a computation graph, a `NodeProto`."""
    if node.full_name:
        return valid(node.full_name)
    parts = (valid(node.op_type) or "unknown", valid(node.name))
    return f"{valid(node.scope)}/{'-'.join(part for part in parts if part)}"


def operation_parameters(message: OperationParameter) -> Iterator[tuple[str, str]]:
    """Yields names and values as text; names that are not Unicode are left out."""
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
