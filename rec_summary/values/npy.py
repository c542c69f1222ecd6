"""Arrays as `.npy` files: their names, and how they are written."""

from __future__ import annotations

import hashlib
import re
import types
import urllib.parse
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

_MAX_NAME: Final = 255  # bytes; what Linux file systems allow
_HASH_CHARS: Final = 16


def file_name(tag: str, step: int) -> str:
    """Returns the name of a tensor's file: no two tags share one, none leaves the directory.

    `urllib.parse.unquote` of what stands before the last `_` gives the tag back. A name
    that would be longer than 255 bytes is cut and gets `=` and a hash of the tag instead
    of the rest; quoting leaves no `=` in any other name.
    """
    raw = tag.encode("utf-8", "surrogatepass")
    # A tag such as `a.out.events.summary.1` must not look like a record file to readers.
    quoted = re.sub(r"summary\.(?=\d)", "summary%2E", urllib.parse.quote(raw, safe=""))
    end = f"_{step}.npy"
    if len(quoted) + len(end) > _MAX_NAME:
        room = _MAX_NAME - len(end) - _HASH_CHARS - 1
        kept = re.sub(r"%.?$", "", quoted[:room])  # half of a quoted byte says nothing
        quoted = f"{kept}={hashlib.sha256(raw).hexdigest()[:_HASH_CHARS]}"
    return quoted + end


def save(file: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Writes an array to an open file; never anything that has to be unpickled.

    Raises:
        OSError: The file cannot be written.
        ValueError: The array holds Python objects.
    """
    # Hidden from numpy, which would write through C and forget why that failed.
    np.save(types.SimpleNamespace(write=file.write), array, allow_pickle=False)
