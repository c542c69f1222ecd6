"""The cursor of a run: how far its export has come, so that a later one only adds.

The cursor is the file `.rec_summary-export.json` beside the run's event file. It is replaced
as a whole, after the event files, so it never states more than they have. `Cursor` is its
format. The file is not trusted and is checked when it is read: a valid cursor has the right
types, and names nothing outside its run. The exporter compares its content with the records
and the event files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import Any, Final, Literal

from google.protobuf.message import DecodeError
from msgspec import ValidationError, convert, to_builtins

from rec_summary._pb.lineage_pb2 import TrainLineage
from rec_summary.records.files import read_plain, temporary_name
from rec_summary.tensorboard.event_files.description import DescriptionState
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import OutputState
from rec_summary.tensorboard.outputs import TargetNames
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

    format: Literal[3]
    options: str
    targets: TargetNames
    outputs: dict[str, OutputState]
    description: DescriptionState


def encode(cursor: Cursor) -> bytes:
    """Returns a cursor as JSON in ASCII: names of files need not be Unicode."""
    builtins = to_builtins(cursor, str_keys=True, enc_hook=_encode_message)
    return json.dumps(builtins).encode("ascii")


def decode(data: bytes, run: str) -> Cursor | None:
    """Returns the cursor of a run; None if `data` is invalid."""
    try:
        raw = json.loads(data, parse_int=_integer)
        cursor = convert(raw, Cursor, str_keys=True, dec_hook=_decode_message)
    except (ValueError, RecursionError, ValidationError):
        return None
    names = [*cursor.outputs, *cursor.targets.names.values()]
    return cursor if all(_is_below(name, run) for name in names) else None


def load_cursor(logdir: LogDir, run: str) -> Cursor | None:
    """Returns the cursor of a run; None if there is no valid one.

    Raises:
        DestinationError: The run's directory cannot be read.
    """
    with logdir.opened(run) as directory:
        if directory is None:
            return None
        try:
            data = read_plain(CURSOR_NAME, MOST_BYTES, dir_fd=directory)
        except OSError:
            return None
    return decode(data, run)


def save_cursor(logdir: LogDir, run: str, cursor: Cursor) -> None:
    """Writes the cursor of a run.

    Raises:
        DestinationError: It cannot be written; the old one stays.
    """
    with logdir.replacing(f"{run}/{CURSOR_NAME}") as file:
        file.write(encode(cursor))


def remove_cursor(logdir: LogDir, run: str) -> None:
    """Removes the cursor of a run, if there is one.

    Raises:
        DestinationError: It cannot be removed.
    """
    with logdir.opened(run) as directory:
        for name in (CURSOR_NAME, temporary_name(CURSOR_NAME)):
            with contextlib.suppress(FileNotFoundError):
                if directory is not None:
                    os.unlink(name, dir_fd=directory)


def _is_below(name: str, run: str) -> bool:
    """Whether a name is that of a run or of a sub-run."""
    rest = name.removeprefix(f"{run}/").split("/")
    return name == run or (name.startswith(f"{run}/") and not {"", ".", ".."}.intersection(rest))


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError("too large an integer")
    return int(digits)


def _encode_message(message: TrainLineage) -> str:
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def _decode_message(_: type, value: Any) -> TrainLineage:
    try:
        return TrainLineage.FromString(base64.b64decode(value, validate=True))
    except (TypeError, DecodeError) as error:
        raise ValueError("no training lineage") from error
