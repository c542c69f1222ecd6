"""Telling of alerts: in words, as lines of JSON, and handed to commands and webhooks.

What is written here and now is in this module; what takes its time is handed over by
`delivery`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from rec_summary.alerts.states import Transition
from rec_summary.errors import three_part, verbatim
from rec_summary.series.options import ArgumentError
from rec_summary.series.words import printable
from rec_summary.tables.formats import json_value

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[[str], None]
"""Told of what goes wrong while alerts are told, in a sentence."""

_MODE: Final = 0o644
_SECONDS: Final = "%Y-%m-%d %H:%M:%S"


def state_of(transition: Transition) -> str:
    """Returns `firing` or `resolved`."""
    return "firing" if transition.firing else "resolved"


def sentence(transition: Transition) -> str:
    """Returns what has happened, in a line of text."""
    rank = f" (rank {transition.rank})" if transition.rank else ""
    rule = transition.rule
    about = rule.title if rule.name is None else f"{rule.name} ({rule.text})"
    text = f"{state_of(transition)}: {transition.run}{rank}: {about}: {transition.reason}"
    return printable(text)


def as_json(transition: Transition) -> Mapping[str, Any]:
    """Returns what has happened as JSON has it: NaN and infinities are strings."""
    value = transition.value
    moment = _moment(transition.wall_time)
    return {
        "state": state_of(transition),
        "name": transition.rule.title,
        "rule": transition.rule.text,
        "run": transition.run,
        "rank": transition.rank,
        "tag": transition.tag,
        "step": transition.step,
        "value": None if value is None else json_value(np.float32(value)),
        "wall_time": transition.wall_time,
        "time": None if moment is None else moment.isoformat(timespec="milliseconds"),
        "reason": printable(transition.reason),
        "text": sentence(transition),
    }


class InWords:
    """Prints alerts for people."""

    def __init__(self, console: Console) -> None:
        """Prints to a console."""
        self._console = console

    def __call__(self, transition: Transition) -> None:
        """Prints an alert."""
        from rich.text import Text

        moment = _moment(transition.wall_time)
        shown = "at no time" if moment is None else moment.astimezone().strftime(_SECONDS)
        state, _, rest = sentence(transition).partition(":")
        style = "bold red" if transition.firing else "green"
        line = Text.assemble((shown, "dim"), " ", (state.upper(), style), rest)
        self._console.print(line, soft_wrap=True)


class InJson:
    """Prints alerts as lines of JSON."""

    def __init__(self, stream: IO[str]) -> None:
        """Prints to a stream."""
        self._stream = stream

    def __call__(self, transition: Transition) -> None:
        """Prints an alert."""
        self._stream.write(json.dumps(as_json(transition)) + "\n")
        self._stream.flush()


class ToLog:
    """Appends alerts to a file, a line of JSON each, in one write.

    Several processes may append to the same file. What cannot be written is told once,
    until it works again.
    """

    def __init__(self, path: str | os.PathLike[str], report: Report) -> None:
        """Opens the file; makes it if need be.

        Raises:
            ArgumentError: It cannot be written to.
        """
        self._path = os.fspath(path)
        self._report = report
        self._is_failing = False
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._file = os.open(self._path, flags, _MODE)
        except OSError as error:
            received = verbatim(f"{printable(self._path)} ({error.strerror})")
            raise ArgumentError(
                three_part("the log of alerts", received, "a file that can be written to")
            ) from error
        self._is_torn = self._ends_within_a_line()

    def __call__(self, transition: Transition) -> None:
        """Appends an alert."""
        line = json.dumps(as_json(transition)).encode() + b"\n"
        if self._is_torn:
            line = b"\n" + line
        try:
            written = os.write(self._file, line)
            if written < len(line):
                self._is_torn = True
                raise OSError(28, "no space left on device")
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                where = printable(self._path)
                self._report(f"an alert cannot be written to {where}: {error.strerror}")
            return
        self._is_torn = self._is_failing = False

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _ends_within_a_line(self) -> bool:
        try:
            size = os.fstat(self._file).st_size
            return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        except OSError:  # not a regular file
            return False


def _moment(wall_time: float) -> datetime | None:
    """Returns a time as a date; None if it is beyond the calendar, as damaged records may be."""
    try:
        return datetime.fromtimestamp(wall_time, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
