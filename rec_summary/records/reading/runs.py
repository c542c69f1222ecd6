"""Finding runs and their record files."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import logging
import math
import operator
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rec_summary._pb.summary_pb2 import Compaction, Event
from rec_summary.errors import RecordError, SourceError, three_part, verbatim
from rec_summary.records.files import FOLLOW_LINKS, follows_links
from rec_summary.records.format.bounds import UNDECODABLE
from rec_summary.records.format.names import Kind, RecordName, parse_name
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.remote import (
    SOURCE,
    Entry,
    NotFoundError,
    Url,
    list_tree,
    path_or_url,
)

logger = logging.getLogger("rec_summary")

DEEPEST: Final = 64
"""How deep directories of records may be nested; a path cannot be longer than 4 KiB anyway."""


_CLOCKS_SECS: Final = 60.0  # how much the clocks of a writer and of its file system may differ
_MOST_NAMED: Final = 5  # directories that are left out, in a warning each; the others are counted


class FileStatus(NamedTuple):
    """The status of a file; it changes when the file is written to or replaced.

    Attributes:
        size: Its size in bytes.
        modified: Its time of modification, in nanoseconds; 0 at a URL.
        inode: Its number in the file system; 0 at a URL.
    """

    size: int
    modified: int = 0
    inode: int = 0


@dataclass(frozen=True)
class RecordFile:
    """A record file of a run.

    Attributes:
        path: A path or a `Url`.
        name: The parts of its name.
        entry: What the list of a URL says of it; None for a local file.
        scanned: What has been read of it together with other files, as a `ScannedFile`; None if
            nothing has.
    """

    path: str
    name: RecordName
    entry: Entry | None = field(default=None, compare=False)
    scanned: Any = field(default=None, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Its size at this moment, 0 if it is gone; at a URL, its size when it was listed."""
        return self.status.size

    @property
    def status(self) -> FileStatus:
        """Its status at this moment, with a size of 0 if it is gone."""
        if self.entry is not None:
            return FileStatus(self.entry.size)
        try:
            status = os.lstat(self.path)
        except OSError:
            return FileStatus(0)
        return FileStatus(status.st_size, status.st_mtime_ns, status.st_ino)

    @property
    def changed(self) -> float:
        """When it was last written to, in seconds since the epoch; -inf if it is gone."""
        if self.entry is not None:
            return self.entry.modified
        try:
            return os.stat(self.path).st_mtime
        except OSError:
            return -math.inf

    def may_hold(self, after: float, until: float = math.inf) -> bool:
        """Whether records from one time to another may be in the file; it is not opened.

        A file that was last written to before `after` has none, and neither has a file that was
        begun after `until`, by its name. A time of modification before the time in the name is not
        trusted: a copy or an archive has set it.

        Args:
            after: The first time, in seconds since the epoch.
            until: The last time.
        """
        if self.name.stamp > until + _CLOCKS_SECS:
            return False
        changed = self.changed + _CLOCKS_SECS
        return changed >= after or changed < self.name.end


