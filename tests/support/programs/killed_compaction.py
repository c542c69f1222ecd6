"""Compacts a directory and is killed at a call of the operating system: by itself, by number."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from rec_summary.compaction.directory import keep_within
from rec_summary.records import files

calls = 0


def main(directory: str, total_bytes: int, number: int) -> None:
    """Prints how many calls there were, if it lives."""

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            global calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **options)
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapper

    for name in ("rename", "replace", "fsync", "unlink", "utime"):
        setattr(os, name, counted(getattr(os, name)))
    files.create_plain = counted(files.create_plain)
    keep_within(directory, 0, total_bytes)
    print(calls)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
