"""Fetching a file from a URL: as a whole, or what is new of one that has grown."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.errors import SourceError, three_part
from rec_summary.records.remote.places import SOURCE, talking

PARTIAL: Final = "part-"
_CHUNK: Final = 1 << 23
_COMPARED: Final = 1 << 16  # so much of both ends tells one training's file from another's
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)

logger = logging.getLogger("rec_summary")


@dataclass(frozen=True)
class RemoteFile:
    """A file at the URL.

    Attributes:
        path: Its path in the file system.
        size: Its size in bytes.
        identity: What changes when the file does, as far as the store tells.
    """

    path: str
    size: int
    identity: str


class Fetcher:
    """Fetches files of one URL; several threads may do so at the same time."""

    def __init__(self, fs: Any, url: str, room: str) -> None:
        """Prepares.

        Args:
            fs: The file system.
            url: What is fetched from, for messages.
            room: A directory for unfinished files, on the disk of the finished ones.
        """
        self._fs, self._url, self._room = fs, url, room

    def fetch(self, file: RemoteFile, path: str, have: int, advance: Callable[[int], None]) -> bool:
        """Fetches what is new of a file; tells whether it could be put in its place.

        Args:
            file: The file.
            path: Where its copy is, or comes to be.
            have: How many bytes of the copy are known to be those of the file.
            advance: Called with the number of bytes of each piece; what it raises ends it.

        Raises:
            SourceError: The file cannot be read.
            OSError: The disk is full, or cannot be written.
        """
        try:
            if have and file.size > have and self._continues(path, file, have):
                with open(path, "r+b") as out:
                    out.truncate(have)  # an addition that broke off
                    out.seek(have)
                    try:
                        self._copy(file, have, out, advance)
                    except BaseException:
                        out.truncate(have)
                        raise
            else:
                partial = os.path.join(self._room, f"{PARTIAL}{threading.get_ident()}")
                try:
                    with open(partial, "wb") as out:
                        self._copy(file, 0, out, advance)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    os.replace(partial, path)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(partial)
        except OSError as error:
            if error.errno in _FULL:
                raise
            # Such as a name that is too long here, or a file's where a directory is.
            logger.warning("rec_summary: %s: left out: %s", file.path, error.strerror)
            return False
        return True

    def _copy(self, file: RemoteFile, start: int, out: Any, advance: Callable[[int], None]) -> None:
        while start < file.size:
            data = self._range(file, start, min(start + _CHUNK, file.size))
            out.write(data)
            start += len(data)
            advance(len(data))
        out.flush()

    def _continues(self, path: str, file: RemoteFile, have: int) -> bool:
        """Whether the remote file begins with what is here, by a look at both ends."""
        with open(path, "rb") as mine:
            for start in sorted({0, max(0, have - _COMPARED)}):
                mine.seek(start)
                here = mine.read(min(_COMPARED, have - start))
                if here != self._range(file, start, start + len(here)):
                    logger.info("rec_summary: %s was replaced: fetched anew", file.path)
                    return False
        return True

    def _range(self, file: RemoteFile, start: int, end: int) -> bytes:
        with talking(self._url, SOURCE):
            data = bytes(self._fs.cat_file(file.path, start=start, end=end))
        if len(data) != end - start:
            received = f"{self._url}: {len(data)} of {end - start} bytes of {file.path}"
            expected = "a file that does not shrink while it is read: try again"
            raise SourceError(three_part(SOURCE, received, expected))
        return data
