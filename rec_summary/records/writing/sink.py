"""The one interface through which records are written.

Anything that takes records implements `RecordSink`; wrappers (such as the background
writer) implement it around another one.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.names import Kind


class Record(Protocol):
    """Something that can be written: it knows its kind, its size, and how to become bytes."""

    @property
    def kind(self) -> Kind:
        """The kind of file it belongs into."""

    @property
    def nbytes(self) -> int:
        """About how much memory it holds on to, in bytes."""

    @property
    def once(self) -> bool:
        """Whether a run has only one of these, so that it must outlive all rotation."""

    def encode(self) -> bytes:
        """Returns the payload; heavy work belongs here, off the training thread.

        Nothing is written where it is empty.
        """


class Held(Protocol):
    """Anything that takes memory while it waits."""

    @property
    def nbytes(self) -> int:
        """About how much memory it holds on to, in bytes."""


Taken = TypeVar("Taken", bound=Held, contravariant=True)


class Sink(Protocol[Taken]):
    """Where records, or other things to be written, go."""

    def write(self, record: Taken, /) -> None:
        """Takes one record."""

    def flush(self) -> object:
        """Hands all that was taken to the operating system."""

    def close(self) -> None:
        """Flushes and lets go of files and threads. Closing twice is allowed."""


RecordSink = Sink[Record]


class MessageRecord:
    """A record that is a finished protobuf message already."""

    def __init__(self, message: Any, *, once: bool = False) -> None:
        """Wraps a `summary_pb2.Event` or a `lineage_pb2.LineageEvent`, to be left alone now."""
        self._message = message
        self.once = once
        self.nbytes = int(message.ByteSize())

    @property
    def kind(self) -> Kind:
        """Lineage for a `LineageEvent`, else summary."""
        is_lineage = isinstance(self._message, lineage_pb2.LineageEvent)
        return Kind.LINEAGE if is_lineage else Kind.SUMMARY

    def encode(self) -> bytes:
        """Returns the serialised message."""
        return bytes(self._message.SerializeToString())
