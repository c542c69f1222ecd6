"""Records and tasks: what a thread that writes can be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.names import Kind


@dataclass(eq=False)
class Record:
    """A record that can be written.

    Attributes:
        encode: Returns the payload. It does the heavy work: the writer's thread calls it.
        nbytes: About how much memory it takes until then, in bytes.
        kind: The kind of file that it belongs to.
    """

    encode: Callable[[], bytes]
    nbytes: int
    kind: Kind = Kind.SUMMARY


class MessageRecord(Record):
    """A record that is a protobuf message."""

    def __init__(self, message: Any) -> None:
        """Takes a `summary_pb2.Event` or `lineage_pb2.LineageEvent`; do not change it later."""
        is_lineage = isinstance(message, lineage_pb2.LineageEvent)
        kind = Kind.LINEAGE if is_lineage else Kind.SUMMARY
        super().__init__(message.SerializeToString, message.ByteSize(), kind)


@dataclass(frozen=True, eq=False)
class Task:
    """Work for a thread that has a queue.

    Attributes:
        name: What it is, in a few words, for counts and messages; the same for all of its kind.
        run: Does the work. A writer writes the record that it returns, if any, in its place.
        nbytes: About how much memory it takes until it is done, in bytes.
    """

    name: str
    run: Callable[[], Record | None]
    nbytes: int


class Sink(Protocol):
    """Takes records."""

    def write(self, record: Record, /) -> None:
        """Takes one record."""

    def flush(self) -> object:
        """Hands all records to the operating system."""

    def close(self) -> None:
        """Flushes, and closes files and threads. Closing twice is allowed."""
