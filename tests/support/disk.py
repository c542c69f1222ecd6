"""A stand-in for the operating system of a writer: a disk that is full or odd on request."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Disk:
    """The module `os`, for the `system` of a writer.

    Attributes:
        failing: The number of the error with which each write fails; None for none.
        at_once: The most bytes of a write that are taken; None for all.
        synced: The paths of what was forced to the disk.
    """

    def __init__(self) -> None:
        self.failing: int | None = None
        self.at_once: int | None = None
        self.synced: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: memoryview) -> int:
        if self.failing is not None:
            raise OSError(self.failing, os.strerror(self.failing))
        return os.write(fd, data[: self.at_once])

    def fsync(self, fd: int) -> None:
        self.synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        os.fsync(fd)


class LittleSpace:
    """No file of this process may grow beyond a size, in bytes: writing gives EFBIG."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@contextlib.contextmanager
def mounted_disk(folder: Path, size: str, *, lazy: bool = False) -> Iterator[Path]:
    """Mounts a real file system of this size; skips the test where that is not allowed.

    Args:
        folder: Where it is mounted; there is nothing yet.
        size: Its size, as `mount` takes it.
        lazy: Whether files of it may be open at the end, as of another process.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", *["-l"] * lazy, str(folder)], check=True)
