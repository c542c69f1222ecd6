"""The one interface through which records are written, and the run's own writer.

Anything that takes records implements `RecordSink`; wrappers (such as the background
writer) implement it around another one.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final, Protocol

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.directory import begin_segments, make_directory
from rec_summary.records.names import Kind

FILE_VERSION: Final = "MindSpore.Event:1"


class Record(Protocol):
    """Something that can be written: it knows its kind, its size, and how to become bytes."""

    @property
    def kind(self) -> Kind:
        """The kind of file it belongs into."""

    @property
    def nbytes(self) -> int:
        """About how much memory it holds on to, in bytes."""

    def encode(self) -> bytes:
        """Returns the payload; heavy work belongs here, off the training thread."""


class RecordSink(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None:
        """Takes one record."""

    def flush(self) -> object:
        """Hands all that was taken to the operating system."""

    def close(self) -> None:
        """Flushes and lets go of files and threads. Closing twice is allowed."""


class MessageRecord:
    """A record that is a finished protobuf message already."""

    def __init__(self, message: Any) -> None:
        """Wraps a `summary_pb2.Event` or a `lineage_pb2.LineageEvent`, to be left alone now."""
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


class RunWriter:
    """Writes one rank's records of one run into files of its own.

    The pair of files (summary and lineage) is created at once, so that a directory that
    cannot be written is noticed where the user can see it, and so that viewers which look
    for a summary file first also find a lineage that stands alone.

    Attributes:
        directory: The record directory.
        rank: The rank of this process.
    """

    def __init__(self, directory: str | os.PathLike[str], rank: int = 0) -> None:
        """Creates the directory if need be (mode 0700), and the files (mode 0600).

        Raises:
            OSError: The directory or the files cannot be created.
        """
        self.directory = os.path.abspath(os.fspath(directory))
        self.rank = rank
        make_directory(self.directory)
        self._segments = begin_segments(self.directory, rank)
        now = time.time()
        self._segments[Kind.SUMMARY].write(
            summary_pb2.Event(wall_time=now, version=FILE_VERSION).SerializeToString()
        )
        self._segments[Kind.LINEAGE].write(
            lineage_pb2.LineageEvent(wall_time=now, version=FILE_VERSION).SerializeToString()
        )
        self.flush()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files being written."""
        return tuple(segment.path for segment in self._segments.values())

    def write(self, record: Record) -> None:
        """Encodes a record and appends it to the file of its kind.

        Raises:
            OSError: The file cannot be written.
            Exception: Whatever `record.encode` raises; nothing is written then.
        """
        self._segments[record.kind].write(record.encode())

    def flush(self) -> None:
        """Hands all records to the operating system.

        Raises:
            OSError: A file cannot be written; its records are kept for the next try.
        """
        self._each("flush")

    def close(self) -> None:
        """Flushes and closes the files.

        Raises:
            OSError: A file's last records could not be written.
        """
        self._each("close")

    def _each(self, action: str) -> None:
        # One file's failure must not keep the other from being served.
        failure: OSError | None = None
        for segment in self._segments.values():
            try:
                getattr(segment, action)()
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure
