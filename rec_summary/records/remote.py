"""Directories at URLs such as `s3://bucket/records`: listed, and read by byte ranges.

fsspec does the work; it is imported when the first URL is opened. Its file systems find
credentials in their usual places (environment, configuration files). What a URL hides, such
as a password, is never printed.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from rec_summary.errors import (
    DestinationError,
    RecSummaryError,
    SourceError,
    three_part,
    verbatim,
)
from rec_summary.records.files import PlainFile
from rec_summary.scrubbing import STORES, remember, scrubbed

SOURCE: Final = "the source of records"
DESTINATION: Final = "the destination"
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_LOCAL: Final = ("file", "local")
_READ_AHEAD: Final = 1 << 22  # bytes; a request costs more time than so many bytes
_TIMES: Final = ("LastModified", "mtime", "last_modified", "updated", "modified", "created")

logger = logging.getLogger("rec_summary")


class NotFoundError(SourceError):
    """There are no records at a path or URL, or the URL is invalid: a mistake in the argument."""


class Url(str):
    """A URL. The text is what may be shown: without passwords and queries.

    Attributes:
        base: The URL that the user gave, with all that it hides.
        below: The path below it, with `/`; empty for the URL itself.
        listed: Size and version of a file when it was listed; None if it was not.
    """

    base: str
    below: str
    listed: tuple[int, str] | None
    _has_keys: bool

    def __new__(cls, base: str, below: str = "", listed: tuple[int, str] | None = None) -> Url:
        """Takes the URL of a directory or file, a path below it, and what a list says of it."""
        clean = _trimmed(scrubbed(base))
        self = super().__new__(cls, os.path.join(clean, below) if below else clean)
        self.base, self.below, self.listed = base, below, listed
        self._has_keys = remember(base)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Url, (self.base, self.below, self.listed)

    def child(self, name: str, listed: tuple[int, str] | None = None) -> Url:
        """Returns the URL of a path below; `listed` as in the class."""
        return Url(self.base, "/".join(filter(None, (self.below, name))), listed)

    @property
    def name(self) -> str:
        """The last part of the path, with only characters that suit a directory's name."""
        name = re.sub(r"[^\w.=+@ -]", "_", self.partition("://")[2].rpartition("/")[2]).strip(".")
        return name[:100] or "root"

    @property
    def is_in_a_store(self) -> bool:
        """Whether this is a store of objects, which has no directories."""
        return self.partition("://")[0].lower() in STORES

    def connect(self, what: str, *, remembers: bool = False) -> tuple[Any, str]:
        """Returns the file system, and the path in it.

        Args:
            what: `SOURCE` or `DESTINATION`, for messages.
            remembers: Whether the file system looks into its cache of lists.

        Raises:
            NotFoundError: There is no such kind of URL, or a package that it needs is missing.
            SourceError, DestinationError: The file system cannot be reached.
        """
        if "::" in self.base:
            raise NotFoundError(three_part(what, self, "one URL, not a chain of them"))
        if self._has_keys and self.is_in_a_store:
            expected = (
                "a URL without keys: the environment, or a file of the store's client, has them"
            )
            raise NotFoundError(three_part(what, self, expected))
        try:
            from fsspec.core import url_to_fs
        except ModuleNotFoundError as error:
            expected = "pip install 'rec_summary[remote]', which URLs need (fsspec is missing)"
            raise NotFoundError(three_part(what, self, expected)) from error
        try:
            with errors_of(self, what):
                fs, path = url_to_fs(self.base, use_listings_cache=remembers)
        except RecSummaryError as error:
            if isinstance(error.__cause__, ImportError | ValueError):
                expected = f"a URL that fsspec can open ({scrubbed(str(error.__cause__))})"
                raise NotFoundError(three_part(what, self, expected)) from error
            raise
        path = str(path).rstrip("/")
        return fs, f"{path}/{self.below}" if self.below else path


class Entry(NamedTuple):
    """A file at a URL.

    Attributes:
        url: Its URL.
        size: Its size in bytes.
        modified: When it was modified, in seconds since the epoch; when it was listed, if the
            store does not say.
    """

    url: Url
    size: int
    modified: float


def path_or_url(source: str | os.PathLike[str]) -> str | Url:
    """Returns a `Url`, or the path that a path or `file://` URL names; `~` is the home directory.

    Raises:
        NotFoundError: A `file://` URL names no absolute path, or a URL of an object store lacks a
            slash: `pathlib` removes it.
    """
    source = os.fspath(source)
    if isinstance(source, Url):
        return source
    match = _URL.fullmatch(source)
    if match is None:
        scheme, _, path = source.partition(":/")
        if scheme.lower() in STORES and not os.path.lexists(f"{scheme}:"):
            received = Url(f"{scheme}://{path}").replace("://", ":/", 1)
            raise NotFoundError(three_part(SOURCE, received, "a URL as a str, with `://`"))
        return os.path.expanduser(source)
    if match["scheme"].lower() not in _LOCAL:
        return Url(source)
    if not match["rest"].startswith("/"):
        raise NotFoundError(three_part(SOURCE, source, "file:// and an absolute path"))
    return match["rest"]


