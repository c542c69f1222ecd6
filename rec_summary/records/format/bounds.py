"""Limits of the size of a record.

Bytes and the number of messages are checked before a record is decoded. Two bytes of a record can
become a message of 140 bytes in memory. So the messages of a large record are counted first, in
its bytes, where nothing is allocated.
Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import os
from typing import Any, Final

from google.protobuf.message import DecodeError

from rec_summary.records.format.wire import FIXED32, FIXED64, LENGTH, VARINT, read_varint

VARIABLE: Final = "REC_SUMMARY_MAX_RECORD_MIB"
"""The environment variable that sets `MOST_BYTES`, in MiB."""

UNDECODABLE: Final = (DecodeError, ValueError, RecursionError)
"""What protobuf raises for invalid messages. Its implementation in Python raises `ValueError` for
text that is not UTF-8 and, in older releases, `RecursionError` for deep nesting."""

MOST_PARTS: Final = 4_000_000
_COUNTED_FROM: Final = 1 << 22  # bytes; a smaller record cannot take much memory
_PROTOBUF_MIB: Final = 2047  # what protobuf can decode
_DEFAULT_MIB: Final = 256


def _most_bytes() -> int:
    text = os.environ.get(VARIABLE, "")
    mib = int(text) if text.isdecimal() and text.isascii() and len(text) < 6 else _DEFAULT_MIB
    return min(max(mib, 1), _PROTOBUF_MIB) << 20


MOST_BYTES: Final = _most_bytes()
"""The largest payload of a record that is read."""


def has_too_many_parts(kind: Any, payload: bytes, most: int = MOST_PARTS) -> bool:
    """Whether a payload has more than `most` messages; malformed parts are not counted.

    Args:
        kind: The type of the message.
        payload: The message on the wire.
        most: How many messages may be in it, at any depth.
    """
    return len(payload) >= _COUNTED_FROM and count_parts(kind, payload, most) > most


def count_parts(kind: Any, payload: bytes, most: int) -> int:
    """Returns how many messages are in a payload, at any depth; counting stops above `most`."""
    fields: dict[Any, dict[int, Any]] = {}
    count = 0
    waiting = [(kind.DESCRIPTOR, 0, len(payload))]
    while waiting and count <= most:
        descriptor, at, end = waiting.pop()
        below = fields.get(descriptor)
        if below is None:
            below = fields[descriptor] = {
                field.number: field.message_type
                for field in descriptor.fields
                if field.message_type
            }
        while at < end and count <= most:
            key, at = read_varint(payload, at, end)
            if key < 8:  # no field has the number 0: protobuf stops there, so do not walk on
                break
            wire = key & 7
            if wire == LENGTH:
                length, at = read_varint(payload, at, end)
                if length < 0:
                    break
                inner = below.get(key >> 3)
                if inner is not None:
                    count += 1
                    if length:
                        waiting.append((inner, at, min(at + length, end)))
                at += length
            elif wire == VARINT:
                _, at = read_varint(payload, at, end)
            elif wire == FIXED64:
                at += 8
            elif wire == FIXED32:
                at += 4
            # Groups begin and end without a length: the fields in them are counted as well.
    return count
