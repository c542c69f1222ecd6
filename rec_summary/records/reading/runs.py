"""Finding runs and their record files."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rec_summary.errors import SourceError, three_part
from rec_summary.records.format.names import Kind, RecordName, parse_name

logger = logging.getLogger("rec_summary")

DEEPEST: Final = 64
"""How deep directories of records may be nested; a path cannot be longer than 4 KiB anyway."""


@dataclass(frozen=True)
class RecordFile:
    """A record file of a run.

    Attributes:
        path: Where it is.
        name: What its name says.
    """

    path: str
    name: RecordName

    @property
    def nbytes(self) -> int:
        """Its size at this moment; 0 if it is gone. That of a link is its own."""
        try:
            return os.lstat(self.path).st_size
        except OSError:
            return 0

    @property
    def changed(self) -> float:
        """When it was last written to, in seconds since the epoch; -inf if it is gone."""
        try:
            return os.stat(self.path).st_mtime
        except OSError:
            return -math.inf


@dataclass(frozen=True)
class Run:
    """A directory that holds record files.

    Attributes:
        name: Its path below the source in question, with `/`; what TensorBoard shows.
        path: Where it is.
        files: Its record files, in the order in which they were begun.
    """

    name: str
    path: str
    files: tuple[RecordFile, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have written files, ascending."""
        return tuple(sorted({file.name.rank for file in self.files}))

    @property
    def nbytes(self) -> int:
        """The size of all its record files at this moment."""
        return sum(file.nbytes for file in self.files)

    def of(self, kind: Kind, rank: int) -> tuple[RecordFile, ...]:
        """The files of one kind and rank, in the order in which they were begun."""
        return tuple(f for f in self.files if f.name.kind is kind and f.name.rank == rank)


def list_files(path: str) -> tuple[RecordFile, ...]:
    """Returns the record files directly in a directory, in the order of their beginning.

    A link is among them, so that readers, which do not follow it, tell of it.

    Raises:
        OSError: The directory cannot be read.
    """
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            name = parse_name(entry.name)
            if name is not None and entry.is_file():
                found.append(RecordFile(entry.path, name))
    return tuple(sorted(found, key=lambda file: (*file.name.order, file.path)))


def find_runs(source: str | os.PathLike[str]) -> list[Run]:
    """Returns every run in a directory tree, in the order of their names.

    A run is a directory with record files in it. It is named by its path below `source`;
    if `source` is a run itself, its own base name stands first in every name, because a
    nameless run would show up as `.`.

    Args:
        source: A record directory or a tree of them. Links to directories are not followed.

    A directory below `source` that cannot be read, or is nested more than 64 deep, is left
    out, with a warning.

    Raises:
        SourceError: There is no such directory, it cannot be read, or no record file is
            anywhere in it.
    """
    source = os.fspath(source)
    what = "the source of records"
    if not os.path.exists(source):
        raise SourceError(
            three_part(what, source, "an existing directory of MindSpore summary records")
        )
    if not os.path.isdir(source):
        raise SourceError(three_part(what, source, "a directory, not a file: name its folder"))
    found: dict[str, tuple[str, tuple[RecordFile, ...]]] = {}
    for path in _directories(source):
        try:
            files = list_files(path)
        except OSError as error:
            if path == source:
                received = f"{source}: {error}"
                raise SourceError(three_part(what, received, "a readable directory")) from error
            logger.warning("rec_summary: %s is left out: %s", path, error.strerror or error)
            continue
        if files:
            found[os.path.relpath(path, source).replace(os.sep, "/")] = (path, files)
    if not found:
        raise SourceError(
            three_part(
                what,
                source,
                "a directory with record files in it or below it (their names contain "
                "`.out.events.summary.<seconds>.`)",
            )
        )
    base = os.path.basename(os.path.abspath(source)) or "root"
    nested = "." in found
    runs = []
    for relative, (path, files) in found.items():
        name = relative if not nested else base if relative == "." else f"{base}/{relative}"
        runs.append(Run(name, path, files))
    return sorted(runs, key=lambda run: run.name)


def _directories(top: str) -> Iterator[str]:
    waiting = [(top, 0)]
    while waiting:
        path, depth = waiting.pop()
        if depth > DEEPEST:
            logger.warning(
                "rec_summary: %s is left out: nested more than %d directories deep", path, DEEPEST
            )
            continue
        yield path
        with contextlib.suppress(OSError), os.scandir(path) as entries:  # who lists it learns why
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting.extend((each, depth + 1) for each in sorted(below, reverse=True))
