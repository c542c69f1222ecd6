"""The size that an encoded image declares, without decoding it."""

from __future__ import annotations

import struct
from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_SIZE: Final = struct.Struct(">8s4x4sII")  # the signature, then the header chunk
_GIF_SIZE: Final = struct.Struct("<6xHH")
_BMP_SIZE: Final = struct.Struct("<18xii")
_JPEG_SEGMENT: Final = struct.Struct(">BBH")
_JPEG_SIZE: Final = struct.Struct(">5xHH")  # of a frame header, behind its marker
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def declared_size(data: bytes) -> tuple[int, int] | None:
    """Returns the width and height that an image states, unread; None if none is found.

    PNG is what records hold. GIF, BMP and JPEG are what TensorBoard would show as well.
    """
    try:
        if data.startswith(_PNG):
            return png_size(data)
        if data.startswith((b"GIF87a", b"GIF89a")):
            width, height = _GIF_SIZE.unpack_from(data)
        elif data.startswith(b"BM"):
            width, height = (abs(side) for side in _BMP_SIZE.unpack_from(data))
        elif data.startswith(b"\xff\xd8"):
            return _jpeg_size(data)
        else:
            return None
    except struct.error:
        return None
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while True:
        start, marker, length = _JPEG_SEGMENT.unpack_from(data, at)
        if start != 0xFF:
            return None
        if marker in _JPEG_FRAMES:
            height, width = _JPEG_SIZE.unpack_from(data, at)
            return width, height
        at += 1 if marker == 0xFF else 2 + length


def png_size(data: bytes) -> tuple[int, int] | None:
    """Returns the width and height that a PNG states; None if it is none, or cut off."""
    if not data.startswith(_PNG) or len(data) < _PNG_SIZE.size:
        return None
    _, chunk, width, height = _PNG_SIZE.unpack_from(data)
    return (width, height) if chunk == b"IHDR" else None
