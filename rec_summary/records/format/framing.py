"""TFRecord framing: how a payload is stored in a file, and its checksums.

    uint64 length | uint32 masked_crc32c(length) | payload | uint32 masked_crc32c(payload)

All numbers are little-endian. Record files and TensorBoard event files use it. Sources:
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details and
https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4 (CRC-32C).
"""

from __future__ import annotations

import struct
from typing import Any, Final

import google_crc32c
import numpy as np

_MASK_DELTA: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<QI")

HEADER_BYTES: Final = _HEADER.size  # 12
FOOTER_BYTES: Final = _CRC.size  # 4
OVERHEAD_BYTES: Final = HEADER_BYTES + FOOTER_BYTES


def masked(checksums: Any) -> Any:
    """Returns a CRC-32C, or a uint32 array of them, masked so that a CRC of a CRC stays strong."""
    return (((checksums >> 15) | (checksums << 17)) + _MASK_DELTA) & _U32


def unmasked(checksums: Any) -> Any:
    """Returns the CRC-32C of a masked one, or of a uint32 array of them."""
    rotated = (checksums - _MASK_DELTA) & _U32
    return ((rotated >> 17) | (rotated << 15)) & _U32


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """Returns the CRC-32C, not masked, of `data` after bytes that have the CRC `before`."""
    # The package takes arrays as they are, but no memoryview.
    chunk = np.asarray(data) if isinstance(data, memoryview) else data
    crc: int = google_crc32c.extend(before, chunk)
    return crc


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC-32C of `data`."""
    crc: int = masked(google_crc32c.value(data))
    return crc


def header(size: int) -> bytes:
    """Returns what is before a payload of `size` bytes."""
    length = _LENGTH.pack(size)
    return length + _CRC.pack(masked_crc32c(length))


def frame(payload: bytes) -> bytes:
    """Returns `payload` as one framed record, ready to be appended to a file."""
    return b"".join((header(len(payload)), payload, _CRC.pack(masked_crc32c(payload))))


def unpack_header(header: bytes) -> int | None:
    """Returns the payload length that a 12-byte header states; None if its CRC is wrong."""
    length, crc = _HEADER.unpack(header)
    return length if masked_crc32c(header[:8]) == crc else None


def footer_matches(payload: bytes, footer: bytes) -> bool:
    """Whether the 4 bytes after a payload are its checksum."""
    return footer == _CRC.pack(masked_crc32c(payload))
