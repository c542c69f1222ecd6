"""Directories whose changes the kernel reports, so that they need not be looked at.

Linux reports changes on this machine only: other hosts' writes to a network file system are not
among them. So directories of file systems that only this machine writes to are watched, and no
others. Links are not followed. Whatever cannot be watched has to be polled: where the system has
no inotify, no instance is left, or as many directories are watched as a user may. Nor is all that
is written reported: not through another name of a file outside, a memory map, or a mount.
Source: https://man7.org/linux/man-pages/man7/inotify.7.html.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import struct
import weakref
from typing import Any, Final

_LOCAL: Final = frozenset(
    ("bcachefs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "reiserfs", "tmpfs", "xfs")
)
_EVENT: Final = struct.Struct("iIII")  # watch, what happened, cookie, length of the name
_READ_BYTES: Final = 1 << 16
_FULL: Final = "the others are polled (sysctl fs.inotify.max_user_watches allows more)"

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_DIRECTORIES, _NO_LINKS, _NOT_UNLINKED = 0x1000000, 0x2000000, 0x4000000
_WATCHED: Final = (
    _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
) | (_ONLY_DIRECTORIES | _NO_LINKS | _NOT_UNLINKED)

logger = logging.getLogger("rec_summary")


class DirectoryWatch:
    """Watches directories, each for its names and for the files in it."""

    def __init__(self, mounts: str = "/proc/self/mountinfo", library: Any = None) -> None:
        """Begins with no directory; the kernel is asked for the first one.

        Args:
            mounts: The file with the mounted file systems.
            library: The C library, as `ctypes` loads it; None to load it when it is needed.
        """
        self._mounts = mounts
        self._library = library
        self._fd = -1
        self._end: weakref.finalize[..., DirectoryWatch] | None = None  # closes the descriptor
        self._is_local: dict[int, bool] = {}  # by the number of the file system
        self._paths: dict[int, str] = {}  # by the number of the watch
        self._numbers: dict[str, int] = {}  # of the watches, by path
        self._replaced: set[str] = set()  # other directories have their paths now
        self._is_full = False

    def __contains__(self, path: str) -> bool:
        return path in self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, path: str, device: int) -> bool:
        """Watches a directory from now on; what changed before is not reported.

        One that is watched already may be added again: its path may lead to another directory.

        Args:
            path: The directory.
            device: The number of its file system.

        Returns:
            Whether it is watched; if not, it has to be polled.
        """
        if not self._can_watch(device):
            self.remove(path)
            return False
        number = self._library.inotify_add_watch(self._fd, os.fsencode(path), _WATCHED)
        if self._numbers.get(path, number) != number:
            self._replaced.add(path)
            self.remove(path)
        if number < 0:
            if ctypes.get_errno() == errno.ENOSPC and not self._is_full:
                self._is_full = True
                logger.info("rec_summary: %d directories are watched; %s", len(self), _FULL)
            return False
        if self._paths.get(number, path) != path:
            return False  # the same directory is watched under another path, and reported as that
        self._paths[number] = path
        self._numbers[path] = number
        return True

    def remove(self, path: str) -> None:
        """Ends the watch of a directory, if there is one."""
        number = self._numbers.pop(path, None)
        if number is not None:
            del self._paths[number]
            self._library.inotify_rm_watch(self._fd, number)

    def changed(self) -> set[str] | None:
        """Returns the directories that changed since this was asked last.

        A directory that has a new place, or is gone, is among them and no longer watched, and so
        are all below it.

        Returns:
            Their paths; None if there were more changes than the kernel keeps. Then no directory is
            watched any more.
        """
        paths: set[str] = set()
        replaced, self._replaced = self._replaced, set()
        while data := self._read():
            at = 0
            while at < len(data):
                number, what, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if what & _OVERFLOW:
                    self.close()
                    return None
                if what & _UNMOUNT:
                    self.look_at_mounts()
                path = self._paths.get(number)
                if path is not None:
                    (replaced if what & (_MOVE_SELF | _IGNORED) else paths).add(path)
        if replaced:
            for path in [directory for directory in self._numbers if _is_in(directory, replaced)]:
                self.remove(path)
                paths.add(path)
        return paths | replaced

    def look_at_mounts(self) -> None:
        """Forgets which file systems are local: the kernel uses their numbers again."""
        self._is_local.clear()

    def close(self) -> None:
        """Ends all watches."""
        if self._end is not None:
            self._end()
        self._fd, self._end = -1, None
        self._paths.clear()
        self._numbers.clear()
        self._replaced.clear()
        self._is_local.clear()

    def _can_watch(self, device: int) -> bool:
        """Whether only this machine writes to a file system, and there is an instance."""
        if device not in self._is_local:
            self._is_local[device] = device in _local_devices(self._mounts)
            if self._is_local[device] and self._fd < 0:
                self._open()
        return self._is_local[device] and self._fd >= 0

    def _open(self) -> None:
        self._library = self._library or ctypes.CDLL(None, use_errno=True)
        self._fd = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            self._end = weakref.finalize(self, os.close, self._fd)
            self._end.atexit = False  # a thread may use it until the process ends

    def _read(self) -> bytes:
        if self._fd >= 0:
            with contextlib.suppress(BlockingIOError):
                return os.read(self._fd, _READ_BYTES)
        return b""


def _local_devices(mounts: str) -> set[int]:
    """Returns the numbers of the file systems that only this machine writes to."""
    devices = set()
    with (
        contextlib.suppress(OSError, ValueError),
        open(mounts, encoding="utf-8", errors="surrogateescape") as file,
    ):
        for line in file:
            fields = line.split()
            if fields[fields.index("-") + 1] in _LOCAL:
                major, _, minor = fields[2].partition(":")
                devices.add(os.makedev(int(major), int(minor)))
    return devices


def _is_in(path: str, tops: set[str]) -> bool:
    """Whether a directory is one of others, or below one of them."""
    while path not in tops:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True
