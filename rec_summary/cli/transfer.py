"""Copies of directories at URLs: fetched before a command works on them, put there after it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from rec_summary.errors import (
    DestinationError,
    RecSummaryError,
    os_errors_as,
    three_part,
    verbatim,
)
from rec_summary.records.remote import (
    DESTINATION,
    SOURCE,
    Entry,
    NotFoundError,
    Url,
    errors_of,
    list_tree,
)
from rec_summary.series.report import Progress
from rec_summary.tensorboard.event_files.logdir import EVENTS, is_foreign

_PUT_SECS: Final = 15.0

logger = logging.getLogger("rec_summary")


def fetch_tree(url: Url, directory: str, progress: Progress | None = None) -> None:
    """Copies all files below a URL to a local directory.

    Raises:
        NotFoundError: There are none.
        SourceError: They cannot be read.
        DestinationError: They cannot be written.
    """
    entries = list_tree(url)
    if not entries:
        raise NotFoundError(three_part(SOURCE, url, "a URL of a directory with files in it"))
    done, total = 0, sum(entry.size for entry in entries)
    for entry in entries:
        if progress is not None:
            progress(url, done, total)
        local = os.path.join(directory, entry.url.below or entry.url.name)
        what, expected = "the temporary directory", "one with room for a copy"
        with os_errors_as(DestinationError, what, directory, expected):
            os.makedirs(os.path.dirname(local), exist_ok=True)
        fs, path = entry.url.connect(SOURCE)
        with errors_of(url, SOURCE):
            fs.get_file(path, local)
        done += entry.size


class Upload:
    """Puts the files of a local directory to a URL, each as a whole.

    A file at the URL with the same name is replaced; other files stay. There is no lock, but
    what another process has put there since the last call is not replaced.

    Attributes:
        directory: The local directory.
    """

    def __init__(self, directory: str, url: Url) -> None:
        """Takes a directory and where its files go; nothing is put yet.

        Raises:
            DestinationError: The place cannot be listed.
        """
        self.directory, self._url = directory, url
        # Size and version of what is at the URL; None if that is unknown.
        self._there: dict[str, tuple[int, str] | None] | None = _versions(self._listed())
        self._known: dict[str, tuple[int, int]] = {}  # size and time of what was put
        self._lock = threading.Lock()

    def put(self, progress: Progress | None = None) -> int:
        """Puts the files that are new or have changed since the last call.

        Names that begin with a dot are not put. Where a directory has an event file of this
        package, others of this package at the URL are removed: they are of an earlier export,
        and TensorBoard would read both.

        Args:
            progress: Gets the URL, the bytes put so far, and the bytes in all.

        Returns:
            How many bytes were put.

        Raises:
            DestinationError: The place cannot be written to, a directory with an event file of
                this package has one of another writer at the URL, or another process has put
                files there since this object was created or this was last called.
        """
        with self._lock:
            here = self._local_files()
            due = {name: about for name, about in here.items() if self._known.get(name) != about}
            if not due:
                return 0
            before, ours = self._listed(), set()
            stale = self._stale_events(here, before)
            done, total = 0, sum(size for size, _ in due.values())
            try:
                for name, about in due.items():
                    if progress is not None:
                        progress(self._url, done, total)
                    ours.add(name)
                    self._put_file(name)
                    done += about[0]
                    self._known[name] = about
                for url in stale:
                    fs, path = url.connect(DESTINATION)
                    with errors_of(self._url, DESTINATION), contextlib.suppress(FileNotFoundError):
                        fs.rm_file(path)
            finally:
                self._there = None
                with contextlib.suppress(RecSummaryError):
                    # What others have put meanwhile stays unknown.
                    now = {name: entry for name, entry in self._listed().items() if name in ours}
                    self._there = _versions({**before, **now})
        return total

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[None]:
        """Puts again and again in a thread, while the context lasts; failures are logged."""
        stop = threading.Event()

        def work() -> None:
            before = ""
            while not stop.wait(_PUT_SECS):
                try:
                    self.put()
                    before = ""
                except RecSummaryError as error:
                    if before != str(error):
                        before = str(error)
                        logger.warning(
                            "rec_summary: writing to the URL failed, trying again: %s", error
                        )

        thread = threading.Thread(target=work, name="rec_summary-upload", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _local_files(self) -> dict[str, tuple[int, int]]:
        files = {}
        for parent, directories, names in os.walk(self.directory):
            directories[:] = [name for name in directories if not name.startswith(".")]
            for name in names:
                path = os.path.join(parent, name)
                if not name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(path)
                        relative = os.path.relpath(path, self.directory).replace(os.sep, "/")
                        files[relative] = (status.st_size, status.st_mtime_ns)
        return files

    def _listed(self) -> dict[str, Entry]:
        return {entry.url.below: entry for entry in list_tree(self._url, DESTINATION)}

    def _stale_events(self, here: Mapping[str, object], there: Mapping[str, Entry]) -> list[Url]:
        """Returns event files to remove; raises `DestinationError` if others write to the URL."""
        directories = {name.rpartition("/")[0] for name in here if EVENTS in name}
        stale = []
        for below, entry in there.items():
            directory, _, name = below.rpartition("/")
            if below not in here:
                if directory not in directories or EVENTS not in name:
                    continue
                if is_foreign(name):
                    received = verbatim(f"{entry.url}, an event file of another writer")
                    expected = (
                        "one writer for each run directory: export elsewhere, or move it away"
                    )
                    raise DestinationError(three_part(DESTINATION, received, expected))
                stale.append(entry.url)
            if self._there is not None and self._there.get(below) != entry.url.listed:
                received = verbatim(f"{entry.url}, which another process has written meanwhile")
                expected = "one writer for each URL: end the others, then export again"
                raise DestinationError(three_part(DESTINATION, received, expected))
        return stale

    def _put_file(self, name: str) -> None:
        fs, path = self._url.child(name).connect(DESTINATION)
        with errors_of(self._url, DESTINATION):
            if not self._url.is_in_a_store:  # s3fs would make a bucket
                fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            fs.put_file(os.path.join(self.directory, *name.split("/")), path)


def _versions(entries: Mapping[str, Entry]) -> dict[str, tuple[int, str] | None]:
    return {name: entry.url.listed for name, entry in entries.items()}
