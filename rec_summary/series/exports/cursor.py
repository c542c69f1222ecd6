"""The cursor of a run: how far its export has come, so that a later one only adds.

It is the file `.rec_summary-export.json` in a directory of the export. It is replaced as a whole,
and is not trusted: it is checked when it is read.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct, ValidationError, convert, to_builtins

from rec_summary.records.files import read_plain, temporary_name
from rec_summary.series.exports.directory import ExportDirectory

MOST_BYTES: Final = 1 << 27  # a hundred thousand series take a tenth of that
CURSOR_NAME: Final = ".rec_summary-export.json"
_LONGEST_INTEGER: Final = 20  # digits; some versions of msgspec fail on very large integers

State = TypeVar("State", bound=Struct)


def encode(state: Struct) -> bytes:
    """Returns a state as JSON in ASCII: names of files need not be Unicode."""
    builtins = to_builtins(state, enc_hook=_encode_message)
    return json.dumps(builtins).encode("ascii")


def decode_as(kind: type[State], data: bytes) -> State | None:
    """Returns the state that `data` holds; None if it is invalid."""
    try:
        raw = json.loads(data, parse_int=_integer)
        return convert(raw, kind, str_keys=True, dec_hook=_decode_message)
    except (ValueError, RecursionError, ValidationError, DecodeError):
        return None


def read_cursor(directory: ExportDirectory, run: str) -> bytes:
    """Returns the content of the cursor of a run; nothing if there is none that can be read.

    Raises:
        DestinationError: The run's directory cannot be read.
    """
    with directory.opened(run) as fd:
        if fd is None:
            return b""
        try:
            return read_plain(CURSOR_NAME, MOST_BYTES, dir_fd=fd)
        except OSError:
            return b""


def save_cursor(directory: ExportDirectory, run: str, state: Struct) -> tuple[int, ...]:
    """Writes the cursor of a run; returns its mark.

    Raises:
        DestinationError: It cannot be written; the old one stays.
    """
    with directory.replacing(f"{run}/{CURSOR_NAME}") as file:
        file.write(encode(state))
        file.flush()
        return mark_of(os.fstat(file.fileno()))


def mark_of(status: os.stat_result) -> tuple[int, ...]:
    """Returns the mark of a file: it changes when a cursor is replaced."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def remove_cursor(directory: ExportDirectory, run: str) -> None:
    """Removes the cursor of a run, if there is one.

    Raises:
        DestinationError: It cannot be removed.
    """
    with directory.opened(run) as fd:
        for name in (CURSOR_NAME, temporary_name(CURSOR_NAME)):
            with contextlib.suppress(FileNotFoundError):
                if fd is not None:
                    os.unlink(name, dir_fd=fd)


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError("too large an integer")
    return int(digits)


def _encode_message(message: Message) -> str:
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def _decode_message(kind: Any, value: Any) -> Any:
    return kind.FromString(base64.b64decode(value, validate=True))
