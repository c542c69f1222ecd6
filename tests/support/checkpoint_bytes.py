"""Checkpoint files, encoded field by field."""

from __future__ import annotations

import numpy as np

from tests.support.crafted import field, varint


def value(name: str, dims: tuple[int, ...], kind: str, content: bytes) -> bytes:
    shape = b"".join(varint(1 << 3) + varint(size) for size in dims)
    tensor = shape + field(2, kind.encode()) + field(3, content)
    return field(1, field(1, name.encode()) + field(2, tensor))


TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
DATA = value("table", (4, 3), "Float32", TABLE.tobytes()) + value(
    "b", (), "Int64", b"\x07" + bytes(7)
)
