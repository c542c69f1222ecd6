"""The cursor of a run beside its event file.

It is replaced after the event files, so it never states more than they have. The exporter compares
its content with the records and the event files.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from rec_summary.series.exports.cursor import decode_as, read_cursor
from rec_summary.series.exports.reading import ReadingState
from rec_summary.tensorboard.event_files.description import DescriptionState
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import WriterState
from rec_summary.tensorboard.run_names import TargetNames


class Cursor(ReadingState, kw_only=True):
    """How far the export of a run has come.

    Attributes:
        format: The version of this format.
        options: The fingerprint of the options in force.
        targets: The names of its TensorBoard runs.
        outputs: The state of each TensorBoard run, by its name.
        description: What is known of the run as a whole.
    """

    format: Literal[4]
    options: str
    targets: TargetNames
    outputs: dict[str, WriterState] = field(default_factory=dict)
    description: DescriptionState = field(default_factory=DescriptionState)


def decode(data: bytes, run: str) -> Cursor | None:
    """Returns the cursor of a run, which names nothing outside it; None if `data` is invalid."""
    cursor = decode_as(Cursor, data)
    if cursor is None:
        return None
    names = [*cursor.outputs, *cursor.targets.names.values()]
    return cursor if all(_is_below(name, run) for name in names) else None


def load_cursor(logdir: LogDir, run: str) -> Cursor | None:
    """Returns the cursor of a run; None if there is no valid one.

    Raises:
        DestinationError: The run's directory cannot be read.
    """
    return decode(read_cursor(logdir, run), run)


def _is_below(name: str, run: str) -> bool:
    """Whether a name is that of a run or of a sub-run."""
    rest = name.removeprefix(f"{run}/").split("/")
    return name == run or (name.startswith(f"{run}/") and not {"", ".", ".."}.intersection(rest))