def overlap(first: str, second: str) -> bool:
    """Whether one directory is the other or below it; each is a path or a `Url`."""
    if isinstance(first, Url) and isinstance(second, Url):
        places = [f"{place.rstrip('/')}/" for place in (first, second)]
        return places[0].startswith(places[1]) or places[1].startswith(places[0])
    if isinstance(first, Url) or isinstance(second, Url):
        return False
    places = [os.path.realpath(first), os.path.realpath(second)]
    return os.path.commonpath(places) in places


def list_tree(url: Url, what: str = SOURCE) -> list[Entry]:
    """Returns all files below a URL; the file itself if it is the URL of one.

    Raises:
        SourceError, DestinationError: The place cannot be listed.
    """
    fs, root = url.connect(what)
    with errors_of(url, what):
        fs.invalidate_cache()
        try:
            listed = fs.find(root, detail=True)
            if not listed:  # `find` leaves out directories that it cannot list
                fs.ls(root)
        except FileNotFoundError:
            listed = {}
    entries = []
    for path, about in listed.items():
        path = str(path)
        if not f"{path}/".startswith(f"{root}/"):
            continue
        name = path[len(root) :].strip("/")
        if any(part in ("", ".", "..") or "\0" in part for part in name.split("/") if name):
            logger.warning("rec_summary: %s: left out: %r is not the name of a file", url, name)
        elif isinstance(about.get("size"), int):
            file_url = url.child(name, (about["size"], _version(about)))
            entries.append(Entry(file_url, about["size"], _modified(about)))
    return entries


def _modified(about: Mapping[str, Any]) -> float:
    for key in _TIMES:
        value = about.get(key)
        with contextlib.suppress(ValueError):
            if isinstance(value, str):
                value = datetime.datetime.fromisoformat(value)
            if isinstance(value, datetime.datetime):
                return value.timestamp()
            if isinstance(value, int | float):
                return float(value)
    return time.time()


def _version(about: Mapping[str, Any]) -> str:
    """Returns what changes when a file is written again; empty if the store does not say."""
    return next((str(about[key]) for key in ("ETag", "etag", *_TIMES) if about.get(key)), "")


class RemoteFile:
    """A file at a URL, read by ranges. Of what is read in order, some is requested ahead.

    S3 is not asked for what its list said of the file, unless it was written since.

    Attributes:
        size: Its size in bytes when it was opened.
    """

    def __init__(self, url: Url) -> None:
        """Opens a file.

        Raises:
            OSError: It cannot be opened.
        """
        self._url = url
        with self._errors():
            self._open(url.listed)

    def _open(self, listed: tuple[int, str] | None) -> None:
        fs, path = self._url.connect(SOURCE, remembers=listed is not None)
        # Whether what the list said is still right is known after the first request.
        self._is_trusted = listed is None or "s3" not in fs.protocol
        how = {"block_size": _READ_AHEAD, "cache_type": "readahead"}
        with contextlib.ExitStack() as stack:
            if listed is not None and not self._is_trusted:
                parent = path.rpartition("/")[0]
                fs.dircache[parent] = [
                    {"name": path, "type": "file", "size": listed[0], "ETag": listed[1]}
                ]
                stack.callback(fs.invalidate_cache, path)
            self._file = fs.open(path, "rb", **how)
        self.size: int = self._file.seek(0, os.SEEK_END)

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Returns `nbytes` from `offset` on; fewer at the end of the file.

        Raises:
            OSError: The file cannot be read, or has been replaced.
        """
        with self._errors():
            try:
                return self._read(offset, nbytes)
            except Exception:
                if self._is_trusted:
                    raise
                self._open(None)
                return self._read(offset, nbytes)

    def _read(self, offset: int, nbytes: int) -> bytes:
        self._file.seek(min(offset, self.size))
        data = bytes(self._file.read(nbytes))
        self._is_trusted |= bool(data)
        return data

    def next_data(self, offset: int) -> int:
        """Returns `offset`: only local files are known to have holes."""
        return offset

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", self._url) from error
        except Exception as error:
            raise OSError(errno.EIO, _message_of(error), self._url) from error


def open_binary(path: str) -> PlainFile | RemoteFile:
    """Opens a file for reading at any offset.

    Args:
        path: A path or a `Url`.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    return RemoteFile(path) if isinstance(path, Url) else PlainFile(path)


def _trimmed(url: str) -> str:
    """Returns a URL without slashes at its end; the root of a file system keeps its own."""
    scheme, _, place = url.partition("://")
    return f"{scheme}://{place.rstrip('/') or place[:1]}"


def _message_of(error: BaseException) -> str:
    return scrubbed(f"{type(error).__name__}: {error}").replace("\n", " ")[:500]


@contextlib.contextmanager
def errors_of(url: Url, what: str) -> Iterator[None]:
    """Turns what a file system raises into an error that names the URL, and no secrets.

    Raises:
        SourceError, DestinationError: By `what`.
    """
    try:
        yield
    except Exception as error:
        kind, done = (SourceError, "read") if what == SOURCE else (DestinationError, "written to")
        expected = f"a place that can be {done} from here ({_message_of(error)})"
        raise kind(three_part(what, verbatim(url), expected)) from error
