"""A resumable reader of framed records.

A reader works on finished files, on files that another process appends to, and on files that a
crash cut short. The type of an error says what to do:

* `TruncatedRecord`: the file ends inside a record. The same call later goes on from there.
* `BadLength`: the length is wrong, so the next record cannot be found. Stop reading this file.
* `LostRecord`: the payload is damaged or too large, but its end is known. The reader has stepped
  over it; the next call reads the next record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from rec_summary.errors import RecordError, verbatim
from rec_summary.records.files import HeldFile, PlainFile
from rec_summary.records.format import framing
from rec_summary.records.format.bounds import MOST_BYTES, VARIABLE
from rec_summary.records.format.names import hidden_path
from rec_summary.records.remote import RemoteFile, Url, open_binary

_CHUNK_BYTES: Final = 1 << 18


class TruncatedRecord(RecordError):
    """The file ends inside a record; the part that is there may be fine."""


class BadLength(RecordError):
    """The end of a record cannot be found.

    Attributes:
        reason: Why, in a few words.
    """

    reason = "the length cannot be true"


class BadLengthChecksum(BadLength):
    """A record's header does not match its checksum."""

    reason = "the length's checksum is wrong"


class LostRecord(RecordError):
    """A record that is skipped, because its payload cannot be read.

    Attributes:
        reason: Why, in a few words.
    """

    reason = f"the record is larger than {MOST_BYTES >> 20} MiB ({VARIABLE} can allow more)"


class BadDataChecksum(LostRecord):
    """A record's payload does not match its checksum."""

    reason = "the data's checksum is wrong"


def _opened(path: str) -> PlainFile | RemoteFile:
    try:
        return open_binary(path)
    except FileNotFoundError:
        if isinstance(path, Url) or not os.path.exists(hidden_path(path)):
            raise
        return open_binary(hidden_path(path))


class RawRecord(NamedTuple):
    """A payload and the byte offset at which its record begins."""

    offset: int
    payload: bytes


class RecordReader:
    """Reads framed records one after another, from any record boundary on.

    Attributes:
        path: The file being read.
        offset: The record boundary that reading has reached, in bytes. A later reader that
            starts there goes on without a gap or a duplicate.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        offset: int = 0,
        most_bytes: int = MOST_BYTES,
        data: bytes | None = None,
    ) -> None:
        """Opens `path` for reading.

        Args:
            path: A file of framed records; a path or a `Url`.
            offset: The record boundary to start at, in bytes.
            most_bytes: The largest record that is read.
            data: What is in the file, if that is known; it is not opened then.

        Raises:
            OSError: The file cannot be opened, is a link, or is no regular file.
        """
        self.path = os.fspath(path)
        self.offset = offset
        self._most_bytes = most_bytes
        self._file = _opened(self.path) if data is None else HeldFile(data)
        self._buffer = b""
        self._buffer_start = offset  # where in the file `_buffer` begins

    @property
    def size(self) -> int:
        """The size of the file in bytes; of a file at a URL, when it was opened."""
        return self._file.size

    def read(self) -> RawRecord | None:
        """Returns the next record, or None where the file ends at a record boundary.

        A file that grows has more for a later call; a file at a URL, for a later reader.

        Raises:
            TruncatedRecord: The rest of the record has not been written (yet).
            BadLength: The record's end cannot be found.
            LostRecord: The payload is damaged or too large; the next call reads the next
                record.
            OSError: Reading failed.
        """
        start = self.offset
        header = self._peek(start, framing.HEADER_BYTES)
        if not header:
            return None
        if len(header) < framing.HEADER_BYTES:
            raise self._truncated(len(header), framing.HEADER_BYTES)
        length = framing.unpack_header(header)
        if length is None:
            raise BadLengthChecksum(
                self.path,
                start,
                "the checksum of a record's length",
                verbatim(f"header {header.hex()}"),
                "a 12-byte TFRecord header (is this a record file, and undamaged?)",
            )
        # Compare with the file's size first: a damaged length must never make us allocate.
        needed = length + framing.OVERHEAD_BYTES
        present = self.size - start
        if length > self._most_bytes:
            raise self._too_large(length, ends=needed <= present)
        begin = self._fill(start, needed) if needed <= present else len(self._buffer)
        end = begin + needed
        if len(self._buffer) < end:
            raise self._truncated(present, needed)
        payload = self._buffer[begin + framing.HEADER_BYTES : end - framing.FOOTER_BYTES]
        self.offset = start + needed
        if not framing.footer_matches(payload, self._buffer[end - framing.FOOTER_BYTES : end]):
            raise BadDataChecksum(
                self.path,
                start,
                "the checksum of a record's data",
                verbatim(f"{length} bytes that do not match it"),
                "the bytes that were written",
            )
        return RawRecord(start, payload)

    def ahead(self, nbytes: int) -> tuple[bytes, int]:
        """Returns the next bytes of the file; the next record stays the same.

        Args:
            nbytes: About how many bytes are wanted.

        Returns:
            Bytes, and where in them the next record begins.

        Raises:
            OSError: Reading failed.
        """
        begin = self._fill(self.offset, nbytes)
        return self._buffer, begin

    def at(self, offset: int, size: int) -> bytes:
        """Returns up to `size` bytes from `offset` on, as they are in the file, without reading on.

        Raises:
            OSError: Reading failed.
        """
        return self._file.read_at(offset, size)

    def skip_to(self, limit: int) -> None:
        """Steps over the records that end at `limit` or before, without reading their data.

        Args:
            limit: A place in the file, in bytes.

        Raises:
            OSError: Reading failed.
        """
        while len(header := self._peek(self.offset, framing.HEADER_BYTES)) == framing.HEADER_BYTES:
            length = framing.unpack_header(header)
            if length is None or self.offset + length + framing.OVERHEAD_BYTES > limit:
                return
            self.offset += length + framing.OVERHEAD_BYTES

    def __iter__(self) -> Iterator[RawRecord]:
        """Yields records until the file ends at a boundary; errors as `read` raises them."""
        while (record := self.read()) is not None:
            yield record

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _too_large(self, length: int, *, ends: bool) -> RecordError:
        start = self.offset
        if ends:
            self.offset = start + length + framing.OVERHEAD_BYTES
        kind = LostRecord if ends else BadLength
        expected = (
            f"at most {self._most_bytes:,} bytes (the environment variable {VARIABLE}, in MiB)"
        )
        received = verbatim(f"{length:,} bytes")
        return kind(self.path, start, "the length of a record", received, expected)

    def _truncated(self, present: int, needed: int) -> TruncatedRecord:
        return TruncatedRecord(
            self.path,
            self.offset,
            "the last record",
            verbatim(f"{present} of its {needed} bytes"),
            "a whole record",
        )

    def _peek(self, start: int, size: int) -> bytes:
        """Returns up to `size` bytes from `start` on, through the read-ahead buffer."""
        begin = self._fill(start, size)
        return self._buffer[begin : begin + size]

    def _fill(self, start: int, size: int) -> int:
        """Makes sure that the buffer has up to `size` bytes from `start` on; says where."""
        begin = start - self._buffer_start
        if not 0 <= begin <= len(self._buffer) - size:
            # What is left is read again, rather than copied together with what follows.
            # Memory is not taken for more bytes than there are.
            nbytes = min(max(size, _CHUNK_BYTES), self.size - start)
            self._buffer = self._file.read_at(start, nbytes) if nbytes > 0 else b""
            self._buffer_start, begin = start, 0
        return begin
