"""Many records that were scanned together, as columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rec_summary._pb.summary_pb2 import Event
from rec_summary.arrays import Flags, Floats, Integers
from rec_summary.records.format import framing
from rec_summary.records.format.bounds import UNDECODABLE
from rec_summary.series.batch import SCALAR, SUMMARY, Batch, Record, Recorded, Series, Table
from rec_summary.series.blocks.rendering import Rendered
from rec_summary.series.options import Selection


@dataclass(eq=False)
class ScannedRecords:
    """The records that a scan has found in a piece of a file.

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
        events: The records as events of an event file; None if they were not asked for.
    """

    bounds: Integers
    known: Flags
    steps: Integers
    wall_times: Floats
    table: Table
    buffer: bytes
    start: int
    events: Rendered | None

    def part(self, first: int, last: int, offset: int) -> ScannedRecords:
        """Returns the records from number `first` up to, not including, `last`.

        Args:
            first: The number of the first record; 0 if events were asked for.
            last: The number after the last record.
            offset: Where in the file the first record begins, in bytes.
        """
        assert first == 0 or self.events is None
        bounds = self.bounds[first : last + 1]
        return ScannedRecords(
            bounds=bounds - bounds[0] + offset,
            known=self.known[first:last],
            steps=self.steps[first:last],
            wall_times=self.wall_times[first:last],
            table=self.table.part(first, last),
            buffer=self.buffer,
            start=self.start + int(bounds[0] - self.bounds[0]),
            events=self.events,
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
        index = int(self._breaks.searchsorted(first + 1))
        return int(self._breaks[index]) if index < len(self._breaks) else len(self.known)

    def give_up_malformed(self) -> None:
        """Has records in which a message cannot be decoded decoded by themselves."""
        of_messages = np.array([kind != SCALAR for kind, _ in self.table.series], np.bool_)
        for row in np.unique(self.table.rows[of_messages[self.table.codes]]).tolist():
            self.known[row] &= decoded(self.frame(row)[0]) is not None

    def block(
        self, path: str, first: int, last: int, lose: Callable[[int], None] = lambda _: None
    ) -> Block:
        """Returns records of the file `path`, all of which are known, as a batch.

        Args:
            path: The file.
            first: The number of the first record.
            last: The number after the last record.
            lose: Called with the offset of a record in which a message cannot be decoded, when
                the record is asked for.
        """
        steps, wall_times = self.steps[first:last], self.wall_times[first:last]
        numbers, table = np.arange(first, last), self.table.part(first, last)
        return Block(path, self, numbers, steps, wall_times, table, lose)

    @cached_property
    def _breaks(self) -> Integers:
        """The numbers of records that are not known, or whose step is lower than the one before."""
        breaks = ~self.known
        breaks[1:] |= self.steps[1:] < self.steps[:-1]
        return breaks.nonzero()[0]


class Block(Batch):
    """A batch of scanned records, none of which has to be decoded by itself."""

    kind = SUMMARY

    def __init__(
        self,
        path: str,
        scanned: ScannedRecords,
        numbers: Integers,
        steps: Integers,
        wall_times: Floats,
        table: Table,
        lose: Callable[[int], None],
    ) -> None:
        """Holds scanned records.

        Args:
            path: The file.
            scanned: The records of a piece of the file.
            numbers: The numbers of the records in it, ascending, of shape [records].
            steps: The training steps, ascending.
            wall_times: When the records were written.
            table: Their selected values.
            lose: See `ScannedRecords.block`.
        """
        self.path = path
        self._lose = lose
        self._scanned, self._numbers = scanned, numbers
        self._steps, self._wall_times, self._table = steps, wall_times, table
        first, last = (int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else (0, 0)
        self.offset, self.end_offset = int(scanned.bounds[first]), int(scanned.bounds[last])
        self._first, self._last = first, last

    @property
    def steps(self) -> Integers:
        """The training steps, ascending."""
        return self._steps

    @property
    def wall_times(self) -> Floats:
        """When the records were written."""
        return self._wall_times

    @property
    def offsets(self) -> Integers:
        """Where the records begin."""
        return self._scanned.bounds[self._numbers]

    @property
    def table(self) -> Table:
        """The values."""
        return self._table

    def part(self, first: int, last: int) -> Block:
        """Returns the records from number `first` up to, not including, `last`."""
        if first == 0 and last >= len(self):
            return self
        return self._of(slice(first, last), self.table.part(first, last))

    def select(self, selection: Selection, kinds: Collection[str] | None = None) -> Block:
        """Returns the values that are selected."""
        wanted = [
            (kinds is None or kind in kinds) and selection.tag(tag)
            for kind, tag in self.table.series
        ]
        return self._select(wanted, selection.among(self.steps, self.wall_times))

    def only(self, series: Container[Series]) -> Block:
        """Returns the values of some series."""
        wanted = [key in series for key in self.table.series]
        if all(wanted):
            return self
        return self._select(wanted, np.ones(len(self), np.bool_))

    def _select(self, wanted: list[bool], within: Flags) -> Block:
        """Returns the values of some series in some records."""
        series, rows, codes, values = self.table
        selected = np.array(wanted, np.bool_)[codes] & within[rows]
        if selected.all():
            return self
        rows = rows[selected]
        has_values = np.zeros(len(self), np.bool_)
        has_values[rows] = True
        rows = (has_values.cumsum() - 1)[rows]
        return self._of(has_values, Table(series, rows, codes[selected], values[selected]))

    def _of(self, chosen: slice | Flags, table: Table) -> Block:
        """Returns the chosen records with a table of values of them."""
        numbers, steps, wall_times = self._numbers, self.steps, self.wall_times
        return Block(
            *(self.path, self._scanned, numbers[chosen], steps[chosen], wall_times[chosen]),
            *(table, self._lose),
        )

    def records(self) -> Iterator[Record]:
        """Yields the records one by one, but those in which a message cannot be decoded."""
        scanned, (series, rows, codes, _) = self._scanned, self.table
        whole, numbers = scanned.table, self._numbers
        ends = rows.searchsorted(np.arange(len(self) + 1)).tolist()
        firsts, lasts = (whole.rows.searchsorted(numbers + n).tolist() for n in range(2))
        begins, wall_times = self.offsets.tolist(), self.wall_times.tolist()
        for row, number in enumerate(numbers.tolist()):
            payload, _ = scanned.frame(number)
            event = decoded(payload)
            if event is None:
                self._lose(begins[row])
                continue
            record = Record(self.path, begins[row], len(payload), wall_times[row], event)
            chosen = {*codes[ends[row] : ends[row + 1]].tolist()}
            recorded = whole.codes[firsts[row] : lasts[row]].tolist()
            record.values = [
                Recorded(series[code][0], series[code][1], value, record)
                for code, value in zip(recorded, event.summary.value, strict=True)
                if code in chosen
            ]
            yield record

    def frames(self) -> list[bytes | memoryview] | None:
        """Returns the records as events of an event file; None if a value is not selected."""
        events = self._scanned.events
        if events is None or not self._is_whole():
            return None
        first, last, end = events.bounds[[self._first, self._last - 1, self._last]].tolist()
        data = events.data.data
        return [data[begin:stop] for begin, stop in ((first, last), (last, end)) if begin < stop]

    def _is_whole(self) -> bool:
        """Whether all values of the records from the first to the last are selected."""
        first, last = self._scanned.table.rows.searchsorted((self._first, self._last))
        return self.count == int(last - first)


def decoded(payload: bytes) -> Event | None:
    """Returns a record; None if it, or a message in it, is malformed."""
    try:
        event = Event.FromString(payload)
    except UNDECODABLE:
        return None
    return event if event.IsInitialized() else None
