"""A file that another process is writing, at the test's command."""

from __future__ import annotations

import os
from pathlib import Path


class GrowingFile:
    """Holds the whole content back and appends it piece by piece."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self._rest = content
        path.write_bytes(b"")

    def grow(self, size: int) -> bool:
        """Appends up to `size` bytes; says whether anything is left afterwards."""
        with self.path.open("ab") as file:
            file.write(self._rest[:size])
        self._rest = self._rest[size:]
        return bool(self._rest)


def rewrite(path: Path, data: bytes) -> None:
    """Writes other bytes, and a time that differs: the clock of many file systems has ticks."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
