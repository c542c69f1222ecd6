"""Records, and the sinks that take records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.names import Kind


class Sized(Protocol):
    """Something that takes memory while it waits in a queue."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes, in bytes."""


Item = TypeVar("Item", bound=Sized)
Taken = TypeVar("Taken", bound=Sized, contravariant=True)


class Sink(Protocol[Taken]):
    """Takes records, or other things that are written."""

    def write(self, record: Taken, /) -> None:
        """Takes one record."""

    def flush(self) -> object:
        """Hands all records to the operating system."""

    def close(self) -> None:
        """Flushes, and closes files and threads. Closing twice is allowed."""


@dataclass(eq=False)
class LazyRecord:
    """A record that can be written.

    Attributes:
        encode: Returns the payload; it is empty where there is nothing to write. It does the heavy
            work: the writer's thread calls it.
        nbytes: About how much memory it takes until then, in bytes.
        kind: The kind of file that it belongs to.
    """

    encode: Callable[[], bytes]
    nbytes: int
    kind: Kind = Kind.SUMMARY


class MessageRecord(LazyRecord):
    """A record that is a protobuf message."""

    def __init__(self, message: Any) -> None:
        """Takes a `summary_pb2.Event` or `lineage_pb2.LineageEvent`; do not change it later."""
        is_lineage = isinstance(message, lineage_pb2.LineageEvent)
        kind = Kind.LINEAGE if is_lineage else Kind.SUMMARY
        super().__init__(message.SerializeToString, message.ByteSize(), kind)
