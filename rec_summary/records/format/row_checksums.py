"""CRC-32C of many byte strings of one length at once.

A CRC is linear: that of a string is that of another one, changed by what each differing byte
contributes at its place. So for rows that differ in a few columns only, a table for each of
these columns is all that it takes.

Source: https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4 (the polynomial)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

_POLYNOMIAL: Final = 0x82F63B78  # reflected
_MASK_DELTA: Final = np.uint32(0xA282EAD8)
_LOW_BYTE: Final = np.uint32(0xFF)

Words = npt.NDArray[np.uint32]


def row_checksums(rows: npt.NDArray[np.uint8], columns: Sequence[int]) -> Words:
    """Returns the CRC-32C of each row.

    Args:
        rows: Byte strings, of shape [n, length]; the first is taken as it is.
        columns: The only columns in which rows may differ from the first.

    Returns:
        Checksums without TFRecord's mask, of shape [n].
    """
    first = rows[0].copy()
    first[list(columns)] = 0
    result: Words = np.full(len(rows), google_crc32c.value(first.tobytes()), np.uint32)
    for column in columns:
        result ^= contribution(rows.shape[1], column)[rows[:, column]]
    return result


def contribution(length: int, column: int) -> Words:
    """Returns what each value of a byte adds to the CRC of a string, if there was a 0 before.

    Args:
        length: Of the string.
        column: The place of the byte.

    Returns:
        A word for each value, of shape [256], to be added with exclusive or.
    """
    return _shifted(length - 1 - column)


_tables: Final[list[Words]] = []


def _shifted(zeros: int) -> Words:
    """Returns the contributions of a byte with so many bytes behind it."""
    if not _tables:
        table: Words = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
        _tables.append(table.astype(np.uint32))
    while len(_tables) <= zeros:
        before = _tables[-1]
        _tables.append((before >> np.uint32(8)) ^ _tables[0][before & _LOW_BYTE])
    return _tables[zeros]


def masked(checksums: Words) -> Words:
    """Returns checksums as TFRecord stores them."""
    turned: Words = (checksums >> np.uint32(15)) | (checksums << np.uint32(17))
    result: Any = turned + _MASK_DELTA  # wraps, as it should
    return np.asarray(result, dtype=np.uint32)