@dataclass(frozen=True)
class Run:
    """A directory that holds record files.

    Attributes:
        name: Its path below the source, with `/`; TensorBoard shows it.
        path: The directory; a path or a `Url`.
        files: Its record files, in the order of creation.
    """

    name: str
    path: str
    files: tuple[RecordFile, ...]

    @functools.cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have written files, ascending."""
        return tuple(sorted({rank for _, rank in self._by_rank}))

    @property
    def nbytes(self) -> int:
        """The size of all its record files at this moment."""
        return sum(file.nbytes for file in self.files)

    def files_of(self, kind: Kind, rank: int) -> tuple[RecordFile, ...]:
        """The files of one kind and rank, in the order of creation."""
        return tuple(self._by_rank.get((kind, rank), ()))

    def by_rank(self) -> Iterator[Run]:
        """Yields a part of the run for each rank: the files of this rank."""
        for rank in self.ranks:
            files = tuple(file for file in self.files if file.name.rank == rank)
            yield dataclasses.replace(self, files=files)

    def file(self, path: str) -> RecordFile:
        """Returns the record file with a path."""
        return self._by_path[path]

    @functools.cached_property
    def _by_path(self) -> dict[str, RecordFile]:
        return {file.path: file for file in self.files}

    @functools.cached_property
    def _by_rank(self) -> dict[tuple[Kind, int], list[RecordFile]]:
        """The files of each kind and rank: there may be thousands of ranks."""
        files: dict[tuple[Kind, int], list[RecordFile]] = {}
        for file in self.files:
            files.setdefault((file.name.kind, file.name.rank), []).append(file)
        return files


def compaction_of(file: RecordFile) -> Compaction | None:
    """Returns what a compacted file is made of; None if it is not one, or cannot be read."""
    head = Event() if file.name.last is None else head_of(file)
    return head.compaction if head.HasField("compaction") else None


def head_of(file: RecordFile) -> Event:
    """Returns the first record of a file; one without any field if it cannot be read."""
    try:
        with RecordReader(file.path) as reader:
            first = reader.read()
            # The fields are those of a lineage event as well.
            return Event.FromString(first.payload) if first is not None else Event()
    except (OSError, RecordError, *UNDECODABLE):
        return Event()


def in_force(files: Iterable[RecordFile]) -> list[RecordFile]:
    """Returns the files that no other file of the list replaces.

    The first record of a compacted file names the files that it replaces. They exist for a little
    longer under hidden names, for readers that have a list from before.
    """
    files = sorted(files, key=_stamp)
    gone: set[str] = set()
    for compacted in files:
        if compacted.name.last is None:
            continue
        # Usually none is left, and nothing has to be read.
        first = bisect.bisect_left(files, compacted.name.stamp, key=_stamp)
        last = bisect.bisect_right(files, compacted.name.end, key=_stamp)
        covered = [file for file in files[first:last] if compacted.name.covers(file.name)]
        compaction = compaction_of(compacted) if covered else None
        if compaction is not None:
            names = set(compaction.superseded)
            gone.update(file.path for file in covered if os.path.basename(file.path) in names)
    return [file for file in files if file.path not in gone]


def list_directory(path: str) -> list[os.DirEntry[str]]:
    """Returns all that is in a local directory, in no order.

    Raises:
        OSError: It cannot be read.
    """
    with os.scandir(path) as entries:
        return list(entries)


def present_files(entries: Iterable[os.DirEntry[str]]) -> Iterator[RecordFile]:
    """Yields the record files among the entries of a directory, those that are replaced as well.

    Links are included: readers do not follow them, and report them.
    """
    for entry in entries:
        name = parse_name(entry.name)
        if name is not None and entry.is_file():
            yield RecordFile(entry.path, name)


def record_files(entries: Iterable[os.DirEntry[str]]) -> tuple[RecordFile, ...]:
    """Returns the record files among the entries of a directory, in the order of creation.

    Files that a compacted file replaces are left out.
    """
    return _in_order(present_files(entries))


def directories_below(entries: Iterable[os.DirEntry[str]]) -> list[str]:
    """Returns the directories among the entries of one, in order; links are not followed."""
    return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def linked_below(
    entries: Iterable[os.DirEntry[str]], source: str
) -> tuple[list[str], dict[str, str]]:
    """Returns the links to directories that are followed, and why the others are not, by path.

    A directory in the tree is read once, by its own name: a link to it is in neither.

    Args:
        entries: What is in a directory.
        source: The tree that the directory is in.
    """
    followed: list[str] = []
    left_out: dict[str, str] = {}
    for link in entries:
        if not (link.is_symlink() and os.path.isdir(link.path)):
            continue
        target = os.path.realpath(link.path)
        relative = os.path.relpath(os.path.dirname(link.path), source).split(os.sep)
        way = list(
            map(os.path.realpath, itertools.accumulate(relative, os.path.join, initial=source))
        )
        common = [os.path.commonpath((path, target)) for path in way]
        if target in common:
            left_out[link.path] = f"a link back to {target}, which it is in"
        elif any(map(operator.eq, common, way)):
            continue
        elif follows_links():
            followed.append(link.path)
        else:
            left_out[link.path] = (
                f"a link out of the tree, to {target} ({FOLLOW_LINKS}=1 follows links in a tree "
                "that you trust)"
            )
    return followed, left_out


def warn_of(left_out: dict[str, str]) -> None:
    """Logs which directories are left out, and why; of very many, only how many they are."""
    for path, why in itertools.islice(left_out.items(), _MOST_NAMED):
        logger.warning("rec_summary: %s is left out: %s", path, why)
    if len(left_out) > _MOST_NAMED:
        more = len(left_out) - _MOST_NAMED
        logger.warning("rec_summary: %d more directories are left out", more)


def list_files(path: str) -> tuple[RecordFile, ...]:
    """Returns the record files directly in a local directory, as `record_files`.

    Raises:
        OSError: The directory cannot be read.
    """
    return record_files(list_directory(path))


def find_runs(source: str | os.PathLike[str], left_out: dict[str, str] | None = None) -> list[Run]:
    """Returns every run in a directory tree, in the order of their names.

    A run is a directory with record files in it. Its name is its path below `source`; if
    `source` is a run itself, each name begins with the name of that directory.

    A local directory below `source` that cannot be read, is nested more than 64 deep, or is
    reached through a link out of the tree is left out. Such links are followed if the environment
    variable `REC_SUMMARY_FOLLOW_LINKS` is 1.

    Args:
        source: A record directory or a tree of them, as a path or a URL.
        left_out: Takes why each directory is left out, by its path; None to log warnings.

    Raises:
        NotFoundError: There is no such directory, or it has no record file at any depth.
        SourceError: It cannot be read.
    """
    source = path_or_url(source)
    found: dict[str, str] = {}
    paths = _remote_runs(source) if isinstance(source, Url) else _local_runs(source, found)
    if not paths:
        expected = (
            "a directory with record files in it or below it (their names contain "
            "`summary.<number>`)"
        )
        for path, why in itertools.islice(found.items(), 1):
            expected += f"; {path} is left out: {why}"
        raise NotFoundError(three_part(SOURCE, source, expected))
    if left_out is None:
        warn_of(found)
    else:
        left_out.update(found)
    nested = source in paths
    runs = [
        Run(run_name(path, source, nested=nested), path, files) for path, files in paths.items()
    ]
    return sorted(runs, key=lambda run: run.name)


def relative_path(path: str, source: str) -> str:
    """Returns the path of a directory below `source`, with `/`; `.` for `source` itself."""
    return os.path.relpath(path, source).replace(os.sep, "/")


def run_name(path: str, source: str, *, nested: bool) -> str:
    """Returns the name of a run.

    Args:
        path: Its directory.
        source: The tree that it is in.
        nested: Whether `source` is a run itself.
    """
    relative = relative_path(path, source)
    if not nested:
        return relative
    local = None if isinstance(source, Url) else os.path.basename(os.path.abspath(source))
    base = source.name if isinstance(source, Url) else local or "root"
    return base if relative == "." else f"{base}/{relative}"


def _stamp(file: RecordFile) -> int:
    return file.name.stamp


def _in_order(files: Iterable[RecordFile]) -> tuple[RecordFile, ...]:
    return tuple(sorted(in_force(files), key=lambda file: (*file.name.order, file.path)))


def _remote_runs(url: Url) -> dict[str, tuple[RecordFile, ...]]:
    paths: dict[str, list[RecordFile]] = {}
    entries = list_tree(url)
    if not entries:  # a store has no empty directories
        expected = "an existing place; there is no file at this URL or below it"
        raise NotFoundError(three_part(SOURCE, url, expected))
    for entry in entries:
        directory, _, base = entry.url.below.rpartition("/")
        name = parse_name(base)
        if name is not None:
            path = Url(url.base, directory)
            paths.setdefault(path, []).append(RecordFile(entry.url, name, entry))
    return {path: _in_order(files) for path, files in paths.items()}


def _local_runs(source: str, left_out: dict[str, str]) -> dict[str, tuple[RecordFile, ...]]:
    if not os.path.exists(source):
        expected = "an existing directory of MindSpore summary records"
        raise NotFoundError(three_part(SOURCE, source, expected))
    if not os.path.isdir(source):
        expected = f"a directory; that of this file is {os.path.dirname(source) or os.curdir!r}"
        raise NotFoundError(three_part(SOURCE, source, expected))
    directories = {}
    waiting = [(source, 0)]
    while waiting:
        path, depth = waiting.pop()
        if depth > DEEPEST:
            left_out[path] = f"nested more than {DEEPEST} directories deep"
            continue
        try:
            entries = list_directory(path)
            files, below = record_files(entries), directories_below(entries)
            followed, links = linked_below(entries, source)
        except OSError as error:
            if path == source:
                received = verbatim(f"{source}: {error.strerror or error}")
                raise SourceError(three_part(SOURCE, received, "a readable directory")) from error
            left_out[path] = str(error.strerror or error)
            continue
        left_out.update(links)
        if files:
            directories[path] = files
        waiting.extend((child, depth + 1) for child in reversed((*below, *followed)))
    return directories
