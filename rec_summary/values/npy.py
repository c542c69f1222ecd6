"""Names and content of `.npy` files."""

from __future__ import annotations

import hashlib
import re
import types
import urllib.parse
from typing import IO, Final

import numpy as np

from rec_summary.arrays import Array

_MAX_NAME: Final = 255  # bytes; what Linux file systems allow
_HASH_CHARS: Final = 16


def file_name(tag: str, step: int) -> str:
    """Returns the name of the file of a tensor, unique for the tag and without directories.

    `urllib.parse.unquote` of the part before the last `_` returns the tag. A name of more than
    255 bytes is cut and ends with `=` and a hash of the tag; no other name contains `=`, because
    it is quoted.
    """
    raw = tag.encode("utf-8", "surrogatepass")
    # A tag such as `a.out.events.summary.1` must not become the name of a record file.
    quoted = re.sub(r"summary\.(?=\d)", "summary%2E", urllib.parse.quote(raw, safe=""))
    end = f"_{step}.npy"
    if len(quoted) + len(end) > _MAX_NAME:
        room = _MAX_NAME - len(end) - _HASH_CHARS - 1
        beginning = re.sub(r"%.?$", "", quoted[:room])  # drops a quoted byte that was cut
        quoted = f"{beginning}={hashlib.sha256(raw).hexdigest()[:_HASH_CHARS]}"
    return quoted + end


def save(file: IO[bytes], array: Array) -> None:
    """Writes an array to an open file, without pickling.

    Raises:
        OSError: The file cannot be written.
        ValueError: The array holds Python objects.
    """
    # numpy writes a real file through C and loses the reason of an error.
    np.save(types.SimpleNamespace(write=file.write), array, allow_pickle=False)
