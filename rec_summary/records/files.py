"""Opening, creating and replacing files in directories that may come from anybody.

A link in such a directory can lead to any file of the user, and a pipe makes a reader wait
for ever. So only regular files are opened, links are not followed, and a file is written by
creating it, never by opening what is there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Iterator
from typing import IO, Final

FOLLOW_LINKS: Final = "REC_SUMMARY_FOLLOW_LINKS"
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS: Final = 0o777  # a set-user-ID bit is not copied
_IS_LINK: Final = "it is a link, which is not followed: put a copy in its place"
_REMOVED: Final = "another process has removed it while it was written"


def open_plain(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> int:
    """Opens a regular file for reading; returns its descriptor.

    Args:
        path: The file.
        dir_fd: An open directory that a relative path is below.

    Raises:
        OSError: It cannot be opened, is a link, or is not a regular file.
    """
    try:
        fd = os.open(path, _READ, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, _IS_LINK, os.fspath(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return fd


class PlainFile:
    """A regular file that is read at any offset; it may grow meanwhile."""

    def __init__(self, path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
        """Opens a file; the arguments are as in `open_plain`.

        Raises:
            OSError: It cannot be opened, is a link, or is not a regular file.
        """
        # `close` closes it.
        self._file = os.fdopen(open_plain(path, dir_fd=dir_fd), "rb", buffering=0)

    @property
    def size(self) -> int:
        """Its size in bytes at this moment."""
        return os.fstat(self._file.fileno()).st_size

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Returns `nbytes` from `offset` on; fewer at the end of the file.

        Raises:
            OSError: The file cannot be read.
        """
        data = os.pread(self._file.fileno(), nbytes, offset)
        while len(data) < nbytes:
            more = os.pread(self._file.fileno(), nbytes - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def next_data(self, offset: int) -> int:
        """Returns the offset of the first byte from `offset` on that is not in a hole."""
        try:
            return os.lseek(self._file.fileno(), offset, os.SEEK_DATA)
        except OSError as error:
            # No data after `offset`; or a file system that does not know.
            return self.size if error.errno == errno.ENXIO else offset

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class HeldFile:
    """The content of a file that was read as a whole, in the place of a `PlainFile`."""

    def __init__(self, data: bytes) -> None:
        """Holds the content."""
        self._data = data
        self.size = len(data)

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Returns `nbytes` from `offset` on; fewer at the end."""
        return self._data[offset : offset + nbytes]

    def close(self) -> None:
        """Does nothing."""


def read_plain(path: str | os.PathLike[str], most: int, *, dir_fd: int | None = None) -> bytes:
    """Returns the content of a regular file of at most `most` bytes.

    Args:
        path: The file.
        most: The largest size that is read.
        dir_fd: An open directory that a relative path is below.

    Raises:
        OSError: It cannot be read, is a link, is not a regular file, or is larger.
    """
    with contextlib.closing(PlainFile(path, dir_fd=dir_fd)) as file:
        # Python allocates as many bytes as are requested.
        data = file.read_at(0, min(file.size, most) + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", os.fspath(path))
    return data


def create_plain(
    path: str | os.PathLike[str], mode: int = 0o666, *, dir_fd: int | None = None
) -> IO[bytes]:
    """Creates a file for writing; an existing file or link is removed first.

    Args:
        path: The file.
        mode: Its permissions, before the umask.
        dir_fd: An open directory that a relative path is below.

    Raises:
        OSError: It cannot be created.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)
    return os.fdopen(os.open(path, _CREATE, mode, dir_fd=dir_fd), "wb")


def make_directory(path: str) -> None:
    """Makes a directory (mode 0700) and its parents; an existing one is not changed.

    Raises:
        OSError: It cannot be made, or a file has its name.
    """
    parent = os.path.dirname(os.path.abspath(path))
    os.makedirs(parent, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, DIRECTORY_MODE)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)


def sync_directory(path: str) -> None:
    """Forces a directory's list of names to the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def temporary_name(name: str) -> str:
    """Returns the name under which `write_atomically` writes the file `name`.

    It depends on `name` only: the next write removes what a killed process has left. It is
    short, hidden, and never the name of a record file.
    """
    return f".rec_summary-{zlib.crc32(os.fsencode(name)):08x}.tmp"


@contextlib.contextmanager
def write_atomically(
    path: str | os.PathLike[str],
    mode: int = 0o666,
    *,
    dir_fd: int | None = None,
    temporary: str | None = None,
    like: str | None = None,
    sync: bool = False,
) -> Iterator[IO[bytes]]:
    """Opens a file for writing that replaces `path` when the block ends without an error.

    Readers see the old file or the new one, never a part of it. Of several that write a path at
    the same time, the one that began last replaces it, and the others get an error. If it begins in
    the microseconds between the check of another one and its rename, readers see a part until it
    ends: take a lock where this matters.

    Args:
        path: The file.
        mode: Its permissions, before the umask.
        dir_fd: An open directory that a relative path is below.
        temporary: The name that it has until then; None for `temporary_name`.
        like: A file whose times and permissions it gets; one at a URL has none.
        sync: Whether the file, and then its name, are forced to the disk.

    Raises:
        OSError: It cannot be written; the old file stays.
    """
    directory, name = os.path.split(os.fspath(path))
    hidden = os.path.join(directory, temporary or temporary_name(name))
    status = None
    if like is not None:
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(like)
    file = create_plain(hidden, FILE_MODE if status else mode, dir_fd=dir_fd)
    created = os.fstat(file.fileno())
    try:
        with file:
            yield file
            if status is not None:
                file.flush()  # a write after `utime` would change the time again
                os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
                os.fchmod(file.fileno(), status.st_mode & _PERMISSIONS)
            if sync:
                file.flush()
                os.fsync(file.fileno())
            if not _is_at(created, hidden, dir_fd):
                raise OSError(errno.EBUSY, _REMOVED, os.fspath(path))
        os.replace(hidden, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            if _is_at(created, hidden, dir_fd):
                os.unlink(hidden, dir_fd=dir_fd)
        raise
    if sync:
        sync_directory(directory)


def _is_at(status: os.stat_result, path: str, dir_fd: int | None) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(status, os.stat(path, dir_fd=dir_fd, follow_symlinks=False))
    return False


def follows_links() -> bool:
    """Whether the environment says that links to directories out of a tree are followed."""
    return os.environ.get(FOLLOW_LINKS) == "1"


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Makes sure that a path is not a link.

    Raises:
        OSError: It is a link.
    """
    if os.path.islink(path):
        raise OSError(errno.ELOOP, _IS_LINK, os.fspath(path))


def refuse_lock(path: str) -> None:
    """Makes sure that taking a lock file cannot change another file.

    Some releases of filelock empty the file that they open, also through a link.

    Raises:
        OSError: There is a link, or a file that is not empty or has several names.
    """
    refuse_link(path)
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size:
            raise OSError(errno.EINVAL, "it is not an empty file with one name", path)
