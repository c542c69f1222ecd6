"""Requests to a running training, in a small file of its record directory.

The file is a JSON document that is replaced as a whole. Each request in it has an identity, so a
training applies it once. The file of somebody else is not read: it must belong to the user of the
training or to root, and nobody else may have been able to write it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from rec_summary.errors import three_part, verbatim
from rec_summary.records.files import FILE_MODE, open_plain, write_atomically
from rec_summary.records.locks import file_lock

NAME: Final = ".rec_summary.control"
LOCK_NAME: Final = ".rec_summary.control.lock"
MOST_BYTES: Final = 64 << 10
MOST_REQUESTS: Final = 32

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_LOCK_SECS: Final = 10.0

Line = Annotated[str, Meta(max_length=1000)]
Key = Annotated[str, Meta(min_length=1, max_length=200)]
Value = Line | bool | int | float | None
Action = Literal["checkpoint", "incident", "flush", "stop", "reset"]

FileVersion = tuple[int, int, int, int]
"""What changes with a file: its inode, its size, and the times of its content and its status."""


class Request(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A request to a running training.

    Attributes:
        id: Its identity.
        author: Who makes it.
        time: When, in seconds since the epoch.
        settings: New values of options, by name.
        lineage: Entries for the lineage.
        actions: What is to be done once.
        steps: How many steps the settings last; None for until the training ends.
        at_step: The step to apply it at; None for the next one.
        note: A person's own words, or an alert, for the lineage.
        note_kind: Which of the two it is.
        note_step: The step that the note is about; None for the one at which it is recorded.
    """

    id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    author: Annotated[str, Meta(max_length=200)]
    time: float
    settings: Annotated[dict[Key, Value], Meta(max_length=32)] = {}
    lineage: Annotated[dict[Key, Value], Meta(max_length=100)] = {}
    actions: Annotated[tuple[Action, ...], Meta(max_length=8)] = ()
    steps: Annotated[int, Meta(ge=1, le=1 << 53)] | None = None
    at_step: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None
    # A person's 1,000 characters, and the time that they are about.
    note: Annotated[str, Meta(max_length=1100)] = ""
    note_kind: Literal["note", "alert"] = "note"
    note_step: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None


class _Document(Struct, forbid_unknown_fields=True):
    """The content of the file. Its format has a version, which a later one changes."""

    version: Literal[1]
    requests: Annotated[tuple[Request, ...], Meta(max_length=MOST_REQUESTS)]


def new_identity() -> str:
    """Returns the identity of a new request."""
    return secrets.token_hex(8)


def version_of(directory: str) -> FileVersion | None:
    """Returns a version that changes with new requests; None if there is no file."""
    path = os.path.join(directory, NAME)
    # A network file system asks its server when a file is opened; its status alone may be old.
    with contextlib.suppress(OSError):
        os.close(open_plain(path))
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_requests(directory: str, user: int | None = None) -> tuple[Request, ...]:
    """Returns the requests of a record directory, the oldest first; none if there is no file.

    Args:
        directory: The record directory.
        user: The number of the user whose file is read, besides root's; None for the user of
            this process.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
        ValueError: It belongs to another user, others may write to it, it is too large, or it
            has other content.
    """
    path = os.path.join(directory, NAME)
    user = os.geteuid() if user is None else user
    try:
        fd = open_plain(path)
    except FileNotFoundError:
        return ()
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if status.st_uid not in (user, 0):
            expected = f"{user}, the user of this training, or 0"
            raise ValueError(three_part(f"the owner of {path}", status.st_uid, expected))
        if status.st_mode & _WRITABLE_BY_OTHERS:
            mode = verbatim(f"{stat.S_IMODE(status.st_mode):04o}")
            expected = "one in which only the owner may write, such as 0600"
            raise ValueError(three_part(f"the mode of {path}", mode, expected))
        if status.st_size > MOST_BYTES:
            expected = f"at most {MOST_BYTES:,} bytes"
            raise ValueError(three_part(f"the size of {path}", status.st_size, expected))
        data = file.read(MOST_BYTES + 1)
    try:
        return msgspec.json.decode(data, type=_Document).requests
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        expected = f"a document of `rec-summary control`, version 1 ({error})"
        raise ValueError(three_part(f"the content of {path}", data[:100], expected)) from error


class FullError(ValueError):
    """There is no room for another request before the training has applied an earlier one."""


def add_request(
    directory: str, request: Request, is_done: Callable[[Request], bool] = lambda request: False
) -> None:
    """Adds a request to those in a record directory; removes those that are done.

    Where root adds one, the file and its lock belong to the owner of the directory, whose training
    reads it.

    Args:
        directory: The record directory.
        request: The request.
        is_done: Whether an earlier request is removed.

    Raises:
        OSError: The file cannot be written.
        FullError: There is no room beside the requests that are not done.
        ValueError: No training could read the request, or it is too large.
    """
    check_request(request)
    path = os.path.join(directory, NAME)
    owner = os.stat(directory)
    lock_path = os.path.join(directory, LOCK_NAME)
    with file_lock(lock_path, timeout=_LOCK_SECS):
        if os.geteuid() == 0:
            _hand_over(lock_path, owner)
        earlier: tuple[Request, ...] = ()
        with contextlib.suppress(OSError, ValueError):  # no training could read the file either
            earlier = read_requests(directory, owner.st_uid)
        requests = (*(each for each in earlier if not is_done(each)), request)
        data = _encoded(requests)
        if len(requests) > MOST_REQUESTS or len(data) > MOST_BYTES:
            received = verbatim(f"{len(requests):,} of {len(data):,} bytes, with this one")
            expected = (
                f"at most {MOST_REQUESTS}, of {MOST_BYTES:,} bytes in all: the training has not "
                f"applied the earlier ones; this one was not sent"
            )
            raise FullError(three_part(f"the requests in {path}", received, expected))
        with write_atomically(path, FILE_MODE) as file:
            file.write(data)
            if os.geteuid() == 0:
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)


def check_request(request: Request) -> None:
    """Raises ValueError for a request with which the whole file could not be read."""
    try:
        data = _encoded((request,))
        msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError) as error:
        expected = f"one that a training can read ({error})"
        raise ValueError(three_part("the request", request, expected)) from error
    if len(data) > MOST_BYTES:
        expected = f"at most {MOST_BYTES:,} bytes"
        raise ValueError(three_part("the size of the request", len(data), expected))


def _hand_over(path: str, owner: os.stat_result) -> None:
    """Gives a lock file to a user, unless it has another name, as a file of somebody else may."""
    with contextlib.suppress(FileNotFoundError):  # the file of a soft lock does not stay
        fd = open_plain(path)
        try:
            if os.fstat(fd).st_nlink == 1:
                os.fchown(fd, owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)


def _encoded(requests: tuple[Request, ...]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_Document(1, requests)), indent=1)
