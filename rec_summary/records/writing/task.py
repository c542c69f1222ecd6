"""Records, tasks that make records, and the sinks that take records."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

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
        """Returns the payload. Do heavy work here: the writer's thread calls it."""


Item = TypeVar("Item", bound=Sized)
Taken = TypeVar("Taken", bound=Sized, contravariant=True)


class Task(abc.ABC, Generic[Item]):
    """Work for the writer's thread, in order with the records around it.

    Attributes:
        nbytes: About how much memory it takes, in bytes.
    """

    nbytes: int

    @abc.abstractmethod
    def run(self) -> Item | None:
        """Does the work; returns what is to be written, if anything."""


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


@dataclass(frozen=True)
class EncodedRecord:
    """A record of serialised bytes.

    Attributes:
        payload: A serialised event.
        kind: The kind of file that it belongs to.
        once: Whether a run has one of these only.
    """

    payload: bytes
    kind: Kind = Kind.SUMMARY
    once: bool = False

    @property
    def nbytes(self) -> int:
        """The size of the payload."""
        return len(self.payload)

    def encode(self) -> bytes:
        """Returns the payload."""
        return self.payload
