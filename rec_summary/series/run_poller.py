"""Polling a tree of record directories for what is new, at next to no cost.

A directory is listed again only when its time of modification says that a name was added or
removed. Of the files, only the newest of each writer is checked every time, because the others
are complete. So a poll of a hundred idle runs takes a few hundred calls of `stat`. Polling is used
because it works on network file systems, where notifications of other hosts' writes do not arrive.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import RecordFile, Run, list_files
from rec_summary.series.batch import Batch
from rec_summary.series.event_reader import EventReader
from rec_summary.series.report import Report

_SETTLED_SECS: Final = 2.0  # a directory may change again without a change of its time before
_RESCAN_SECS: Final = 30.0  # not every file system reports that a directory has changed


@dataclass
class _Place:
    """How far a file has been read.

    Attributes:
        offset: Where reading goes on, in bytes.
        is_boundary: Whether a record begins there; else one may end behind it.
        ended: Whether nothing behind `offset` can be read.
    """

    offset: int = 0
    is_boundary: bool = True
    ended: bool = False


class NewRecords:
    """Reads what is new in record files, each from where reading stopped the last time."""

    def __init__(self, report: Report) -> None:
        """Begins at the beginning of every file.

        Args:
            report: Counts records and takes problems.
        """
        self._report = report
        self._places: dict[str, _Place] = {}

    def skip(self, file: RecordFile) -> None:
        """Skips the records that a file has now; what is incomplete will be read."""
        self._places[file.path] = _Place(file.nbytes, is_boundary=False)

    def batches(
        self, files: Iterable[RecordFile], changed_after: float = -math.inf
    ) -> Iterator[Batch]:
        """Yields what is new, file after file.

        Args:
            files: The files.
            changed_after: Files that have not changed since then, in seconds since the epoch,
                are left out.
        """
        for file in files:
            place, nbytes = self._places.setdefault(file.path, _Place()), file.nbytes
            if nbytes < place.offset:  # it was replaced by another file
                place = self._places[file.path] = _Place()
            if place.ended or nbytes <= place.offset or file.changed < changed_after:
                continue
            if not place.is_boundary:
                place.offset, place.is_boundary = _boundary(file.path, place.offset), True
            with EventReader(file, self._report, place.offset) as reader:
                for batch in reader:
                    yield batch
                    place.offset = reader.offset
                place.offset, place.ended = reader.offset, reader.ended

    def keep(self, files: Iterable[RecordFile]) -> None:
        """Forgets all files but these."""
        kept = {file.path for file in files}
        self._places = {path: place for path, place in self._places.items() if path in kept}


def _boundary(path: str, offset: int) -> int:
    """Returns where the last record begins that does not end at an offset or before."""
    try:
        with RecordReader(path) as reader:
            reader.skip_to(offset)
            return reader.offset
    except OSError:  # it is reported when the file is read
        return 0


@dataclass
class _Directory:
    """What is known of a directory."""

    changed: float = -1.0  # its time of modification when it was listed
    listed: float = -1.0  # when that was, by the same clock
    below: list[str] = field(default_factory=list)
    files: tuple[RecordFile, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    is_new: bool = True  # listed again since the last poll of its files


class RunPoller:
    """Finds the runs of a tree in which something has happened since the last poll."""

    def __init__(self, source: str, clock: Callable[[], float] = time.time) -> None:
        """Begins; nothing is read yet.

        Args:
            source: The tree; it need not exist yet.
            clock: Returns the time that directories are stamped with, in seconds.
        """
        self._source = source
        self._clock = clock
        self._directories: dict[str, _Directory] = {}

    def poll(self) -> list[Run]:
        """Returns the runs that are new, or have new files, or files that have grown.

        A run is named by its path below the source; the source itself by its base name.
        """
        changed = []
        for path in self._walk(self._source):
            directory = self._directories[path]
            if directory.files and self._has_grown(directory):
                changed.append(self._run(path, directory))
        return changed

    def runs(self) -> list[Run]:
        """Returns all runs of the last poll."""
        return [self._run(path, each) for path, each in self._directories.items() if each.files]

    def _walk(self, path: str) -> Iterator[str]:
        """Yields a directory and those below it; lists them again if need be."""
        try:
            changed = os.stat(path).st_mtime
        except OSError:
            self._forget(path)
            return
        known = self._directories.setdefault(path, _Directory())
        now = self._clock()
        unsettled = known.listed - known.changed < _SETTLED_SECS
        if changed != known.changed or unsettled or now - known.listed > _RESCAN_SECS:
            before = known.below
            try:
                known.files, known.below = list_files(path), _below(path)
            except OSError:
                self._forget(path)
                return
            for gone in set(before).difference(known.below):
                self._forget(gone)
            known.changed, known.listed = changed, now
            known.sizes = {file.path: known.sizes.get(file.path, -1) for file in known.files}
            known.is_new = True
        yield path
        for below in known.below:
            yield from self._walk(below)

    def _has_grown(self, directory: _Directory) -> bool:
        """Whether a file has another size than at the last poll."""
        grown = False
        newest: set[object] = set()
        for file in reversed(directory.files):
            writer = (file.name.kind, file.name.rank, file.name.prefix, file.name.host)
            if writer in newest and not directory.is_new:
                continue
            newest.add(writer)
            size = file.nbytes
            if size != directory.sizes[file.path]:
                directory.sizes[file.path] = size
                grown = True
        directory.is_new = False
        return grown

    def _forget(self, path: str) -> None:
        known = self._directories.pop(path, None)
        for below in known.below if known is not None else ():
            self._forget(below)

    def _run(self, path: str, directory: _Directory) -> Run:
        base = os.path.basename(os.path.abspath(self._source)) or "root"
        relative = os.path.relpath(path, self._source).replace(os.sep, "/")
        nested = self._source in self._directories and self._directories[self._source].files
        name = base if relative == "." else f"{base}/{relative}" if nested else relative
        return Run(name, path, directory.files)


def _below(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
