"""Messages of any content: every field of a protobuf type, with values that nobody expects."""

from __future__ import annotations

import math
import random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from rec_summary._pb.anf_ir_pb2 import (
    DT_BOOL,
    DT_FLOAT16,
    DT_FLOAT32,
    DT_FLOAT64,
    DT_INT64,
    DT_UINT8,
    TensorProto,
)
from rec_summary._pb.summary_pb2 import LossLandscape

_INTEGERS: Final = (0, 1, 2, 3, -1, 7, 90, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
_FLOATS: Final = (0.0, 1.0, -1.5, 1e-45, 1e38, -3e38, float("nan"), float("inf"), float("-inf"))
_DOUBLES: Final = (*_FLOATS, 5e-324, 1e308, -1e308, 1.7e9)
_TEXTS: Final = (
    *("", "a", "loss", "eval/auc", "a/b", "/", "..", "../../x", "Default/net/op", "UpdateState"),
    *("\x00", "\x1b[2J", "$x^{", "{", '{"auc": 0.5}', '{"a": [NaN, 1e999, "x"]}', "é" * 50, "_2"),
    *("learning_rate", "op_type", "x" * 990, "<b>", "|", "\n", "\u202e", "inputs0", "Depend", "U"),
)
_BYTES: Final = (
    b"",
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x05\x00\x00\x00\x07",
    b"GIF89a",
)
_FEW: Final = (0, 0, 1, 1, 1, 2, 3, 9)


def message(kind: Any, source: random.Random, depth: int = 0) -> Any:
    """Returns a message of type `kind`; usually, required fields are there."""
    found = kind()
    if kind is TensorProto and source.random() < 0.8:
        return tensor(
            [source.choice((0, 1, 2, 3, 11)) for _ in range(source.choice(_FEW[:-1]))], source
        )
    if kind is LossLandscape and source.random() < 0.8:
        return landscape(source)
    chosen = {each.name: source.choice(each.fields) for each in kind.DESCRIPTOR.oneofs}
    for field in kind.DESCRIPTOR.fields:
        if field.containing_oneof is not None:
            if chosen[field.containing_oneof.name] is field:
                _fill(found, field, source, depth)
            continue
        needed = _has(field, "required") and source.random() < 0.98
        if not needed and source.random() < 0.5 + 0.06 * depth:
            continue
        _fill(found, field, source, depth)
    return found


def tensor(dims: list[int], source: random.Random) -> TensorProto:
    """Returns a tensor that has as many numbers as its dimensions say."""
    kinds = (DT_FLOAT32, DT_FLOAT64, DT_FLOAT16, DT_INT64, DT_UINT8, DT_BOOL)
    found = TensorProto(dims=dims, data_type=source.choice(kinds))
    found.float_data.extend(source.choice(_FLOATS) for _ in range(math.prod(dims)))
    return found


def landscape(source: random.Random) -> LossLandscape:
    """Returns a landscape whose parts fit each other."""
    found = LossLandscape()
    columns, rows, count = (source.choice((1, 2, 3, 5)) for _ in range(3))
    sizes = {"x": [columns], "y": [rows], "z": [rows, columns]}
    for name, dims in sizes.items():
        getattr(found.landscape, name).CopyFrom(tensor(dims, source))
        if source.random() < 0.7:
            getattr(found.loss_path.points, name).CopyFrom(tensor([count], source))
        getattr(found.convergence_point, name).CopyFrom(tensor([1], source))
    found.loss_path.intervals.extend(range(source.choice((0, count))))
    found.metadata.CopyFrom(message(LossLandscape.Metadata, source))
    return found


def _fill(found: Any, field: Any, source: random.Random, depth: int) -> None:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        for _ in range(source.choice(_FEW)):
            key = source.choice(_TEXTS)
            value = inner.fields_by_name["value"]
            if value.message_type is None:
                getattr(found, field.name)[key] = _value(value, source)
            elif depth < 6:
                below = message(GetMessageClass(value.message_type), source, depth + 1)
                getattr(found, field.name)[key].CopyFrom(below)
    elif inner is not None:
        if depth >= 6:
            return
        for _ in range(source.choice(_FEW) if _has(field, "repeated") else 1):
            below = message(GetMessageClass(inner), source, depth + 1)
            if _has(field, "repeated"):
                getattr(found, field.name).append(below)
            else:
                getattr(found, field.name).CopyFrom(below)
    elif _has(field, "repeated"):
        count = source.choice(_FEW)
        getattr(found, field.name).extend(_value(field, source) for _ in range(count))
    else:
        setattr(found, field.name, _value(field, source))


def _value(field: Any, source: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return source.choice(_BYTES if field.type == FieldDescriptor.TYPE_BYTES else _TEXTS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return source.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return source.choice(field.enum_type.values).number
    if kind == FieldDescriptor.CPPTYPE_DOUBLE:
        return source.choice(_DOUBLES)
    if kind == FieldDescriptor.CPPTYPE_FLOAT:
        return source.choice(_FLOATS)
    number = source.choice(_INTEGERS)
    if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32):
        number = max(-(2**31), min(number, 2**31 - 1))
    unsigned = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
    return abs(number) if kind in unsigned else number


def _has(field: Any, label: str) -> bool:
    """Whether a field is required or repeated: older releases of protobuf know the label only."""
    known = getattr(field, f"is_{label}", None)
    return bool(field.label == getattr(field, f"LABEL_{label.upper()}") if known is None else known)
