"""The size that a PNG declares, without decoding it."""

from __future__ import annotations

import struct
from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_SIZE: Final = struct.Struct(">8s4x4sII")  # the signature, then the header chunk


def png_size(data: bytes) -> tuple[int, int] | None:
    """Returns the width and height that a PNG states; None if it is none, or cut off."""
    if not data.startswith(_PNG) or len(data) < _PNG_SIZE.size:
        return None
    _, chunk, width, height = _PNG_SIZE.unpack_from(data)
    return (width, height) if chunk == b"IHDR" else None
