"""TFRecord framing: how one payload lies in a file.

    uint64 length | uint32 masked_crc32c(length) | payload | uint32 masked_crc32c(payload)

All little-endian. Record files and TensorBoard event files share it. Source:
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

_MASK_DELTA: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<QI")

HEADER_BYTES: Final = _HEADER.size  # 12
FOOTER_BYTES: Final = _CRC.size  # 4
OVERHEAD_BYTES: Final = HEADER_BYTES + FOOTER_BYTES


def masked_crc32c(data: bytes) -> int:
    """Returns the CRC-32C of `data`, masked so that a CRC of a CRC stays strong."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _U32


def frame(payload: bytes) -> bytes:
    """Returns `payload` as one framed record, ready to be appended to a file."""
    length = _LENGTH.pack(len(payload))
    return b"".join(
        (length, _CRC.pack(masked_crc32c(length)), payload, _CRC.pack(masked_crc32c(payload)))
    )


def unpack_header(header: bytes) -> int | None:
    """Returns the payload length that a 12-byte header states; None if its CRC is wrong."""
    length, crc = _HEADER.unpack(header)
    return length if masked_crc32c(header[:8]) == crc else None


def footer_matches(payload: bytes, footer: bytes) -> bool:
    """Whether the 4 bytes after a payload are its checksum."""
    return footer == _CRC.pack(masked_crc32c(payload))
