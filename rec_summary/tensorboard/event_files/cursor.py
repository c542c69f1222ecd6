"""The cursor of a run: how far its export has come, so that a later one only adds.

The cursor is the file `.rec_summary-export.json` beside the run's event file. It is replaced
as a whole, after the event files: it never states what they do not have. The structs below
are its format. Anybody may have written the file, so it is checked when it is read: a cursor
that passes has the right types and names nothing outside of its run. Whether it is true,
the exporter finds out from the records and the event files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from typing import Annotated, Any, Final, Literal

from google.protobuf.message import DecodeError
from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from rec_summary._pb.lineage_pb2 import TrainLineage
from rec_summary.records.files import temporary_name, write_atomically
from rec_summary.series.lineage import Lineage
from rec_summary.tensorboard.event_files.logdir import LogDir

MOST_BYTES: Final = 1 << 27  # a hundred thousand series take a tenth of that
CURSOR_NAME: Final = ".rec_summary-export.json"
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST_INTEGER: Final = 20  # digits; some versions of msgspec fail on very large integers

Step = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Checksum = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # a CRC-32
Rank = Annotated[int, Meta(ge=0, le=10**9)]
Seconds = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # finite


class FilePosition(Struct):
    """What is known to be in an event file.

    Attributes:
        stamp: When the records were begun, in whole seconds; names the file.
        size: How many bytes of the file are right, whole events.
        last: Where the last of these events begins.
    """

    stamp: Annotated[int, Meta(ge=0)]
    size: Count = 0
    last: Count = 0

    def __post_init__(self) -> None:
        if self.last > self.size or self.stamp >= 10**19:
            raise ValueError("no such position")


class BufferState(Struct):
    """The state of a `StepBuffer`."""

    step: Step | None
    passed: list[tuple[str, str, Checksum]]
    last: list[tuple[str, str, Step]]


class OutputState(Struct):
    """The state of a TensorBoard run.

    Attributes:
        file: Its event file.
        steps: The state of its step buffer.
        tags: Recorded tag, plugin, kind, and the tag that is shown, of each series.
        memories: What dashboards remember, by kind of value.
        graphs: The checksums of graphs that were written, by kind of graph.
        layout: The checksum of the layout that was written.
        restarts: How often steps went back.
    """

    file: FilePosition
    steps: BufferState
    tags: list[tuple[str, str, str, str]]
    memories: dict[str, list[str]]
    graphs: dict[str, list[Checksum]]
    layout: Checksum
    restarts: Count

    def __post_init__(self) -> None:
        _check_unicode(self.tags)


class TargetNames(Struct):
    """The names of the TensorBoard runs of a run, by what they are for."""

    several: bool
    names: dict[str, str]


class WritersState(Struct):
    """The state of `Writers`: rank, number, and last time of each, and the one of each file."""

    writers: list[tuple[Rank, Count, Seconds]]
    homes: dict[str, Count]

    def __post_init__(self) -> None:
        if any(index >= len(self.writers) for index in self.homes.values()):
            raise ValueError("no such writer")


class MergingState(Struct):
    """The state of `Merging`."""

    places: dict[Rank, Annotated[list[tuple[Count, Step, str, Count, bool]], Meta(min_length=1)]]
    rank_size: Count
    done: tuple[Count, Step]


class DescriptionState(Struct):
    """What is known of a run as a whole, and what of it was written.

    Attributes:
        lineages: What is known of each rank.
        texts: Checksums of the facts and of the text that were written for each rank, and how
            often its steps had gone back then.
        text_rank: The rank whose text is the run's own.
        session_rank: The rank whose hyper-parameters are the session's.
        started: The hyper-parameters that were written.
        ended: The status that was written.
        running: Whether a sub-run says that the run is going on.
    """

    lineages: dict[Rank, Lineage] = {}
    texts: dict[Rank, tuple[Checksum, Count, Checksum]] = {}
    text_rank: Rank | None = None
    session_rank: Rank | None = None
    started: str | None = None
    ended: Count | None = None
    running: bool = False

    def __post_init__(self) -> None:
        if self.session_rank is not None and self.session_rank not in self.lineages:
            raise ValueError("no such lineage")
        for each in self.lineages.values():
            convert([each.train_time, each.last_time], list[Seconds])
            _check_unicode([each.custom, each.metrics, each.valid_dataset])


class Cursor(Struct):
    """How far the export of a run has come.

    Attributes:
        format: The version of this format.
        options: The fingerprint of the options in force.
        targets: The names of its TensorBoard runs.
        files: How far each record file was read, in bytes, and whether nothing more can be
            read from it.
        outputs: The state of each TensorBoard run, by its name.
        writers: Who wrote which file.
        merging: What is known of the states of metrics.
        description: What is known of the run as a whole.
        began: The time of the first record, in seconds since the epoch.
        reached: The highest step of a summary.
        furthest: The step that is furthest from zero.
        evaluating_rank: The rank whose evaluations are shown.
    """

    format: Literal[2]
    options: str
    targets: TargetNames
    files: dict[str, tuple[Count, bool]]
    outputs: dict[str, OutputState]
    writers: WritersState
    merging: MergingState
    description: DescriptionState
    began: Seconds | None
    reached: Step
    furthest: Step
    evaluating_rank: Rank | None


def encode(cursor: Cursor) -> bytes:
    """Returns a cursor as JSON in ASCII: names of files need not be Unicode."""
    builtins = to_builtins(cursor, str_keys=True, enc_hook=_encode_message)
    return json.dumps(builtins).encode("ascii")


def decode(data: bytes, run: str) -> Cursor | None:
    """Returns the cursor of a run; None if `data` cannot be one."""
    try:
        raw = json.loads(data, parse_int=_integer)
        cursor = convert(raw, Cursor, str_keys=True, dec_hook=_decode_message)
    except (ValueError, RecursionError, ValidationError):
        return None
    names = [*cursor.outputs, *cursor.targets.names.values()]
    return cursor if all(_is_below(name, run) for name in names) else None


def load_cursor(logdir: LogDir, run: str) -> Cursor | None:
    """Returns the cursor of a run; None if there is none that can be used.

    Raises:
        DestinationError: The run's directory cannot be read.
    """
    with logdir.opened(run) as directory:
        if directory is None:
            return None
        try:
            fd = os.open(CURSOR_NAME, _READ, dir_fd=directory)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            # Python takes the memory of what is asked for, not of what is there.
            data = file.read(min(os.fstat(fd).st_size, MOST_BYTES) + 1)
    return decode(data, run) if len(data) <= MOST_BYTES else None


def save_cursor(logdir: LogDir, run: str, cursor: Cursor) -> None:
    """Writes the cursor of a run.

    Raises:
        DestinationError: It cannot be written; the old one stays.
    """
    with (
        logdir.made(run) as directory,
        write_atomically(CURSOR_NAME, dir_fd=directory) as file,
    ):
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


def _check_unicode(value: Any) -> None:
    """Makes sure that protobuf can hold all strings in a value.

    Raises:
        ValueError: One of them has a lone surrogate.
    """
    json.dumps(value, ensure_ascii=False).encode()


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
