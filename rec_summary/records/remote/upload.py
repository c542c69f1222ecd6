"""Putting a local directory to a URL: what was written here appears there, file by file.

Stores of objects cannot append, so a file that has grown is put again as a whole; each
appears there whole or not at all. They have no locks either: see `records.lease`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from rec_summary.errors import DestinationError, RecSummaryError, three_part, verbatim
from rec_summary.records.remote.lease import LOCK_NAME, Lease
from rec_summary.records.remote.places import (
    DESTINATION,
    base_name,
    clean,
    connect,
    make_room,
    no_cache,
    stand_for,
    talking,
)

INTERVAL_SECS: Final = 15.0
_WHOLE: Final = frozenset(  # here a file appears when it is complete
    ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "memory")
)
_PATIENCE: Final = 10.0  # rest so many times as long as the last round took
_EVENTS: Final = "tfevents"
_OURS: Final = re.compile(r"events\.out\.tfevents\.\d{1,19}\.rec_summary")

Progress = Callable[[str, int, int], None]

logger = logging.getLogger("rec_summary")


class Upload:
    """A local directory that is put to a URL; use it as a context, which holds the lock.

    Attributes:
        url: The URL, as it may be shown.
        path: The local directory to write to; kept, so that the next export adds to it.
    """

    def __init__(self, url: str, cache: str | None = None, *, fresh: bool = False) -> None:
        """Prepares.

        Args:
            url: Where the files go.
            cache: Where the local directory is kept (see `places.cache_home`).
            fresh: Whether to begin with an empty directory here, and only add to the URL.

        Raises:
            NoSuchPlace: The URL cannot be meant.
            DestinationError: The cache cannot be used.
        """
        self.url = clean(url)
        self._fs, self._root = connect(url, DESTINATION)
        protocol = self._fs.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self._whole = bool(protocols & _WHOLE)
        self._room = make_room(cache, "uploads", url)
        self.path = os.path.join(self._room, "files", base_name(url))
        self._state_path = os.path.join(self._room, "state.json")
        self._fresh = fresh
        self._pushing = threading.Lock()
        self._known: dict[str, list[int]] = {}  # size and time of what was put, by name
        self._exit = contextlib.ExitStack()
        stand_for(self.path, url)

    def __enter__(self) -> Upload:
        """Takes the lock, and looks at what is there.

        Raises:
            DestinationError: Another writer holds the lock, or the place cannot be used.
        """
        with contextlib.ExitStack() as stack:
            if not self._whole:
                with talking(self.url, DESTINATION):
                    self._fs.makedirs(self._root, exist_ok=True)
            stack.enter_context(Lease(self._fs, self._root, self.url))
            try:
                if self._fresh:
                    shutil.rmtree(self.path, ignore_errors=True)
                # What has been put before is ours to remove only while we know what it was.
                self._known = self._read_state() if os.path.isdir(self.path) else {}
                os.makedirs(self.path, exist_ok=True)
            except OSError as error:
                raise no_cache(self._room, error) from error
            there = self._there()
            # What somebody has removed or changed there is put again.
            self._known = {k: v for k, v in self._known.items() if there.get(k) == v[0]}
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def is_empty(self) -> bool:
        """Whether there are no files at the URL, but for the lock."""
        return not [name for name in self._there() if name != LOCK_NAME]

    def push(self, progress: Progress | None = None) -> int:
        """Puts every file that is new or has changed, and removes ours that are gone here.

        Names that begin with a dot stay here. Event files of others are never touched.

        Args:
            progress: Told the URL, the bytes put, and the bytes to put.

        Returns:
            How many bytes were put.

        Raises:
            DestinationError: The place cannot be written to, or an event file of another
                writer is in a directory of ours.
        """
        with self._pushing:
            here = self._here()
            due = {name: now for name, now in here.items() if self._known.get(name) != now}
            gone = [name for name in self._known if name not in here]
            if not due and not gone:
                return 0
            there = self._there()
            directories = {_directory(name) for name in here if _EVENTS in name}
            for name in there:
                base = name.rpartition("/")[2]
                if _directory(name) not in directories or _EVENTS not in base or name in here:
                    continue
                if not _OURS.fullmatch(base):
                    raise self._foreign(name)
                gone.append(name)  # of an export before, and TensorBoard would read both
            total, done = sum(size for size, _ in due.values()), 0
            for name, now in due.items():
                if progress is not None:
                    progress(self.url, done, total)
                self._put(name)
                done += now[0]
                self._known[name] = now
                self._write_state()
            for name in sorted(set(gone)):
                if name in there:
                    with talking(self.url, DESTINATION), contextlib.suppress(FileNotFoundError):
                        self._fs.rm_file(f"{self._root}/{name}")
                self._known.pop(name, None)
            self._write_state()
        return total

    @contextlib.contextmanager
    def kept_pushed(self, interval: float = INTERVAL_SECS) -> Iterator[None]:
        """Pushes again and again, in a thread, while the context lasts.

        Since files are put as wholes, rounds that take long are made less often. What goes
        wrong is logged, once for each text, and tried again.
        """
        stop = threading.Event()

        def work() -> None:
            told, rest = "", interval
            while not stop.wait(rest):
                began = time.monotonic()
                try:
                    self.push()
                    told = ""
                except RecSummaryError as error:
                    if told != str(error):
                        told = str(error)
                        logger.warning("rec_summary: not put yet, trying again: %s", error)
                rest = max(interval, _PATIENCE * (time.monotonic() - began))

        thread = threading.Thread(target=work, name="rec_summary-upload", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()  # the last push comes after it

    def _here(self) -> dict[str, list[int]]:
        found = {}
        for parent, directories, names in os.walk(self.path):
            directories[:] = [name for name in directories if not name.startswith(".")]
            for name in names:
                if name.startswith("."):
                    continue
                path = os.path.join(parent, name)
                with contextlib.suppress(FileNotFoundError):
                    about = os.stat(path)
                    relative = os.path.relpath(path, self.path).replace(os.sep, "/")
                    found[relative] = [about.st_size, about.st_mtime_ns]
        return found

    def _there(self) -> dict[str, int]:
        with talking(self.url, DESTINATION):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                found = {}
        prefix = f"{self._root}/"
        return {
            str(path)[len(prefix) :]: info.get("size", -1)
            for path, info in found.items()
            if str(path).startswith(prefix)
        }

    def _put(self, name: str) -> None:
        remote = f"{self._root}/{name}"
        local = os.path.join(self.path, *name.split("/"))
        with talking(self.url, DESTINATION):
            if self._whole:
                self._fs.put_file(local, remote)
                return
            self._fs.makedirs(remote.rpartition("/")[0], exist_ok=True)
            parent, _, base = remote.rpartition("/")
            partial = f"{parent}/.{base}.part"
            self._fs.put_file(local, partial)
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(remote)
            self._fs.mv(partial, remote)

    def _foreign(self, name: str) -> DestinationError:
        received = verbatim(f"{self.url}/{name}, an event file of another writer")
        expected = "one writer for each run directory: export to another place, or move it away"
        return DestinationError(three_part(DESTINATION, received, expected))

    def _read_state(self) -> dict[str, list[int]]:
        try:
            with open(self._state_path, encoding="utf-8") as file:
                return {name: [int(a), int(b)] for name, (a, b) in json.load(file).items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError):
            return {}  # all is put again

    def _write_state(self) -> None:
        temporary = f"{self._state_path}.part"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self._known, file)
        os.replace(temporary, self._state_path)


def _directory(name: str) -> str:
    return name.rpartition("/")[0]
