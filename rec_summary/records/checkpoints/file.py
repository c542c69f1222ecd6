"""Reading MindSpore's `.ckpt` files without MindSpore.

A checkpoint is a protobuf message: `repeated Value value = 1`, and a value is `string tag =
1` and `Tensor tensor = 2`, which is `repeated int64 dims = 1`, `string tensor_type = 2` and
`bytes tensor_content = 3`. A large parameter is cut into several values with the same tag.
Only these fields are read, and the elements of a parameter only on request: a checkpoint may
be larger than the memory.
Source: `mindspore/train/checkpoint_pb2.py` and `serialization.py`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Array
from rec_summary.errors import RecordError, verbatim
from rec_summary.records.format.wire import LENGTH, VARINT, read_varint
from rec_summary.records.remote import open_binary

_TYPES: Final = {
    **{f"Int{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    "Bool": np.dtype(np.bool_),
    "BFloat16": np.dtype("<u2"),  # the upper half of a float32
}
_TRAILER: Final = b"crc_num"  # and a checksum, which is not part of the message
_LONGEST_TEXT: Final = 1 << 12
MOST_VALUES: Final = 1_000_000
MOST_DIMENSIONS: Final = 32


class CheckpointError(RecordError):
    """A file is not a checkpoint, or is damaged."""


class _Part(NamedTuple):
    offset: int
    nbytes: int


class _Entry(NamedTuple):
    shape: tuple[int, ...]
    kind: str
    parts: list[_Part]


class CheckpointFile:
    """A checkpoint whose parameters are read on request; use it as a context.

    Attributes:
        path: The file.
        names: The names of its parameters, in the order of the file.
    """

    def __init__(self, path: str | os.PathLike[str], most_values: int = MOST_VALUES) -> None:
        """Opens a checkpoint and reads its table of contents.

        Args:
            path: The file.
            most_values: How many values it may have.

        Raises:
            OSError: The file cannot be read, is a link, or is not a regular file.
            CheckpointError: It is not a checkpoint, is damaged, or is encrypted.
        """
        self.path = os.fspath(path)
        self._file = open_binary(self.path)
        try:
            self._entries: dict[str, _Entry] = {}
            fields = self._fields(0, self._file.size, trailer=True)
            for count, (_, start, end) in enumerate(fields):
                if count == most_values:
                    what, expected = "the number of values", f"at most {most_values:,}"
                    raise self._error(start, what, verbatim("more"), expected)
                self._take_value(start, end)
        except BaseException:
            self._file.close()
            raise
        self.names = tuple(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a parameter's shape.

        Raises:
            KeyError: There is no such parameter.
        """
        return self._entries[name].shape

    def is_float(self, name: str) -> bool:
        """Whether a parameter is of floating point.

        Raises:
            KeyError: There is no such parameter.
        """
        return "Float" in self._entries[name].kind

    def array(self, name: str) -> Array:
        """Returns a parameter; bfloat16 becomes float32.

        Raises:
            KeyError: There is no such parameter.
            CheckpointError: Its type is unknown, or its size does not fit its shape.
            OSError: The file cannot be read.
        """
        entry = self._entries[name]
        elements = self.elements(name, 0, math.prod(entry.shape))
        try:
            return elements.reshape(entry.shape)
        except ValueError as error:  # an empty array may still be too large for NumPy
            offset = entry.parts[0].offset if entry.parts else 0
            expected = f"one that NumPy allows ({error})"
            raise self._error(offset, f"the shape of {name}", entry.shape, expected) from error

    def elements(self, name: str, start: int, stop: int) -> Array:
        """Returns a parameter's elements from `start` to `stop`, in the order of its rows.

        Only these are read.

        Raises:
            KeyError: There is no such parameter.
            CheckpointError: As from `array`.
            OSError: The file cannot be read.
        """
        entry = self._entries[name]
        dtype = self._checked_type(name, entry)
        first, last = start * dtype.itemsize, stop * dtype.itemsize
        pieces, begin = [], 0
        for part in entry.parts:
            low, high = max(first - begin, 0), min(last - begin, part.nbytes)
            if low < high:
                pieces.append(self._read(part.offset + low, high - low))
            begin += part.nbytes
        array = np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), dtype=dtype)
        if entry.kind == "BFloat16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array

    def _checked_type(self, name: str, entry: _Entry) -> np.dtype[Any]:
        dtype = _TYPES.get(entry.kind)
        offset = entry.parts[0].offset if entry.parts else 0
        if dtype is None:
            raise self._error(offset, f"the type of {name}", entry.kind, ", ".join(_TYPES))
        nbytes = sum(part.nbytes for part in entry.parts)
        if nbytes != math.prod(entry.shape) * dtype.itemsize:
            received = f"{nbytes} bytes for shape {entry.shape} of {entry.kind}"
            raise self._error(
                offset, f"the size of {name}", received, "as many elements as its shape has"
            )
        return dtype

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> CheckpointFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_value(self, start: int, end: int) -> None:
        name, entry = "", _Entry((), "", [])
        for number, begin, stop in self._fields(start, end):
            if number == 1:
                name = self._text(begin, stop)
            elif number == 2:
                entry = self._tensor(begin, stop)
        whole = self._entries.setdefault(name, entry)
        if whole is not entry:
            whole.parts.extend(entry.parts)

    def _tensor(self, start: int, end: int) -> _Entry:
        shape: list[int] = []
        kind, parts = "", []
        for number, begin, stop in self._fields(start, end):
            if number == 1:
                size, _ = self._varint(begin)
                shape.append(size)
                if len(shape) > MOST_DIMENSIONS or not size < 1 << 63:
                    received = verbatim(f"{len(shape)} dimensions, of {size}")
                    expected = f"at most {MOST_DIMENSIONS}, none of them negative"
                    raise self._error(start, "the shape of a parameter", received, expected)
            elif number == 2:
                kind = self._text(begin, stop)
            elif number == 3:
                parts.append(_Part(begin, stop - begin))
        return _Entry(tuple(shape), kind, parts)

    def _fields(
        self, start: int, end: int, *, trailer: bool = False
    ) -> Iterator[tuple[int, int, int]]:
        """Yields number, beginning and end of each field of a message."""
        while start < end:
            if trailer and end - start < 64 and self._read(start, len(_TRAILER)) == _TRAILER:
                return
            key, begin = self._varint(start)
            number, wire = key >> 3, key & 7
            if wire == VARINT:
                _, stop = self._varint(begin)
            elif wire == LENGTH:
                length, begin = self._varint(begin)
                stop = begin + length
            else:
                stop = end + 1
            if stop > end or not number:
                received = verbatim(f"field {number} of wire type {wire}")
                expected = "a MindSpore checkpoint, whole and not encrypted"
                raise self._error(start, "a part of a checkpoint", received, expected)
            yield number, begin, stop
            start = stop

    def _varint(self, start: int) -> tuple[int, int]:
        data = self._read(start, 10)
        value, length = read_varint(data, 0, len(data))
        if value >= 0:
            return value, start + length
        received = verbatim(data.hex())
        raise self._error(start, "a number in a checkpoint", received, "one of at most ten bytes")

    def _text(self, start: int, end: int) -> str:
        return self._read(start, min(end - start, _LONGEST_TEXT)).decode("utf-8", "replace")

    def _read(self, offset: int, nbytes: int) -> bytes:
        return self._file.read_at(offset, nbytes)

    def _error(self, offset: int, what: str, received: object, expected: str) -> CheckpointError:
        return CheckpointError(self.path, offset, what, received, expected)
