"""TFRecord framing: how a payload is stored in a file, and its checksums.

    uint64 length | uint32 masked_crc32c(length) | payload | uint32 masked_crc32c(payload)

All numbers are little-endian. Record files and TensorBoard event files use it. Sources:
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details and
https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4 (CRC-32C).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

_MASK_DELTA: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF
_POLYNOMIAL: Final = 0x82F63B78  # reflected

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<QI")

HEADER_BYTES: Final = _HEADER.size  # 12
FOOTER_BYTES: Final = _CRC.size  # 4
OVERHEAD_BYTES: Final = HEADER_BYTES + FOOTER_BYTES

Words = npt.NDArray[np.uint32]

_tables: Final[list[Words]] = []  # of `contribution`, by the number of bytes behind


def masked(checksums: Any) -> Any:
    """Returns a CRC-32C, or a uint32 array of them, masked so that a CRC of a CRC stays strong."""
    return (((checksums >> 15) | (checksums << 17)) + _MASK_DELTA) & _U32


def crc32c(data: bytes, before: int = 0) -> int:
    """Returns the CRC-32C, not masked, of `data` behind bytes that have the CRC `before`."""
    crc: int = google_crc32c.extend(before, data)
    return crc


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC-32C of `data`."""
    crc: int = masked(google_crc32c.value(data))
    return crc


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


def row_checksums(rows: npt.NDArray[np.uint8], columns: Sequence[int]) -> Words:
    """Returns the CRC-32C, not masked, of each row of a matrix, of shape [n].

    A CRC is linear: each differing byte changes it by a value that depends on the byte and
    its place only. So a table for each column that differs is enough.

    Args:
        rows: Byte strings, of shape [n, length].
        columns: The only columns in which rows may differ from the first row.
    """
    first = rows[0].copy()
    first[list(columns)] = 0
    result: Words = np.full(len(rows), google_crc32c.value(first.tobytes()), np.uint32)
    for column in columns:
        result ^= contribution(rows.shape[1], column)[rows[:, column]]
    return result


def contribution(length: int, column: int) -> Words:
    """Returns by how much each value of a byte changes the CRC of a string that had 0 there.

    Args:
        length: The length of the string.
        column: The place of the byte.

    Returns:
        A word for each value, of shape [256]; the CRC changes by exclusive or.
    """
    zeros = length - 1 - column
    if not _tables:
        table: Words = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
        _tables.append(table.astype(np.uint32))
    while len(_tables) <= zeros:
        before = _tables[-1]
        _tables.append((before >> np.uint32(8)) ^ _tables[0][before & np.uint32(0xFF)])
    return _tables[zeros]
