"""Reads `.npz` files from untrusted directories: no pickles, no zip bombs, no links."""

from __future__ import annotations

import io
import os
import tokenize
import zipfile
import zlib
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.records.files import open_plain

_read_array: Any = np.lib.format.read_array
_MOST_ARRAYS: Final = 10_000
_REASONS: Final = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, MemoryError),
    *(SyntaxError, TypeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


def read_npz(path: str | os.PathLike[str], most: int) -> dict[str, Array]:
    """Returns all arrays of a file, by their names.

    Args:
        path: The file.
        most: The maximum size of all arrays, unpacked, in bytes.

    Raises:
        OSError: The file cannot be opened, is a link, or is not a regular file.
        ValueError: The file is not an `.npz` file of numbers, is damaged, or holds more than
            `most` bytes.
    """
    arrays = {}
    with os.fdopen(open_plain(path), "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                if len(members) > _MOST_ARRAYS:
                    raise ValueError(f"{len(members):,} arrays, more than {_MOST_ARRAYS:,}")
                room = most
                for member in members:
                    # The sizes stated in the archive may be false, so reading is limited.
                    with archive.open(member) as packed:
                        data = packed.read(room + 1)
                    room -= len(data)
                    if room < 0:
                        raise ValueError(f"more than {most:,} bytes, unpacked")
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _read_array(io.BytesIO(data), allow_pickle=False)
        except _REASONS as error:
            raise ValueError(str(error) or type(error).__name__) from error
    return arrays
