"""Many records that were scanned together, as columns."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.format import framing
from rec_summary.series.batch import SUMMARY, Batch, Bytes, Floats, Integers, Record, Series, Table
from rec_summary.series.options import Selection

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ScannedRecords:
    """What a scan has found in a piece of a file.

    Attributes:
        bounds: Where in the file each record begins, and where the last one ends, of shape
            [n + 1], in bytes.
        known: Which records a block can hold; the others have to be decoded by themselves, of
            shape [n].
        steps: Of shape [n], as are `wall_times`; 0 where a record could not be read.
        wall_times: Seconds since the epoch, finite.
        table: The values.
        buffer: The records as they are in the file.
        start: Where in `buffer` the first record begins.
        data: The records as events of an event file, framed; undefined where they are not known;
            None if they were not asked for.
        larger: Those that have another size there, by their numbers.
    """

    bounds: Integers
    known: Mask
    steps: Integers
    wall_times: Floats
    table: Table
    buffer: bytes
    start: int
    data: Bytes | None
    larger: Mapping[int, bytes]

    def part(self, first: int, last: int, offset: int) -> ScannedRecords:
        """Returns the records from number `first` up to, not including, `last`.

        Args:
            first: The number of the first record.
            last: The number behind the last record.
            offset: Where in the file the first record begins, in bytes.
        """
        bounds, (series, rows, codes, numbers) = self.bounds[first : last + 1], self.table
        among = slice(*np.searchsorted(rows, (first, last)))
        return replace(
            self,
            bounds=bounds - bounds[0] + offset,
            known=self.known[first:last],
            steps=self.steps[first:last],
            wall_times=self.wall_times[first:last],
            table=Table(series, rows[among] - first, codes[among], numbers[among]),
            start=self.start + int(bounds[0] - self.bounds[0]),
        )

    def frame(self, row: int) -> tuple[bytes, bytes]:
        """Returns the payload of a record, and its checksum as it is in the file."""
        shift = self.start - int(self.bounds[0])
        begin, end = int(self.bounds[row]) + shift, int(self.bounds[row + 1]) + shift
        footer = end - framing.FOOTER_BYTES
        return self.buffer[begin + framing.HEADER_BYTES : footer], self.buffer[footer:end]

    def end(self, first: int) -> int:
        """Returns where the block that begins with record `first` ends: at `first` if none does."""
        if not self.known[first]:
            return first
        place = int(np.searchsorted(self._breaks, first + 1))
        return int(self._breaks[place]) if place < len(self._breaks) else len(self.known)

    def block(self, path: str, first: int, last: int) -> Block:
        """Returns records of the file `path`, all of which are known, as a batch."""
        among = np.searchsorted(self.table.rows, (first, last))
        return Block(path, self, np.arange(first, last), np.arange(*among))

    def pieces(self, first: int, last: int) -> list[bytes | memoryview]:
        """Returns events of an event file; the last piece is the last event alone."""
        assert self.data is not None
        begins, data = self.bounds - self.bounds[0], self.data.data
        found: list[bytes | memoryview] = []
        among = slice(*np.searchsorted(self._cuts, (first, last)))
        for number in sorted({*self._cuts[among].tolist(), last - 1}):
            if first < number:
                found.append(data[begins[first] : begins[number]])
            larger = self.larger.get(number)
            found.append(data[begins[number] : begins[number + 1]] if larger is None else larger)
            first = number + 1
        return found

    @cached_property
    def _breaks(self) -> Integers:
        """Where records are not known, or a step is lower than the one before, ascending."""
        breaks = ~self.known
        breaks[1:] |= self.steps[1:] < self.steps[:-1]
        return np.flatnonzero(breaks)

    @cached_property
    def _cuts(self) -> Integers:
        """The numbers of the events of another size, ascending."""
        return np.array(sorted(self.larger), np.int64)


class Block(Batch):
    """A batch of scanned records, none of which has to be decoded by itself."""

    kind = SUMMARY

    def __init__(
        self, path: str, scanned: ScannedRecords, records: Integers, values: Integers
    ) -> None:
        """Holds scanned records.

        Args:
            path: The file.
            scanned: The records of a piece of the file.
            records: The numbers of the records, ascending.
            values: The numbers of their selected values in `scanned.table`, ascending.
        """
        self.path = path
        first, last = (int(records[0]), int(records[-1]) + 1) if len(records) else (0, 0)
        self.offset, self.end_offset = int(scanned.bounds[first]), int(scanned.bounds[last])
        self._scanned, self._records, self._values = scanned, records, values
        self._first, self._last = first, last

    @cached_property
    def steps(self) -> Integers:
        """The training steps, ascending."""
        return self._scanned.steps[self._records]

    @cached_property
    def wall_times(self) -> Floats:
        """When the records were written."""
        return self._scanned.wall_times[self._records]

    @property
    def offsets(self) -> Integers:
        """Where the records begin."""
        return self._scanned.bounds[self._records]

    @cached_property
    def table(self) -> Table:
        """The values."""
        series, rows, codes, numbers = self._scanned.table
        rows = rows[self._values]
        if self._last - self._first == len(self._records):
            rows = rows - self._first
        else:
            rows = np.searchsorted(self._records, rows)
        return Table(series, rows, codes[self._values], numbers[self._values])

    def part(self, first: int, last: int) -> Block:
        """Returns the records from number `first` up to, not including, `last`."""
        among = slice(*np.searchsorted(self.table.rows, (first, last)))
        return self._of(self._records[first:last], self._values[among])

    def select(self, selection: Selection, kinds: Collection[str] | None = None) -> Block:
        """Returns the values that are selected."""
        wanted = [
            (kinds is None or kind in kinds) and selection.tag(tag)
            for kind, tag in self.table.series
        ]
        return self._select(wanted, selection.steps(self.steps) & selection.times(self.wall_times))

    def only(self, series: Container[Series]) -> Block:
        """Returns the values of some series."""
        wanted = [each in series for each in self.table.series]
        return self._select(wanted, np.ones(len(self), np.bool_))

    def _select(self, wanted: list[bool], within: Mask) -> Block:
        """Returns the values of some series in some records."""
        kept = np.array(wanted, np.bool_)[self.table.codes] & within[self.table.rows]
        if kept.all():
            return self
        rows = self.table.rows[kept]
        return self._of(self._records[rows[np.diff(rows, prepend=-1) > 0]], self._values[kept])

    def _of(self, records: Integers, values: Integers) -> Block:
        return Block(self.path, self._scanned, records, values)

    def records(self) -> Iterator[Record]:
        """Yields the records one by one."""
        scanned, (series, rows, codes, _) = self._scanned, self.table
        ends = np.searchsorted(rows, np.arange(len(self) + 1)).tolist()
        for row, number in enumerate(self._records.tolist()):
            begin, (payload, _) = int(scanned.bounds[number]), scanned.frame(number)
            wall_time = float(scanned.wall_times[number])
            record = Record(self.path, begin, len(payload), wall_time, Event.FromString(payload))
            if not self._is_whole:
                chosen = {series[code] for code in codes[ends[row] : ends[row + 1]]}
                record = record.only(chosen)
            yield record

    def frames(self) -> list[bytes | memoryview] | None:
        """Returns the records as events of an event file; None if a value is not selected."""
        if self._scanned.data is None or not self._is_whole:
            return None
        return self._scanned.pieces(self._first, self._last)

    @cached_property
    def _is_whole(self) -> bool:
        """Whether all values of the records from the first to the last are selected."""
        first, last = np.searchsorted(self._scanned.table.rows, (self._first, self._last))
        return len(self._values) == int(last - first)
