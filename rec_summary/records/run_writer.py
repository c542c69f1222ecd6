"""One rank's records of one run: a pair of files, and the next pair when the first is full."""

from __future__ import annotations

import collections
import contextlib
import os
import time
from dataclasses import dataclass
from typing import Final

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.directory import begin_segments, make_directory
from rec_summary.records.names import DEFAULT_PREFIX, DEFAULT_SUFFIX, Kind
from rec_summary.records.segment import SegmentWriter
from rec_summary.records.sink import Record

FILE_VERSION: Final = "MindSpore.Event:1"


@dataclass(frozen=True)
class Retention:
    """How much of an endless run stays on disk.

    Attributes:
        max_file_size: The size in bytes at which the next file is begun; None for never. A
            file is never cut within a record, so it may be larger by one record.
        max_files: The most summary files of this writer that are kept; None for all.
        max_total_bytes: The most bytes that they may have together; None for no limit.
    """

    max_file_size: int | None = None
    max_files: int | None = None
    max_total_bytes: int | None = None


@dataclass
class _Finished:
    """A full file that may be dropped."""

    path: str
    size: int


class RunWriter:
    """Writes one rank's records of one run into files of its own.

    The pair of files (summary and lineage) is created at once, so that a directory that
    cannot be written is noticed where the user can see it, and so that viewers which look
    for a summary file first also find a lineage that stands alone. Lineage has one file for
    the whole run, and is never dropped; nor is a file with a record that is written once
    for a run, such as its graph.

    Attributes:
        directory: The record directory.
        rank: The rank of this process.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        rank: int = 0,
        retention: Retention | None = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        suffix: str = DEFAULT_SUFFIX,
    ) -> None:
        """Creates the directory if need be (mode 0700), and the files (mode 0600).

        Args:
            directory: The record directory.
            rank: The rank of this process.
            retention: When files are full, and how many stay; None for one file.
            prefix: What the files' names begin with (see `names.check_affixes`).
            suffix: What the names of summary files end with.

        Raises:
            OSError: The directory or the files cannot be created.
        """
        self.directory = os.path.abspath(os.fspath(directory))
        self.rank = rank
        self._retention = retention or Retention()
        self._prefix, self._suffix = prefix, suffix
        self._finished: collections.deque[_Finished] = collections.deque()
        self._finished_bytes = 0
        self._keeps = False  # the summary file at hand holds a record that must stay
        make_directory(self.directory)
        pair = self._begin(Kind.SUMMARY, Kind.LINEAGE)
        self._summary, self._lineage = pair[Kind.SUMMARY], pair[Kind.LINEAGE]
        self._begin_summary(self._summary)
        version = lineage_pb2.LineageEvent(wall_time=time.time(), version=FILE_VERSION)
        self._lineage.write(version.SerializeToString())
        self.flush()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files being written."""
        return (self._summary.path, self._lineage.path)

    def write(self, record: Record) -> None:
        """Encodes a record and appends it to the file of its kind.

        Raises:
            OSError: The file cannot be written, or the next one cannot be begun.
            Exception: Whatever `record.encode` raises; nothing is written then.
        """
        payload = record.encode()
        if record.kind is Kind.LINEAGE:
            self._lineage.write(payload)
            return
        failure: OSError | None = None
        if self._is_full():
            try:
                self._rotate()
            except OSError as error:  # the record comes first; the file at hand still takes it
                failure = error
        self._keeps = self._keeps or record.once
        self._summary.write(payload)
        if failure is not None:
            raise failure

    def flush(self) -> None:
        """Hands all records to the operating system.

        Raises:
            OSError: A file cannot be written; its records are kept for the next try.
        """
        self._both("flush")

    def close(self) -> None:
        """Flushes and closes the files.

        Raises:
            OSError: A file's last records could not be written.
        """
        self._both("close")

    def _both(self, action: str) -> None:
        # One file's failure must not keep the other from being served.
        failure: OSError | None = None
        for segment in (self._summary, self._lineage):
            try:
                getattr(segment, action)()
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure

    def _is_full(self) -> bool:
        limit = self._retention.max_file_size
        return limit is not None and self._summary.size >= limit and self._summary.records > 1

    def _rotate(self) -> None:
        """Begins the next summary file; if that fails, the one at hand goes on growing."""
        following = self._begin(Kind.SUMMARY)[Kind.SUMMARY]
        full, self._summary = self._summary, following
        self._begin_summary(following)
        try:
            full.close()
        finally:
            if not self._keeps:
                self._finished.append(_Finished(full.path, full.size))
                self._finished_bytes += full.size
            self._keeps = False
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        files, budget = self._retention.max_files, self._retention.max_total_bytes
        room = self._retention.max_file_size or 0  # for the file at hand
        while self._finished and (
            (files is not None and len(self._finished) + 1 > files)
            or (budget is not None and self._finished_bytes + room > budget)
        ):
            oldest = self._finished.popleft()
            self._finished_bytes -= oldest.size
            with contextlib.suppress(FileNotFoundError):
                os.unlink(oldest.path)

    def _begin(self, *kinds: Kind) -> dict[Kind, SegmentWriter]:
        return begin_segments(
            self.directory, self.rank, kinds, prefix=self._prefix, suffix=self._suffix
        )

    def _begin_summary(self, segment: SegmentWriter) -> None:
        version = summary_pb2.Event(wall_time=time.time(), version=FILE_VERSION)
        segment.write(version.SerializeToString())
