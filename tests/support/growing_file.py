"""A file that another process is appending to, at the test's command."""

from __future__ import annotations

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
