"""The cursor of a run: how far its export has come, so that a later one only adds.

It is `.rec_summary-export.json` beside the event file. It is replaced as a whole, after the
event files, so it never states more than they have. It is not trusted: it is checked when it is
read, and the exporter compares its content with the records and the event files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import Any, Final, Literal

from google.protobuf.message import DecodeError, Message
from msgspec import ValidationError, convert, field, to_builtins

from rec_summary.records.files import read_plain, temporary_name
from rec_summary.tensorboard.event_files.description import Description
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import WriterState
from rec_summary.tensorboard.run_names import TargetNames
from rec_summary.tensorboard.run_reader import ReadingState

MOST_BYTES: Final = 1 << 27  # a hundred thousand series take a tenth of that
CURSOR_NAME: Final = ".rec_summary-export.json"
_LONGEST_INTEGER: Final = 20  # digits; some versions of msgspec fail on very large integers


class Cursor(ReadingState, kw_only=True):
    """How far the export of a run has come.

    Attributes:
        format: The version of this format.
        options: The fingerprint of the options in force.
        targets: The names of its TensorBoard runs.
        outputs: The state of each TensorBoard run, by its name.
        description: What is known of the run as a whole.
    """

    format: Literal[5]
    options: str
    targets: TargetNames
    outputs: dict[str, WriterState] = field(default_factory=dict)
    description: Description = field(default_factory=Description)


def encode(state: Cursor) -> bytes:
    """Returns a state as JSON in ASCII: names of files need not be Unicode."""
    builtins = to_builtins(state, enc_hook=_encode_message)
    return json.dumps(builtins).encode("ascii")


def decode(data: bytes, run: str) -> Cursor | None:
    """Returns the cursor of a run, which names nothing outside it; None if `data` is invalid."""
    try:
        raw = json.loads(data, parse_int=_integer)
        cursor = convert(raw, Cursor, str_keys=True, dec_hook=_decode_message)
    except (ValueError, RecursionError, ValidationError, DecodeError):
        return None
    names = [*cursor.outputs, *cursor.targets.names.values()]
    return cursor if all(_is_below(name, run) for name in names) else None


def load_cursor(logdir: LogDir, run: str) -> Cursor | None:
    """Returns the cursor of a run; None if there is no valid one.

    Raises:
        DestinationError: The run's directory cannot be read.
    """
    with logdir.opened(run) as fd:
        if fd is None:
            return None
        try:
            return decode(read_plain(CURSOR_NAME, MOST_BYTES, dir_fd=fd), run)
        except OSError:
            return None


def save_cursor(logdir: LogDir, run: str, state: Cursor) -> tuple[int, ...]:
    """Writes the cursor of a run; returns its mark.

    Raises:
        DestinationError: It cannot be written; the old one stays.
    """
    with logdir.replacing(f"{run}/{CURSOR_NAME}") as file:
        file.write(encode(state))
        file.flush()
        return mark_of(os.fstat(file.fileno()))


def mark_of(status: os.stat_result) -> tuple[int, ...]:
    """Returns the mark of a file: it changes when a cursor is replaced."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def remove_cursor(logdir: LogDir, run: str) -> None:
    """Removes the cursor of a run, if there is one.

    Raises:
        DestinationError: It cannot be removed.
    """
    with logdir.opened(run) as fd:
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


def _is_below(name: str, run: str) -> bool:
    """Whether a name is that of a run or of a sub-run."""
    rest = name.removeprefix(f"{run}/").split("/")
    return name == run or (name.startswith(f"{run}/") and not {"", ".", ".."}.intersection(rest))
