"""Copies of directories at URLs: fetched before a command works on them, put there after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from rec_summary.errors import DestinationError, os_errors_as, three_part, verbatim
from rec_summary.records.incidents import FOLDER
from rec_summary.records.remote import (
    DESTINATION,
    SOURCE,
    NotFoundError,
    Url,
    errors_of,
    list_tree,
)
from rec_summary.series.report import Progress
from rec_summary.tensorboard.event_files.logdir import EVENTS, is_foreign


def fetch_tree(url: Url, directory: str, progress: Progress) -> None:
    """Copies all files below a URL to a local directory, but no incidents: those are users' data.

    Raises:
        NotFoundError: There are none.
        SourceError: They cannot be read.
        DestinationError: They cannot be written.
    """
    entries = [each for each in list_tree(url) if FOLDER not in each.url.below.split("/")[:-1]]
    if not entries:
        raise NotFoundError(three_part(SOURCE, url, "a URL of a directory with files in it"))
    done, total = 0, sum(entry.size for entry in entries)
    for entry in entries:
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
        # Size and version of what is at the URL.
        self._there = {entry.url.below: entry.url.listed for entry in list_tree(url, DESTINATION)}

    def put(self, progress: Progress) -> None:
        """Puts the files.

        Names that begin with a dot are not put. Where a directory has an event file of this
        package, others of this package at the URL are removed: they are of an earlier export,
        and TensorBoard would read both.

        Args:
            progress: Gets the URL, the bytes put so far, and the bytes in all.

        Raises:
            DestinationError: The place cannot be written to, a directory with an event file of
                this package has one of another writer at the URL, or another process has put
                files there since this object was created.
        """
        sizes = _sizes_below(self.directory)
        stale = self._stale_events(sizes) if sizes else []
        done, total = 0, sum(sizes.values())
        for name, size in sizes.items():
            progress(self._url, done, total)
            self._put_file(name)
            done += size
        for url in stale:
            fs, path = url.connect(DESTINATION)
            with errors_of(self._url, DESTINATION), contextlib.suppress(FileNotFoundError):
                fs.rm_file(path)

    def _stale_events(self, here: Collection[str]) -> list[Url]:
        """Returns event files to remove; raises `DestinationError` if others write to the URL."""
        directories = {name.rpartition("/")[0] for name in here if EVENTS in name}
        stale = []
        for url in (entry.url for entry in list_tree(self._url, DESTINATION)):
            directory, _, name = url.below.rpartition("/")
            if url.below not in here:
                if directory not in directories or EVENTS not in name:
                    continue
                if is_foreign(name):
                    received = verbatim(f"{url}, an event file of another writer")
                    expected = (
                        "one writer for each run directory: export elsewhere, or move it away"
                    )
                    raise DestinationError(three_part(DESTINATION, received, expected))
                stale.append(url)
            if self._there.get(url.below) != url.listed:
                received = verbatim(f"{url}, which another process has written meanwhile")
                expected = "one writer for each URL: end the others, then export again"
                raise DestinationError(three_part(DESTINATION, received, expected))
        return stale

    def _put_file(self, name: str) -> None:
        fs, path = self._url.child(name).connect(DESTINATION)
        with errors_of(self._url, DESTINATION):
            if not self._url.is_in_a_store:  # s3fs would make a bucket
                fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            fs.put_file(os.path.join(self.directory, *name.split("/")), path)


def _sizes_below(directory: str) -> dict[str, int]:
    """Returns the sizes of files in bytes; those of hidden files are left out."""
    paths = (path for path in Path(directory).rglob("*") if path.is_file())
    sizes = {path.relative_to(directory).as_posix(): path.stat().st_size for path in paths}
    return {name: size for name, size in sizes.items() if "/." not in f"/{name}"}
