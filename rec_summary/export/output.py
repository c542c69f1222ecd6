"""One TensorBoard run in the making: values in, one event file out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.export import dashboards
from rec_summary.export.dashboards.points import Point
from rec_summary.export.event_file import EventFileWriter
from rec_summary.export.logdir import LogDir, PendingFile
from rec_summary.export.repeats import Recorded, StepBuffer
from rec_summary.export.report import Tally
from rec_summary.export.tags import Tags
from rec_summary.export.words import valid

UNKNOWN_KIND: Final = "unknown"  # the name of a kind that these protobufs do not know either


class TensorBoardRun:
    """Takes the values of one TensorBoard run, and writes its event file.

    Use it as a context: leaving it normally puts the file in place, leaving it with an
    error discards it. A run without values gets no file.

    Attributes:
        supersedes: Whether a run without values takes away the file of an earlier export.
            To be set once the run's records have turned out to be readable.
    """

    def __init__(
        self,
        name: str,
        stamp: int,
        logdir: LogDir,
        tally: Tally,
        wanted: Callable[[str], object] | None = None,
    ) -> None:
        """Begins a run; nothing is on disk before its first value.

        Args:
            name: The run's name: its directory below the log directory.
            stamp: When its records were begun, in whole seconds; names the file.
            logdir: Where it goes.
            tally: Told what is exported and what is not.
            wanted: Says by the tag which recorded values are; None means all.
        """
        self.supersedes = False
        self._name = name
        self._stamp = stamp
        self._logdir = logdir
        self._tally = tally
        self._wanted = wanted
        self._mappers = {kind: make() for kind, make in dashboards.VALUES.items()}
        self._buffer = StepBuffer(name, tally, self._emit)
        self._tags = Tags(name, tally)
        self._pending: PendingFile | None = None
        self._writer: EventFileWriter | None = None

    def record(
        self, step: int, wall_time: float, nbytes: int, values: Iterable[Summary.Value]
    ) -> None:
        """Takes the recorded values of one step.

        Args:
            step: The training step.
            wall_time: Seconds since the epoch, finite.
            nbytes: About how much memory the values hold.
            values: Values of any kind; those without a dashboard are counted only.

        Raises:
            DestinationError: The event file cannot be written.
        """
        known = []
        for value in values:
            kind = value.WhichOneof("value")
            if kind is None or kind not in self._mappers:
                self._tally.unknown[kind or UNKNOWN_KIND] += 1
                continue
            tag = value.tag
            if not isinstance(tag, str):
                tag = valid(tag)
            if self._wanted is not None and not self._wanted(tag):
                self._tally.left_out += 1
                continue
            known.append(Recorded(kind, tag, wall_time, value))
        if known:
            self._buffer.add(step, nbytes, known)

    def shows(self, tag: str) -> bool:
        """Whether a value with this recorded tag has been taken."""
        self._buffer.flush()
        return self._tags.knows(tag)

    def put(self, step: int, wall_time: float, kind: str, points: Iterable[Point]) -> None:
        """Takes finished points that come from a record of `kind`, after all recorded values.

        Raises:
            DestinationError: The event file cannot be written.
        """
        self._buffer.flush()
        self._write(step, wall_time, [self._tags.place(point, kind) for point in points])

    def __enter__(self) -> TensorBoardRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._buffer.close()
                self._commit()
        finally:
            if self._pending is not None:
                self._pending.discard()
                self._pending = None

    def _commit(self) -> None:
        if self._pending is None or self._writer is None:
            replaced = self.supersedes and self._logdir.remove(self._name)
        else:
            pending, self._pending = self._pending, None
            replaced = pending.commit()
            self._tally.runs.append(self._name)
            self._tally.bytes_written += self._writer.bytes_written
        if replaced:
            self._tally.replaced.append(self._name)

    def _emit(self, step: int, wall_time: float, values: list[Recorded]) -> None:
        placed = []
        for recorded in values:
            for point in self._mappers[recorded.kind](recorded.tag, recorded.value):
                placed.append(self._tags.place(point, recorded.kind))
            self._tally.exported[recorded.kind] += 1
        self._write(step, wall_time, placed)

    def _write(self, step: int, wall_time: float, values: list[Any]) -> None:
        if self._writer is None:
            self._pending = self._logdir.begin(self._name, self._stamp)
            self._writer = EventFileWriter(self._pending)
        self._writer.write(step, wall_time, values)
