"""Copying the readable records of damaged files.

Behind a wrong length, the next record is searched for: a place where the checksums of a length
and of the data after it are both right. By chance that happens once in 2^64 bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import ArgumentError, DestinationError, os_errors_as, three_part
from rec_summary.records.files import write_atomically
from rec_summary.records.format import framing
from rec_summary.records.format.bounds import MOST_BYTES
from rec_summary.records.reading.reader import BadLength, LostRecord, RecordReader, TruncatedRecord
from rec_summary.records.reading.runs import find_runs, relative_path
from rec_summary.records.remote import open_binary, overlap, path_or_url

_DESTINATION: Final = "the destination of the repair"
_WINDOW: Final = 1 << 22
_SMALLEST_WINDOW: Final = 1 << 12
_SHORT: Final = 1 << 12  # bytes; a record of so few is always checked
_TRIED: Final = 8  # times the size of a file


@dataclass(frozen=True)
class FileRepair:
    """What was copied from a file.

    Attributes:
        source: The file.
        destination: Its copy.
        records: How many records were copied.
        nbytes: Their size.
        lost: The places that were not copied: offset and size in bytes.
    """

    source: str
    destination: str
    records: int
    nbytes: int
    lost: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RepairReport:
    """What a repair did.

    Attributes:
        files: All record files.
        unreadable: Files that could not be opened, and why.
    """

    files: tuple[FileRepair, ...]
    unreadable: tuple[tuple[str, str], ...]


def repair(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> RepairReport:
    """Copies every readable record to another directory, byte for byte, under the same names.

    The source is only read. Each copy is complete or not there at all, and has the time of
    modification of what it is a copy of.

    Args:
        source: A record directory, or a tree of them; a path or a URL.
        destination: A directory that is empty or does not exist; neither in `source` nor
            around it.
        progress: Gets the current run, the bytes read so far, and the bytes in all.

    Raises:
        SourceError: There are no record files.
        ArgumentError: The destination is not empty, or overlaps with the source.
        DestinationError: It cannot be written to.
    """
    source, destination = path_or_url(source), os.fspath(destination)
    _check(source, destination)
    runs = find_runs(source)
    files: list[FileRepair] = []
    unreadable: list[tuple[str, str]] = []
    done, total = 0, sum(run.nbytes for run in runs)
    for run in runs:
        target = os.path.join(destination, relative_path(run.path, source))
        with _unusable(destination):
            os.makedirs(target, exist_ok=True)
        for file in run.files:
            if progress is not None:
                progress(run.name, done, max(total, done))
            try:
                reader = RecordReader(file.path)
            except OSError as error:
                unreadable.append((file.path, error.strerror or str(error)))
                continue
            with reader, _unusable(destination):
                copy = os.path.join(target, os.path.basename(file.path))
                files.append(_copy(reader, copy))
            done += file.nbytes
    if progress is not None:
        progress("", done, done)
    return RepairReport(tuple(files), tuple(unreadable))


def _check(source: str, destination: str) -> None:
    if overlap(source, destination):
        expected = "two directories of which neither is in the other"
        raise ArgumentError(three_part(_DESTINATION, destination, expected))
    with _unusable(destination):
        if os.path.exists(destination) and os.listdir(destination):
            expected = "an empty directory, or one that does not exist"
            raise ArgumentError(three_part(_DESTINATION, destination, expected))


def _copy(reader: RecordReader, path: str) -> FileRepair:
    """Copies the sound records of a file."""
    records = nbytes = 0
    lost: list[tuple[int, int]] = []
    reached = 0
    with write_atomically(path, like=reader.path) as out:
        for start, payload in sound_records(reader):
            if start > reached:
                lost.append((reached, start - reached))
            data = framing.frame(payload)
            out.write(data)
            records += 1
            nbytes += len(data)
            reached = start + len(data)
        if reader.size > reached:
            lost.append((reached, reader.size - reached))
    return FileRepair(reader.path, path, records, nbytes, tuple(lost))


def sound_records(reader: RecordReader) -> Iterator[tuple[int, bytes]]:
    """Yields offset and payload of every record that can be found.

    Raises:
        OSError: Reading failed.
    """
    budget = Budget(_TRIED * reader.size + _WINDOW)
    while True:
        start = reader.offset
        try:
            record = reader.read()
        except LostRecord:
            continue  # its end is known: the reader stands there
        except (BadLength, TruncatedRecord):
            offset = find_record(reader.path, start + 1, budget)
            if offset is None:
                return
            reader.offset = offset
            continue
        if record is None:
            return
        yield record


class Budget:
    """How many bytes may be searched for records of one file without success.

    A hostile file may be full of right lengths in front of wrong data; each of these would be
    read to its end.
    """

    def __init__(self, nbytes: int) -> None:
        """Begins with `nbytes`."""
        self.nbytes = nbytes


def find_record(
    path: str | os.PathLike[str], start: int, budget: Budget | None = None
) -> int | None:
    """Returns the offset of the first whole record at `start` or after it; None without one.

    Args:
        path: The file.
        start: Where to begin.
        budget: How many bytes may still be searched; places that need more are passed over.

    Raises:
        OSError: Reading failed.
    """
    with contextlib.closing(open_binary(os.fspath(path))) as file:
        size = file.size
        budget = Budget(_TRIED * size + _WINDOW) if budget is None else budget
        window = _SMALLEST_WINDOW
        while start + framing.OVERHEAD_BYTES <= size:
            # A file may have holes that take no space on the disk.
            start = max(start, file.next_data(start) - framing.HEADER_BYTES)
            data = file.read_at(start, window + framing.HEADER_BYTES)
            for offset in _plausible(data, size - start, window):
                length = framing.unpack_header(data[offset : offset + framing.HEADER_BYTES])
                if length is None or length > max(min(MOST_BYTES, budget.nbytes), _SHORT):
                    continue
                behind = start + offset + framing.HEADER_BYTES
                rest = file.read_at(behind, length + framing.FOOTER_BYTES)
                if len(rest) == length + framing.FOOTER_BYTES and framing.footer_matches(
                    rest[:length], rest[length:]
                ):
                    return start + offset
                budget.nbytes -= length if length > _SHORT else 0
            start += window
            window = min(2 * window, _WINDOW)  # the next record is usually near
    return None


def _plausible(window: bytes, remaining: int, most: int) -> Iterator[int]:
    """Yields the offsets below `most` at which a length could stand that the file has room for."""
    count = min(len(window) - framing.HEADER_BYTES + 1, most)
    if count <= 0:
        return
    words: npt.NDArray[np.uint32] = np.ndarray((count + 4,), "<u4", window, 0, (1,))
    lower, upper = words[:count], words[4:]
    # The upper bytes of a length are zero, and no event is empty: that alone leaves few places.
    offsets = np.flatnonzero((upper == 0) & (lower != 0))
    fits = lower[offsets].astype(np.int64) + framing.OVERHEAD_BYTES <= remaining - offsets
    yield from offsets[fits].tolist()


def _unusable(destination: str) -> contextlib.AbstractContextManager[None]:
    expected = "a directory that can be written to"
    return os_errors_as(DestinationError, _DESTINATION, destination, expected)
