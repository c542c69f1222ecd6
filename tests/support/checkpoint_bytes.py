"""Checkpoint files, encoded field by field."""

from __future__ import annotations

import numpy as np


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def value(name: str, dims: tuple[int, ...], kind: str, content: bytes) -> bytes:
    shape = b"".join(varint(1 << 3) + varint(size) for size in dims)
    tensor = shape + field(2, kind.encode()) + field(3, content)
    return field(1, field(1, name.encode()) + field(2, tensor))


TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
DATA = value("table", (4, 3), "Float32", TABLE.tobytes()) + value(
    "b", (), "Int64", b"\x07" + bytes(7)
)
