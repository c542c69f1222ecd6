"""Polling a tree of record directories for new records, at little cost.

The first poll lists each directory once. A directory is listed again only when its time of
modification says that a name was added or removed. Of the files, only the newest of each writer is
checked every time, because the others are complete. So a poll of a hundred idle runs takes a few
hundred calls of `stat`.

A tree of more than three hundred directories and newest files is watched: a poll checks the
directories of which the kernel reports a change (see `directory_watch`), the source, and in ten
minutes each of the others, because the kernel does not report all changes. Directories that cannot
be watched, such as those of network file systems, where notifications of other hosts' writes do not
arrive, are polled: those that changed last every time, and the others in turn.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rec_summary.errors import SourceError
from rec_summary.records.reading.runs import (
    DEEPEST,
    FileStatus,
    RecordFile,
    Run,
    directories_below,
    find_runs,
    linked_below,
    list_directory,
    record_files,
    run_name,
    warn_of,
)
from rec_summary.records.remote import NotFoundError, Url, path_or_url
from rec_summary.series.discovery.directory_watch import DirectoryWatch

_SETTLED_SECS: Final = 2.0  # a directory may change again without a change of its time before
_LIST_SECS: Final = 5.0  # a list of a URL takes a request for each thousand files
_RESCAN_SECS: Final = 30.0  # not every file system reports that a directory has changed
_LONGEST_TURN: Final = 20  # polls of a very large tree
_RECENT_SECS: Final = 60.0
_WATCHED_TURN_SECS: Final = 600.0

logger = logging.getLogger("rec_summary")


@dataclass
class _Directory:
    """What is known of a directory."""

    depth: int = 0  # below the source
    changed: float = -1.0  # its time of modification when it was listed
    listed: float = -1.0  # when that was, by the same clock
    below: Sequence[str] = ()
    files: tuple[RecordFile, ...] = ()
    newest: tuple[RecordFile, ...] = ()  # of each writer
    statuses: dict[str, FileStatus] = field(default_factory=dict)
    is_new: bool = True  # listed again since the last poll of its files

    @property
    def checks(self) -> int:
        """How many calls of `stat` a poll of it takes, at least."""
        return 1 + len(self.newest)


class RunPoller:
    """Finds the runs of a tree in which something has happened since the last poll.

    Attributes:
        source: The tree, a path or a URL.
    """

    def __init__(
        self,
        source: str,
        *,
        noticed: Callable[[os.DirEntry[str]], None] = lambda entry: None,
        clock: Callable[[], float] = time.time,
        most_checked: int = 300,
        watch: DirectoryWatch | None = None,
    ) -> None:
        """Creates a poller; nothing is read yet.

        Args:
            source: The tree; it need not exist yet.
            noticed: Called with all that is in a local directory whenever it is listed.
            clock: Returns the time that directories are stamped with, in seconds.
            most_checked: How many directories and files a poll checks, unless more are written to.
                A larger tree is watched.
            watch: What a large tree is watched with; by default a new one.
        """
        self.source = path_or_url(source)
        self._noticed = noticed
        self._clock = clock
        self._most_checked = most_checked
        self._directories: dict[str, _Directory] = {}
        self._watch = DirectoryWatch() if watch is None else watch
        self._gone: list[str] = []  # paths that were runs
        self._listed = -math.inf  # when a URL was listed
        self._again: set[str] = set()  # the paths of runs
        self._recent: dict[str, float] = {}  # when something was last written to a run, by its path
        self._others: Iterator[str] = iter(())
        self._watched_others: Iterator[str] = iter(())
        self._turned = clock()  # until when watched directories have had their turn
        self._retried: set[str] = set()  # directories with one in it that could not be checked
        self._inode = (0, 0)  # of the source, and its file system
        self._failure = ""  # why the last list of a URL failed
        self._checks = 0  # calls of `stat` in a poll of all directories
        self._left_out: set[str] = set()  # directories that cannot be read, links not followed
        self._unnamed: dict[str, str] = {}  # links of this poll that are not followed, and why
        self._found: list[Run] | None = None  # the runs that `find` has polled

    def __contains__(self, path: str) -> bool:
        """Whether the directory with a path was a run at the last poll."""
        known = self._directories.get(path)
        return known is not None and bool(known.files)

    def find(self) -> list[Run]:
        """Returns all runs that there are now; the next poll returns them without a further look.

        Raises:
            NotFoundError, SourceError: As `find_runs`.
        """
        self._found = self.poll()
        return self.runs() or find_runs(self.source, {})

    def poll(self) -> list[Run]:
        """Returns the runs that are new, or have new files, or files that have changed.

        A run is named by its path below the source; the source itself by its base name.
        """
        if self._found is not None:
            changed, self._found = self._found, None
            return changed
        if isinstance(self.source, Url):
            return self._poll_url(self.source)
        again, self._again = self._again, set()
        paths = {path for due in self._due(again) for path in self._check(due)}
        warn_of(self._unnamed)
        self._left_out.update(self._unnamed)
        self._unnamed = {}
        changed = []
        for path in paths:
            if path not in self:
                continue
            directory = self._directories[path]
            if self._has_changed(path, directory) or path in again:
                changed.append(self._run(path, directory))
        return sorted(changed, key=_in_order)

    def again(self, run: Run) -> None:
        """Makes the next poll return a run though nothing may have happened in it."""
        self._again.add(run.path)

    def gone(self) -> list[str]:
        """Returns the paths of runs that polls found to be gone since this was asked last."""
        gone, self._gone = self._gone, []
        return gone

    def runs(self) -> list[Run]:
        """Returns all runs of the last poll."""
        runs = [self._run(path, entry) for path, entry in self._directories.items() if entry.files]
        return sorted(runs, key=_in_order)

    def close(self) -> None:
        """Ends the watching of directories."""
        self._watch.close()

    def _poll_url(self, url: Url) -> list[Run]:
        """Lists all files, at most every few seconds, and compares their sizes."""
        now = self._clock()
        if abs(now - self._listed) < _LIST_SECS:  # the clock can be set back
            return []
        self._listed = now
        try:
            runs = find_runs(url)
        except NotFoundError:
            runs = []
        except SourceError as error:
            if self._failure != str(error):
                self._failure = str(error)
                logger.warning(
                    "rec_summary: the list of runs is not up to date, trying again: %s", error
                )
            return []
        self._failure = ""
        again, self._again = self._again, set()
        changed = []
        for run in runs:
            statuses = {file.path: file.status for file in run.files}
            known = self._directories.setdefault(run.path, _Directory())
            if statuses != known.statuses or run.path in again:
                changed.append(run)
            known.files, known.statuses = run.files, statuses
        for path in set(self._directories).difference(run.path for run in runs):
            del self._directories[path]
            self._gone.append(path)
        return changed

    def _due(self, again: set[str]) -> Iterator[str]:
        """Yields the directories to check, each unless it was forgotten meanwhile."""
        known = self._directories
        changed = self._watch.changed()
        retried, self._retried = self._retried, set()
        if not self._is_large or changed is None:
            due = list(known) or [self.source]
        else:
            # The path of the source can lead to another directory, of which nothing is reported.
            for path in changed:
                if path in known and path not in self._watch:
                    known[path].listed = -1.0  # another directory, maybe with the same time
            turns = (*self._watched_turn(), *self._polled())
            due = list(dict.fromkeys((self.source, *changed, *again, *retried, *turns)))
        return (path for path in due if path in known or path == self.source)

    def _watched_turn(self) -> Iterator[str]:
        """Yields as many of the watched directories as the time since the last poll is worth."""
        now = self._clock()
        each_secs = _WATCHED_TURN_SECS / len(self._directories)
        elapsed = min(max(now - self._turned, 0.0), _WATCHED_TURN_SECS)  # the clock can be set
        share = int(elapsed / each_secs)
        self._turned = now - (elapsed - share * each_secs)
        for _ in range(share):
            path = next(self._watched_others, None)
            if path is None:
                self._watch.look_at_mounts()
                self._watched_others = iter(list(self._directories))
            elif path in self._watch:
                yield path

    def _polled(self) -> Iterator[str]:
        """Yields the directories that are not watched, as far as it is their turn."""
        if len(self._directories) == len(self._watch):
            return
        limit = self._clock() - _RECENT_SECS
        newest_first = sorted(self._recent, key=self._recent.__getitem__, reverse=True)
        for path in newest_first[self._most_checked // 2 :]:
            if self._recent[path] < limit:
                del self._recent[path]
        turn = list(self._turn(max(self._most_checked // 2, self._checks // _LONGEST_TURN)))
        if not turn:
            self._others = iter([path for path in self._directories if path not in self._watch])
        # New runs appear in directories without records.
        without = [path for path, known in self._directories.items() if not known.files]
        for path in (*without, *self._recent, *turn):
            if path not in self._watch:
                yield path

    def _turn(self, checks: int) -> Iterator[str]:
        """Yields further directories in turn, until they take so many checks."""
        for path in self._others:
            known = self._directories.get(path)
            checks -= known.checks if known is not None else 0
            yield path
            if checks <= 0:
                return

    @property
    def _is_large(self) -> bool:
        return self._checks > self._most_checked

    def _check(self, path: str, depth: int = 0) -> Iterator[str]:
        """Yields a directory and new ones below it; lists it again if need be."""
        try:
            changed = self._watched(path)
        except OSError as error:
            self._lose(path, error)
            return
        known = self._directories.get(path)
        if known is None:
            known = self._directories[path] = _Directory(depth)
            self._checks += known.checks
        now = self._clock()
        unsettled = known.listed - known.changed < _SETTLED_SECS
        # The clock can be set back.
        if changed != known.changed or unsettled or abs(now - known.listed) > _RESCAN_SECS:
            try:
                self._take(path, known, list_directory(path))
            except OSError as error:
                self._lose(path, error)
                return
            known.changed, known.listed = changed, now
            known.is_new = True
        yield path
        for below in known.below if known.depth < DEEPEST else ():
            if below not in self._directories:
                yield from self._check(below, known.depth + 1)

    def _watched(self, path: str) -> float:
        """Watches a directory of a large tree; returns its time of modification after that.

        Raises:
            OSError: It is gone.
        """
        status = os.stat(path)
        if path == self.source and self._inode != (status.st_dev, status.st_ino):
            if self._watch:
                self._forget(path)  # all below are other directories now
            self._inode = status.st_dev, status.st_ino
        if self._is_large and self._watch.add(path, status.st_dev):
            status = os.stat(path)
        return status.st_mtime

    def _take(self, path: str, known: _Directory, entries: Sequence[os.DirEntry[str]]) -> None:
        """Finds the record files and the directories in a directory.

        Raises:
            OSError: An entry is of no known kind.
        """
        files = record_files(entries)
        followed, links = linked_below(entries, self.source)
        below = [*directories_below(entries), *followed]
        self._unnamed |= {path: links[path] for path in links if path not in self._left_out}
        for entry in entries:
            self._noticed(entry)
        for removed in set(known.below).difference(below):
            self._forget(removed)
        if known.files and not files:
            self._gone.append(path)
        before = known.checks
        known.files, known.below, known.newest = files, below, _newest(files)
        self._checks += known.checks - before
        here = {file.path for file in files}
        known.statuses = {path: status for path, status in known.statuses.items() if path in here}

    def _has_changed(self, path: str, directory: _Directory) -> bool:
        """Whether a file has another size, time or inode than at the last poll."""
        statuses = directory.statuses
        changed = []
        for file in directory.files if directory.is_new else directory.newest:
            status = file.status
            if status != statuses.get(file.path):
                changed.append(
                    status.modified / 1e9 if file.path not in statuses else self._clock()
                )
                statuses[file.path] = status
        directory.is_new = False
        if changed:
            self._recent[path] = max(changed)
        return bool(changed)

    def _lose(self, path: str, error: OSError) -> None:
        """Forgets a directory, and looks for it again: it need not be gone."""
        is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        if not is_gone and path not in self._left_out:
            self._left_out.add(path)
            logger.warning("rec_summary: %s is left out: %s", path, error.strerror or error)
        self._forget(path)
        self._retried.add(os.path.dirname(path))

    def _forget(self, path: str) -> None:
        known = self._directories.pop(path, None)
        self._watch.remove(path)
        self._recent.pop(path, None)
        if known is None:
            return
        self._checks -= known.checks
        if known.files:
            self._gone.append(path)
        for below in known.below:
            self._forget(below)

    def _run(self, path: str, directory: _Directory) -> Run:
        name = run_name(path, self.source, nested=self.source in self)
        return Run(name, path, directory.files)


def _newest(files: Sequence[RecordFile]) -> tuple[RecordFile, ...]:
    """Returns the newest file of each writer."""
    names = ((file.name, file) for file in files)
    newest = {(name.kind, name.rank, name.prefix, name.host): file for name, file in names}
    return tuple(newest.values())


def _in_order(run: Run) -> list[str]:
    """Returns a key that sorts runs as directories are listed."""
    return run.path.split(os.sep)
