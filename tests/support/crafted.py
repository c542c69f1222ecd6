"""What a stranger would write: bytes on the wire, and files that are not what they seem."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from rec_summary.records.format.framing import frame, masked_crc32c
from tests.support.record_dirs import START, event, scalar, summary_name
from tests.support.waiting import PATIENCE_SECS

MAIN = [sys.executable, "-m", "rec_summary"]
WALL_TIME = struct.pack("<Bd", 9, START)  # field 1 of an event


def varint(number: int) -> bytes:
    """Returns a number on the wire."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, data: bytes) -> bytes:
    """Returns a field with a length on the wire."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def nested(number: int, depth: int) -> bytes:
    """Returns a message that holds itself so many times, in the field of this number."""
    data = b""
    for _ in range(depth):
        data = field(number, data)
    return data


def header(length: int) -> bytes:
    """Returns a sound header of a record of any length."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def good(step: int = 1, tag: str = "loss") -> bytes:
    """Returns a sound record."""
    return frame(event(step, scalar(tag, 0.5)).SerializeToString())


def write(directory: Path, *records: bytes, name: str | None = None) -> Path:
    """Writes records, framed already, to a record file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (name or summary_name())
    path.write_bytes(b"".join(records))
    return path


def write_lineage(directory: Path, *payloads: bytes) -> Path:
    """Writes payloads to a lineage file."""
    name = summary_name().replace("_MS", "_lineage")
    return write(directory, *map(frame, payloads), name=name)


def run(*arguments: Any, memory: int = 3 << 30, seconds: float = PATIENCE_SECS) -> Any:
    """Runs the command with an address space of so many bytes."""
    # Not by `preexec_fn`, which forks: a child of a process with threads of gRPC can abort.
    return subprocess.run(
        ["prlimit", f"--as={memory}", *MAIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
