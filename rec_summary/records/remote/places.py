"""Places that are no local directories: URLs such as `s3://bucket/records`.

Everything that reads or writes records works on local files. A URL is therefore mirrored
to a local directory before (`records.mirror`), or a local directory put to it afterwards
(`records.upload`); both go through fsspec, which is loaded here only, when a URL is met.
Credentials are found by fsspec's file systems where they look for them (environment,
configuration files); nothing of them is printed or kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any, Final

from rec_summary.errors import (
    DestinationError,
    RecSummaryError,
    SourceError,
    three_part,
    verbatim,
)

CACHE_ENVIRONMENT: Final = "REC_SUMMARY_CACHE"
SOURCE: Final = "the source of records"
DESTINATION: Final = "the destination"
_PRIVATE: Final = 0o700
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_LOCAL: Final = ("file", "local")
_USER: Final = re.compile(r"(?<=://)[^/?#\s@]*:[^/?#\s]*@")
_QUERY: Final = re.compile(r"(://[^\s?#'\"<>]*)[?#][^\s'\"<>]*")
_SECRET: Final = re.compile(
    r"(?i)((?:secret|token|passw(?:or)?d|signature|credential|access[_-]?key|api[_-]?key"
    r"|authorization)[\w-]*[\"']?\s*[=:]\s*[\"']?)(?:(?:bearer|basic)\s+)?[^\s\"'&,;<>)\]}]+"
)
_KEY_ID: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")  # an AWS access key's form

_shown: dict[str, str] = {}  # URLs, by the local directories that stand for them


class NoSuchPlace(SourceError):
    """There is nothing at a URL, or nothing can be there: a mistake in the argument."""


def is_url(place: str) -> bool:
    """Whether `place` is a URL rather than a path."""
    return _URL.fullmatch(place) is not None


def local_path(place: str) -> str | None:
    """Returns the path that a path or a `file://` URL names; None for other URLs.

    Raises:
        NoSuchPlace: A `file://` URL names no absolute path.
    """
    match = _URL.fullmatch(place)
    if match is None:
        return place
    if match["scheme"].lower() not in _LOCAL:
        return None
    if not match["rest"].startswith("/"):
        raise NoSuchPlace(three_part(SOURCE, place, "file:// and an absolute path"))
    return match["rest"]


def clean(url: str) -> str:
    """Returns a URL as it may be shown: without passwords, queries and a `/` at the end."""
    return scrubbed(url).rstrip("/")


def scrubbed(text: str) -> str:
    """Returns text of others, such as an error's, without what looks like credentials."""
    text = _USER.sub("…@", text)
    text = _QUERY.sub(r"\1?…", text)
    return _KEY_ID.sub("…", _SECRET.sub(r"\1…", text))


def called(text: str) -> str:
    """Returns text with URLs in the place of the local directories that stand for them."""
    for path, url in _shown.items():
        text = text.replace(path, url)
    return text


def stand_for(path: str, url: str) -> None:
    """Has `called` show a URL instead of a local directory."""
    _shown[path] = clean(url)


def cache_home(cache: str | None = None) -> str:
    """Returns the directory in which local copies are kept.

    Args:
        cache: The user's choice; None means `$REC_SUMMARY_CACHE`, else `rec_summary` below
            `$XDG_CACHE_HOME` or `~/.cache`.
    """
    chosen = cache or os.environ.get(CACHE_ENVIRONMENT)
    if chosen:
        return os.path.abspath(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "rec_summary")


def make_room(cache: str | None, purpose: str, url: str) -> str:
    """Makes the directory that is kept for a URL, for nobody but this user to read.

    Raises:
        DestinationError: It cannot be made.
    """
    digest = hashlib.sha256(clean(url).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    home = cache_home(cache)
    path = os.path.join(home, purpose, digest)
    try:
        os.makedirs(home, mode=_PRIVATE, exist_ok=True)
        for each in (os.path.dirname(path), path):
            os.makedirs(each, mode=_PRIVATE, exist_ok=True)
            os.chmod(each, _PRIVATE)
    except OSError as error:
        raise no_cache(home, error) from error
    return path


def no_cache(path: str, error: OSError) -> DestinationError:
    """Returns the error that says why local copies cannot be kept."""
    received = verbatim(f"{path}: {error.strerror or error}")
    expected = "a directory with room for a copy of what is read: --cache DIR chooses another"
    return DestinationError(three_part("the cache", received, expected))


def base_name(url: str) -> str:
    """Returns the last name of a URL, fit for a directory of ours."""
    rest = clean(url).partition("://")[2]
    name = re.sub(r"[^\w.=+@ -]", "_", rest.rpartition("/")[2]).strip(".")
    return name[:100] or "root"


def connect(url: str, what: str) -> tuple[Any, str]:
    """Returns the file system that a URL names, and the path in it.

    Args:
        url: The URL.
        what: `SOURCE` or `DESTINATION`, for messages.

    Raises:
        NoSuchPlace: There is no such kind of URL, or what it needs is not installed.
        SourceError, DestinationError: The file system cannot be reached.
    """
    if "::" in url:
        raise NoSuchPlace(three_part(what, clean(url), "one URL, not a chain of them"))
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        expected = "pip install 'rec_summary[remote]', which URLs need (fsspec is missing)"
        raise NoSuchPlace(three_part(what, clean(url), expected)) from error
    try:
        with talking(url, what):
            # Connections are not shared with others, and lists are always asked for anew.
            fs, path = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
    except RecSummaryError as error:
        if isinstance(error.__cause__, ImportError | ValueError):
            expected = f"a URL that fsspec can open ({scrubbed(str(error.__cause__))})"
            raise NoSuchPlace(three_part(what, clean(url), expected)) from error
        raise
    return fs, str(path).rstrip("/")


@contextlib.contextmanager
def talking(url: str, what: str) -> Iterator[None]:
    """Turns whatever a file system raises into an error that names the URL, and no secrets.

    Raises:
        SourceError, DestinationError: By `what`.
    """
    try:
        yield
    except RecSummaryError:
        raise
    except Exception as error:
        source = what == SOURCE
        said = scrubbed(f"{type(error).__name__}: {error}").replace("\n", " ")[:500]
        expected = f"a place that can be {'read' if source else 'written to'} from here"
        # Not verbatim at full length: what others say can be long.
        text = three_part(what, verbatim(clean(url)), f"{expected} ({said})")
        raise (SourceError if source else DestinationError)(text) from error
