"""Damage to the bytes of a file."""

from __future__ import annotations

import random
from pathlib import Path


def damaged(content: bytes, chance: random.Random) -> tuple[bytes, int]:
    """Returns a damaged copy, and where its damage begins."""
    place = chance.randrange(len(content))
    end = min(len(content), place + chance.choice((1, 2, 8, 100, 3000)))
    kind = chance.randrange(6)
    if kind == 0:
        bit = bytes([content[place] ^ (1 << chance.randrange(8))])
        return content[:place] + bit + content[place + 1 :], place
    if kind == 1:
        return content[:place], place
    if kind == 2:
        return content[:place] + content[end:], place
    if kind == 3:
        return content[:place] + chance.randbytes(end - place) + content[end:], place
    if kind == 4:
        other = chance.randrange(len(content))
        return content[:place] + content[other : other + end - place] + content[place:], place
    return content[:place] + bytes(end - place) + content[end:], place


def flip(path: Path, at: int | None = None) -> None:
    """Changes a bit of a file: in its middle, if no place is given."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def cut_off(path: Path, nbytes: int) -> bytes:
    """Takes the end of a file away; returns it."""
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[:-nbytes])
    return data[-nbytes:]
