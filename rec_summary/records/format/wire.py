"""Protobuf's wire format: varints read and written, and fields written without objects.

Where MindSpore is loaded, protobuf works in pure Python and takes most of a millisecond for a
histogram of 90 buckets. The functions here write the same bytes as protobuf: fields in the
order of their numbers, each number in its shortest form. The tests compare the bytes.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from rec_summary.arrays import Array, Bytes, Integers

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")


def varint(number: int) -> bytes:
    """Returns an integer of up to 64 bits, negative ones as protobuf's int32 and int64 have it."""
    if 0 <= number < 0x80:
        return bytes((number,))
    number &= 0xFFFF_FFFF_FFFF_FFFF
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads an integer; returns it and the offset after it.

    Args:
        data: The bytes.
        at: The offset of its first byte.
        end: The offset at which the message ends.

    Returns:
        `(-1, end)` if it does not end before `end` or within ten bytes.
    """
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return -1, end


def unaligned(buffer: bytes | Array, form: Any, offset: int = 0) -> Any:
    """Returns the values of a form that begin at each byte from an offset on."""
    count = max(len(buffer) - offset - np.dtype(form).itemsize + 1, 0)
    return np.ndarray((count,), form, buffer, offset if count else 0, (1,))


def varints(words: Array) -> tuple[Integers, Bytes]:
    """Reads an integer at the beginning of each of many words.

    Args:
        words: Eight bytes each, as little-endian numbers, of any shape.

    Returns:
        The integers, and how many bytes each takes: 0 if there are more than eight.
    """
    numbers, lengths = words & 0x7F, np.ones(words.shape, np.uint8)
    more = words & 0x80 != 0
    for digit in range(1, 8):
        if not more.any():
            return numbers.view(np.int64), lengths
        numbers |= np.where(more, words >> digit & 0x7F << 7 * digit, 0)
        lengths += more
        more &= words & 0x80 << 8 * digit != 0
    lengths[more] = 0
    return numbers.view(np.int64), lengths


def lengths(numbers: Integers) -> Integers:
    """Returns how many bytes each of some integers takes, from 0 up to 2^62."""
    sizes, limit = np.ones(numbers.shape, np.int64), 1 << 7
    while (larger := numbers >= limit).any():
        sizes += larger
        limit <<= 7
    return sizes


@functools.cache
def key(field: int, wire_type: int) -> bytes:
    """Returns the key in front of a field's value: its number and wire type."""
    return varint(field << 3 | wire_type)


def number_of(message: Any, field: str) -> int:
    """Returns the number of a field of a generated message class."""
    return int(message.DESCRIPTOR.fields_by_name[field].number)


def float_field(field: int, number: float) -> bytes:
    """Returns a float field; beyond float32 it is infinite, not an error."""
    return key(field, FIXED32) + _packed_float(number)


def _packed_float(number: float) -> bytes:
    try:
        return _FLOAT.pack(number)
    except OverflowError:
        return _FLOAT.pack(math.copysign(math.inf, number))


def bytes_field(field: int, content: bytes) -> bytes:
    """Returns a field of bytes, text in UTF-8, an encoded message, or packed numbers."""
    return key(field, LENGTH) + _with_length(content)


def message_field(field: int, parts: Sequence[bytes]) -> list[bytes]:
    """Returns a field of bytes that are in parts, in parts as well: large ones are not copied."""
    return [key(field, LENGTH) + varint(sum(map(len, parts))), *parts]


def _with_length(content: bytes) -> bytes:
    return varint(len(content)) + content


_INTEGER: Final = (VARINT, varint)
_BYTES: Final = (LENGTH, _with_length)
_ENCODINGS: Final[dict[int, tuple[int, Callable[[Any], bytes]]]] = {
    FieldDescriptor.TYPE_DOUBLE: (FIXED64, _DOUBLE.pack),
    FieldDescriptor.TYPE_FLOAT: (FIXED32, _packed_float),
    FieldDescriptor.TYPE_STRING: (LENGTH, lambda text: _with_length(text.encode("utf-8"))),
    FieldDescriptor.TYPE_BYTES: _BYTES,
    FieldDescriptor.TYPE_MESSAGE: _BYTES,
}


class Fields(dict[str, Callable[[Any], bytes]]):
    """What encodes each field of a message, by its name: `Fields(Event)["step"](7)`.

    A message, and packed numbers, are bytes already.
    """

    def __init__(self, kind: Any) -> None:
        """Takes a generated message class."""
        for field in kind.DESCRIPTOR.fields:
            is_packed = field.GetOptions().packed
            wire_type, encode = _BYTES if is_packed else _ENCODINGS.get(field.type, _INTEGER)
            self[field.name] = _encoder(key(field.number, wire_type), encode)

    def __call__(self, **values: Any) -> bytes:
        """Returns a message of some fields, in the given order; a list or tuple is repeated."""
        parts: list[bytes] = []
        for name, value in values.items():
            if isinstance(value, (list, tuple)):
                parts += map(self[name], value)
            else:
                parts.append(self[name](value))
        return b"".join(parts)


def _encoder(head: bytes, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: head + encode(value)


def packed_varints(numbers: Array) -> bytes:
    """Returns integers of any width, one after the other, as a packed field has them."""
    if not numbers.size:
        return b""
    rest = numbers.astype(np.uint64 if numbers.dtype.kind == "u" else np.int64).view(np.uint64)
    rows = np.zeros((rest.size, 10), np.uint8)
    lengths = np.ones(rest.size, np.intp)
    for digit in range(10):
        rows[:, digit] = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest >>= np.uint64(7)
        more = rest != 0
        if not more.any():
            break
        rows[more, digit] |= 0x80
        lengths += more
    return rows[np.arange(10) < lengths[:, None]].tobytes()
