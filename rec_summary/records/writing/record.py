"""Records, and the sinks that take records."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.names import Kind


class Sized(Protocol):
    """Something that takes memory while it waits in a queue."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes, in bytes."""


class Record(Sized, Protocol):
    """A record that can be written."""

    @property
    def kind(self) -> Kind:
        """The kind of file that it belongs to."""

    @property
    def once(self) -> bool:
        """Whether a run has one of these only, so that its file is never dropped."""

    def encode(self) -> bytes:
        """Returns the payload; it is empty where there is nothing to write.

        Do heavy work here: the writer's thread calls it.
        """


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


class MessageRecord:
    """A record that is a protobuf message."""

    once = False

    def __init__(self, message: Any) -> None:
        """Takes a `summary_pb2.Event` or `lineage_pb2.LineageEvent`; do not change it later."""
        self._message = message
        self.nbytes = int(message.ByteSize())

    @property
    def kind(self) -> Kind:
        """Lineage for a `LineageEvent`, else summary."""
        is_lineage = isinstance(self._message, lineage_pb2.LineageEvent)
        return Kind.LINEAGE if is_lineage else Kind.SUMMARY

    def encode(self) -> bytes:
        """Returns the serialised message."""
        return bytes(self._message.SerializeToString())
