"""A store of files in memory that counts its lists, and can refuse them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class Lists:
    """What a store does when it is to list its files.

    Attributes:
        count: How often it was.
        error: Raised instead of a list; None for a list.
        refused: The end of the paths for which it is raised.
    """

    count: int = 0
    error: Exception | None = None
    refused: str = ""


def store_in_memory() -> Any:
    """Returns an empty file system with a protocol of its own; its `lists` are a `Lists`."""
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    class Store(MemoryFileSystem):  # type: ignore[misc]
        protocol = "counted"
        store: dict[str, Any] = {}  # noqa: RUF012 - as fsspec has it
        pseudo_dirs = [""]  # noqa: RUF012
        lists = Lists()

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            path = str(path).removeprefix(f"{cls.protocol}://").strip("/")
            return path and f"/{path}"

        def find(self, path: str, *arguments: Any, **options: Any) -> Any:
            self.lists.count += 1
            if self.lists.error is not None and path.rstrip("/").endswith(self.lists.refused):
                raise self.lists.error
            return super().find(path, *arguments, **options)

    fsspec.register_implementation(Store.protocol, Store, clobber=True)
    return fsspec.filesystem(Store.protocol)
