"""Files in directories that a stranger may have filled: regular ones, never through a link.

A record directory may come from anybody. A link in it can lead to any file of the reader's,
and a pipe in the place of a file would make the reader wait for ever. So what is found in
such a directory is opened here; what is written there is created anew, never opened through
what is in the way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import IO, Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IS_LINK: Final = "it is a link, which is not followed: put a copy in its place"


def open_plain(path: str | os.PathLike[str]) -> int:
    """Opens a regular file for reading; returns its descriptor.

    Raises:
        OSError: It cannot be opened, is a link, or is no regular file.
    """
    try:
        fd = os.open(path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, _IS_LINK, os.fspath(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return fd


def read_plain(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns the content of a regular file of at most `most` bytes.

    Raises:
        OSError: It cannot be read, is a link, is no regular file, or is larger.
    """
    with os.fdopen(open_plain(path), "rb") as file:
        # Python takes the memory of what is asked for, not of what is there.
        data = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", os.fspath(path))
    return data


def create_plain(path: str | os.PathLike[str], mode: int = 0o666) -> IO[bytes]:
    """Creates a file for writing; what stands in its place is removed, not written through.

    Raises:
        OSError: It cannot be created.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.fdopen(os.open(path, _CREATE, mode), "wb")


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Makes sure that a path is no link, should it exist.

    Raises:
        OSError: It is a link.
    """
    if os.path.islink(path):
        raise OSError(errno.ELOOP, _IS_LINK, os.fspath(path))


def refuse_lock(path: str) -> None:
    """Makes sure that taking a lock file cannot change another file.

    Some releases of filelock empty what they open, through a link or under another name.

    Raises:
        OSError: Something is there that is no lock file.
    """
    refuse_link(path)
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size:
            raise OSError(errno.EINVAL, "it is not an empty file of its own", path)
