"""One measurement in a process of its own.

    python -m tools.benchmarks.child MODULE:FUNCTION '{"argument": 1}'

calls the function and prints what it returns, a dictionary of numbers, as the last line.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

RESULT = "RESULT "


class Stopwatch:
    """Times a block: `seconds` of the clock, `cpu` seconds of all threads of this process."""

    def __enter__(self) -> Stopwatch:
        self._cpu, self._began = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = time.process_time() - self._cpu

    def result(self) -> dict[str, float]:
        """Returns what was measured."""
        return {"seconds": self.seconds, "cpu": self.cpu}


def peak_memory(pid: int | str = "self") -> float:
    """Returns the most memory that a process has had resident, in MB (10^6 bytes).

    This is the kernel's count; `ru_maxrss` also counts the process that forked.
    """
    with open(f"/proc/{pid}/status") as file:
        [line] = [line for line in file if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024 / 1e6


def disk_usage(folder: Path) -> int:
    """Returns how many bytes the files in a folder and below have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def idle_share(process: psutil.Process, seconds: float) -> float:
    """Returns how much of a core a process and its children use for some seconds."""

    def used() -> float:
        family = [process, *process.children(recursive=True)]
        return sum(sum(member.cpu_times()[:2]) for member in family)

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def main() -> None:
    """Measures once."""
    module, _, name = sys.argv[1].partition(":")
    function: Callable[..., dict[str, float]]
    function = getattr(importlib.import_module(module), name)
    result = function(**json.loads(sys.argv[2]))
    print(f"\n{RESULT}{json.dumps(result)}", flush=True)


if __name__ == "__main__":
    main()
