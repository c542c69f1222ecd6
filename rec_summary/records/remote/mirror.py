"""A local copy of the record files at a URL, brought up to date by ranges.

Record files only grow, and rotated ones get new names; so of a file that has grown, only
what is new is fetched, after a comparison of its beginning and of its last bytes with what
is here. A file that was replaced is fetched anew, one that was deleted is deleted. Readers
never meet half a file: a new one appears whole, and an addition that breaks off is cut off
again, by the next refresh if this process dies. What is torn at the end of the remote file
is torn here as well, which readers know from live trainings.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rec_summary.errors import RecSummaryError, three_part
from rec_summary.records.format.names import parse_name
from rec_summary.records.locks import file_lock
from rec_summary.records.remote.fetch import PARTIAL, Fetcher, RemoteFile
from rec_summary.records.remote.places import (
    SOURCE,
    NoSuchPlace,
    base_name,
    clean,
    connect,
    local_path,
    make_room,
    no_cache,
    stand_for,
    talking,
)

INTERVAL_SECS: Final = 5.0
_AT_ONCE: Final = 8  # files; what costs is the way there and back, not this machine
_LOCK_SECS: Final = 600.0
_IDENTITY: Final = (
    *("ETag", "etag", "generation", "md5Hash", "contentHash", "checksum", "VersionId"),
    *("LastModified", "last_modified", "updated", "mtime", "modified", "created"),
)

logger = logging.getLogger("rec_summary")

Progress = Callable[[str, int, int], None]


def is_record_file(name: str) -> bool:
    """Whether a file with this name is mirrored by default: record files are."""
    return parse_name(name) is not None


class _Stopped(Exception):
    """Another file has failed, or the user does not want to wait."""


class Mirror:
    """Keeps a local copy of what is at a URL.

    Attributes:
        url: The URL, as it may be shown.
        path: The local directory (or file, if the URL is one) that stands for it.
    """

    def __init__(
        self,
        url: str,
        cache: str | None = None,
        *,
        wanted: Callable[[str], bool] = is_record_file,
    ) -> None:
        """Prepares; nothing is fetched yet.

        Args:
            url: The URL of a record directory, of a tree of them, or of a record file.
            cache: Where copies are kept (see `places.cache_home`).
            wanted: Tells by its name whether a file is fetched.

        Raises:
            NoSuchPlace: The URL cannot be meant.
            DestinationError: The cache cannot be used.
        """
        self.url = clean(url)
        self._fs, self._root = connect(url, SOURCE)
        self._wanted = wanted
        self._room = make_room(cache, "mirrors", url)
        # The last name stays: runs are called after it.
        self.path = os.path.join(self._room, "records", base_name(url))
        self._state_path = os.path.join(self._room, "state.json")
        stand_for(self.path, url)

    def refresh(self, progress: Progress | None = None, *, must_exist: bool = True) -> int:
        """Brings the copy up to date.

        Args:
            progress: Told the URL, the bytes fetched, and the bytes to fetch.
            must_exist: Whether an empty place is an error.

        Returns:
            How many bytes were fetched.

        Raises:
            NoSuchPlace: There is nothing at the URL.
            SourceError: It cannot be read.
            DestinationError: The copy cannot be written.
        """
        with self._locked():
            remote, anything = self._list()
            if must_exist and not anything:
                raise NoSuchPlace(
                    three_part(SOURCE, self.url, "a URL of record files, or of a tree of them")
                )
            try:
                if "" not in remote:
                    os.makedirs(self.path, exist_ok=True)
                return self._update(remote, progress)
            except OSError as error:
                raise no_cache(self._room, error) from error

    @contextlib.contextmanager
    def kept_fresh(self, interval: float = INTERVAL_SECS) -> Iterator[None]:
        """Refreshes again and again, in a thread, while the context lasts.

        What goes wrong is logged, once for each text, and tried again.
        """
        stop = threading.Event()

        def work() -> None:
            told = ""
            while not stop.wait(interval):
                try:
                    self.refresh(must_exist=False)
                    told = ""
                except RecSummaryError as error:
                    if told != str(error):
                        told = str(error)
                        logger.warning("rec_summary: not up to date, trying again: %s", error)

        thread = threading.Thread(target=work, name="rec_summary-mirror", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(2.0)  # it may hang on the network, and ends with the process

    def _list(self) -> tuple[dict[str, RemoteFile], bool]:
        """Returns the wanted files by their paths below the root, and whether any are there."""
        with talking(self.url, SOURCE):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                found = {}
        wanted = {}
        for path, info in found.items():
            name = str(path)[len(self._root) :].strip("/")
            parts = name.split("/") if name else []
            below = str(path) == self._root or str(path).startswith(f"{self._root}/")
            if not below or not self._wanted(str(path).rpartition("/")[2]):
                continue
            if any(part in ("", ".", "..") or "\0" in part for part in parts):
                logger.warning("rec_summary: %s: left out, no name for a file: %r", self.url, name)
                continue
            if isinstance(info.get("size"), int):
                wanted[name] = RemoteFile(str(path), info["size"], _identity(info))
        return wanted, bool(found)

    def _update(self, remote: Mapping[str, RemoteFile], progress: Progress | None) -> int:
        state = self._read_state()
        for entry in os.listdir(self._room):
            if entry.startswith(PARTIAL):  # of a process that was killed
                os.unlink(os.path.join(self._room, entry))
        # What another command has wanted, such as checkpoints, is left as it is.
        known = [name for name in state if self._wanted(name.rpartition("/")[2] or self._root)]
        for name in [name for name in known if name not in remote]:
            self._forget(name, state)
        due = {name: file for name, file in remote.items() if not self._is_here(name, file, state)}
        have = {name: self._have(name, state) for name in due}
        total = sum(file.size - have[name] for name, file in due.items())
        done, lock, stop = 0, threading.Lock(), threading.Event()

        def advance(nbytes: int) -> None:
            nonlocal done
            if stop.is_set():
                raise _Stopped
            with lock:
                done += nbytes
                if progress is not None:
                    progress(self.url, done, max(total, done))

        if progress is not None and due:
            progress(self.url, 0, total)
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            fetch = Fetcher(self._fs, self.url, self._room).fetch
            tasks = {
                pool.submit(fetch, file, self._local(name), have[name], advance): (name, file)
                for name, file in due.items()
            }
            try:
                for task in concurrent.futures.as_completed(tasks):
                    name, file = tasks[task]
                    if task.result():
                        state[name] = [file.size, file.identity]
            finally:
                stop.set()
                # Whatever is complete is not fetched again.
                pool.shutdown(wait=True, cancel_futures=True)
                if due:
                    self._write_state(state)
        if done:
            logger.info("rec_summary: %s: %d bytes fetched", self.url, done)
        return done

    def _is_here(self, name: str, file: RemoteFile, state: Mapping[str, Any]) -> bool:
        known = state.get(name)
        return known == [file.size, file.identity] and self._have(name, state) == file.size

    def _have(self, name: str, state: Mapping[str, Any]) -> int:
        """Returns how much of a file is here and known to be that of the store."""
        known = state.get(name)
        try:
            present = os.path.getsize(self._local(name))
        except OSError:
            return 0
        return known[0] if known is not None and present >= known[0] else 0

    def _forget(self, name: str, state: dict[str, Any]) -> None:
        """Deletes the copy of a file that is gone, once the store says so."""
        remote = f"{self._root}/{name}" if name else self._root
        with talking(self.url, SOURCE):
            try:
                # A list may lack what could not be listed at this moment.
                self._fs.info(remote)
                return
            except FileNotFoundError:
                pass
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._local(name))
        del state[name]
        self._write_state(state)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self._local(name)))

    def _local(self, name: str) -> str:
        return os.path.join(self.path, *name.split("/")) if name else self.path

    def _read_state(self) -> dict[str, Any]:
        try:
            with open(self._state_path, encoding="utf-8") as file:
                state = json.load(file)["files"]
            return {name: [int(size), str(identity)] for name, (size, identity) in state.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError):
            logger.warning("rec_summary: %s is damaged: all is fetched anew", self._state_path)
            return {}

    def _write_state(self, state: Mapping[str, Any]) -> None:
        temporary = f"{self._state_path}.part"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"url": self.url, "files": state}, file)
        os.replace(temporary, self._state_path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = file_lock(os.path.join(self._room, "lock"), timeout=_LOCK_SECS)
        try:
            lock.acquire()
        except OSError as error:  # Timeout is one
            raise no_cache(self._room, error) from error
        try:
            yield
        finally:
            lock.release()


def _identity(info: Mapping[str, Any]) -> str:
    return " ".join(str(info[key]) for key in _IDENTITY if info.get(key) is not None)


def fetched(source: str | os.PathLike[str], cache: str | None = None) -> str:
    """Returns the local path of a source, which is fetched first if it is a URL.

    Raises:
        SourceError: The URL cannot be read.
        DestinationError: The copy cannot be written.
    """
    path = local_path(os.fspath(source))
    if path is not None:
        return path
    mirror = Mirror(os.fspath(source), cache)
    mirror.refresh()
    return mirror.path
