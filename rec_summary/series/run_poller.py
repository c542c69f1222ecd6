"""Watching a tree of record directories for what is new, at next to no cost.

Directories are listed again only when their time of modification says that a name was
added or removed; of the files, only the newest of each writer is looked at every time,
because the others are complete. So a look at a hundred idle runs is a few hundred calls
of `stat`. Polling is used because it works on network file systems, where notifications
of other hosts' writes do not arrive.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rec_summary.records.reading.runs import RecordFile, Run, list_files

_SETTLED_SECS: Final = 2.0  # a directory may change again without a change of its time before
_RESCAN_SECS: Final = 30.0  # not every file system tells that a directory has changed


@dataclass
class _Directory:
    """What is known of a directory."""

    changed: float = -1.0  # its time of modification when it was listed
    listed: float = -1.0  # when that was, by the same clock
    below: list[str] = field(default_factory=list)
    files: tuple[RecordFile, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    is_new: bool = True  # listed again since the last look at its files


class Watch:
    """Finds the runs of a tree in which something has happened since the last look."""

    def __init__(self, source: str, clock: Callable[[], float] = time.time) -> None:
        """Begins; nothing is looked at yet.

        Args:
            source: The tree; it need not exist yet.
            clock: Tells the time that directories are stamped with, in seconds.
        """
        self._source = source
        self._clock = clock
        self._directories: dict[str, _Directory] = {}

    def look(self) -> list[Run]:
        """Returns the runs that are new, or have new files, or files that have grown.

        A run is named by its path below the source; the source itself by its base name.
        """
        changed = []
        for path in self._walk(self._source):
            directory = self._directories[path]
            if directory.files and self._has_grown(directory):
                changed.append(self._run(path, directory))
        return changed

    def all(self) -> list[Run]:
        """Returns all runs of the last look."""
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
        """Whether a file has another size than when it was looked at last."""
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
