"""Many records that were scanned together, as columns."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.format import framing
from rec_summary.series.batch import (
    SCALAR,
    SUMMARY,
    Batch,
    Bytes,
    Columns,
    Floats,
    Integers,
    Located,
    Record,
    Series,
    Span,
)
from rec_summary.series.options import Selection


@dataclass(frozen=True)
class ScannedRecords:
    """What a scan has found in a piece of a file.

    A group is a sequence of series; all records of a group have a value of each of them.

    Attributes:
        bounds: Where in the file each record begins, and where the last one ends, of shape
            [n + 1], in bytes.
        group: The number of each record's group in `series`; -1 where the record has to be decoded
            by itself, of shape [n].
        series: The series of each group.
        steps: Of shape [n], as are `wall_times`; 0 where `group` is -1.
        wall_times: Seconds since the epoch, finite.
        places: For each group, the numbers of its records, ascending.
        values: The scalars of each group, of shape [records of the group, its scalars].
        buffer: The records as they are in the file.
        start: Where in `buffer` the first record begins.
        data: The records as events of an event file, framed; undefined where `group` is -1;
            None if they were not asked for.
        larger: Those that have another size there, by their numbers.
        cuts: These numbers, ascending.
        breaks: Where `group` is -1, or a step is lower than the one before, ascending.
    """

    bounds: Integers
    group: Integers
    series: tuple[tuple[Series, ...], ...]
    steps: Integers
    wall_times: Floats
    places: tuple[Integers, ...]
    values: tuple[npt.NDArray[np.float32], ...]
    buffer: bytes
    start: int
    data: Bytes | None
    larger: Mapping[int, bytes]
    cuts: Integers
    breaks: Integers

    @cached_property
    def everything(self) -> dict[int, tuple[Series, ...]]:
        """The series of each group, by its number."""
        return dict(enumerate(self.series))

    def frame(self, row: int) -> tuple[bytes, bytes]:
        """Returns the payload of a record, and its checksum as it is in the file."""
        shift = self.start - int(self.bounds[0])
        begin, end = int(self.bounds[row]) + shift, int(self.bounds[row + 1]) + shift
        footer = end - framing.FOOTER_BYTES
        return self.buffer[begin + framing.HEADER_BYTES : footer], self.buffer[footer:end]

    def end(self, first: int) -> int:
        """Returns where the block that begins with record `first` ends: at `first` if none does."""
        if self.group[first] < 0:
            return first
        place = int(np.searchsorted(self.breaks, first + 1))
        return int(self.breaks[place]) if place < len(self.breaks) else len(self.group)


class Block(Batch):
    """A batch of scanned records, none of which has to be decoded by itself."""

    kind = SUMMARY

    def __init__(
        self,
        path: str,
        scanned: ScannedRecords,
        first: int,
        last: int,
        chosen: Mapping[int, tuple[Series, ...]] | None = None,
        late: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Holds the records from number `first` up to, not including, `last`.

        Args:
            path: The file.
            scanned: The records.
            first: The number of the first record.
            last: The number behind the last record.
            chosen: The series that are selected, by the number of their group; None means all.
            late: Which of the scanned records are selected by their times; None means all. Only
                together with `chosen`.
        """
        self.path = path
        self.offset = int(scanned.bounds[first])
        self.end_offset = int(scanned.bounds[last])
        self._scanned = scanned
        self._first = first
        self._last = last
        self._chosen = chosen
        self._late = late

    @property
    def steps(self) -> Integers:
        """The training steps, ascending."""
        return self._scanned.steps[self._rows]

    @property
    def wall_times(self) -> Floats:
        """When the records were written."""
        return self._scanned.wall_times[self._rows]

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(len(self._series[group]) * len(places) for group, places, _ in self._groups)

    def __len__(self) -> int:
        return self._last - self._first if self._chosen is None else len(self._rows)

    def part(self, first: int, last: int) -> Block:
        """Returns the records from number `first` up to, not including, `last`."""
        if first >= last:
            begin = end = self._first
            return Block(self.path, self._scanned, begin, end, self._chosen, self._late)
        if self._chosen is None:
            begin, end = self._first + first, self._first + last
        else:
            begin, end = int(self._rows[first]), int(self._rows[last - 1]) + 1
        return Block(self.path, self._scanned, begin, end, self._chosen, self._late)

    def select(self, selection: Selection, kinds: Collection[str] | None = None) -> Block:
        """Returns the values that are selected."""
        wanted = selection.steps(self.steps)
        block = self
        if not wanted.all():  # they ascend, so that the selected ones are neighbours
            within = np.flatnonzero(wanted)
            block = self.part(*((within[0], within[-1] + 1) if len(within) else (0, 0)))
        chosen = {
            group: tuple(
                each
                for each in series
                if (kinds is None or each[0] in kinds) and selection.tag(each[1])
            )
            for group, series in self._series.items()
        }
        late = block._late
        if not selection.times(block.wall_times).all():  # clocks can go back
            late = selection.times(self._scanned.wall_times)
            late = late if block._late is None else late & block._late
        elif chosen == self._series:
            return block
        chosen = {group: series for group, series in chosen.items() if series}
        return Block(self.path, self._scanned, block._first, block._last, chosen, late)

    def only(self, series: Container[Series]) -> Block:
        """Returns the values of some series."""
        chosen = {
            group: found
            for group, every in self._series.items()
            if (found := tuple(each for each in every if each in series))
        }
        return Block(self.path, self._scanned, self._first, self._last, chosen, self._late)

    def records(self) -> Iterator[Record]:
        """Yields the records one by one."""
        scanned = self._scanned
        for row in self._rows.tolist():
            begin, (payload, _) = int(scanned.bounds[row]), scanned.frame(row)
            wall_time = float(scanned.wall_times[row])
            record = Record(self.path, begin, len(payload), wall_time, Event.FromString(payload))
            if self._chosen is not None:
                chosen = self._chosen[int(scanned.group[row])]
                record = record.of([each for each in record.values if each[:2] in chosen])
            yield record

    def series(self) -> dict[Series, Span]:
        """Returns the series."""
        steps = self._scanned.steps
        found: dict[Series, Span] = {}
        for group, places, _ in self._groups:
            first, last = int(places[0]), int(places[-1])
            place = first - self._first
            if self._chosen is not None:
                place = int(np.searchsorted(self._rows, first))
            span = Span(place, len(places), int(steps[first]), int(steps[last]))
            for series in self._series[group]:
                known = found.get(series)
                found[series] = span if known is None else _joined(known, span)
        return found

    def scalars(self) -> Columns:
        """Returns the scalars."""
        parts = []
        tags: list[str] = []
        for group, places, values in self._groups:
            series = [each for each in self._scanned.series[group] if each[0] == SCALAR]
            for column, each in enumerate(series):
                if each in self._series[group]:
                    parts.append((places, len(tags), values[:, column]))
                    tags.append(each[1])
        if not parts:
            nothing = np.zeros(0, np.int64)
            return Columns((), nothing, nothing, np.zeros(0), np.zeros(0))
        where = np.concatenate([places for places, _, _ in parts])
        codes = np.repeat(np.arange(len(tags)), [len(places) for places, _, _ in parts])
        values = np.concatenate([numbers for _, _, numbers in parts]).astype(np.float64)
        order = np.argsort(where, kind="stable")
        where = where[order]
        return Columns(
            tuple(tags),
            codes[order],
            self._scanned.steps[where],
            self._scanned.wall_times[where],
            values[order],
        )

    def located(self) -> Iterator[Located]:
        """Yields where the values are that are not scalars."""
        scanned = self._scanned
        for group, places, _ in self._groups:
            for series in self._series[group]:
                if series[0] != SCALAR:
                    steps, wall_times = scanned.steps[places], scanned.wall_times[places]
                    yield Located(series, steps, wall_times, scanned.bounds[places])

    def frames(self) -> list[bytes | memoryview] | None:
        """Returns the records as events of an event file; None if a series is not selected."""
        scanned, since = self._scanned, self._first
        if self._chosen is not None or scanned.data is None:
            return None
        begins, data = scanned.bounds - scanned.bounds[0], scanned.data.data
        pieces: list[bytes | memoryview] = []
        among = slice(*np.searchsorted(scanned.cuts, (self._first, self._last)))
        for number in sorted({*scanned.cuts[among].tolist(), self._last - 1}):
            if since < number:
                pieces.append(data[begins[since] : begins[number]])
            larger = scanned.larger.get(number)
            pieces.append(data[begins[number] : begins[number + 1]] if larger is None else larger)
            since = number + 1
        return pieces

    @property
    def _series(self) -> Mapping[int, tuple[Series, ...]]:
        """The selected series of each group."""
        return self._scanned.everything if self._chosen is None else self._chosen

    @cached_property
    def _groups(self) -> list[tuple[int, Integers, npt.NDArray[np.float32]]]:
        """The groups with records here: number, the records' numbers, scalars."""
        found = []
        for group in self._series:
            places = self._scanned.places[group]
            among = slice(*np.searchsorted(places, (self._first, self._last)))
            places, values = places[among], self._scanned.values[group][among]
            if self._late is not None:
                places, values = places[self._late[places]], values[self._late[places]]
            if len(places):
                found.append((group, places, values))
        return found

    @cached_property
    def _rows(self) -> Integers:
        """The numbers of the records that have a selected value."""
        if self._chosen is None:
            return np.arange(self._first, self._last)
        places = [places for _, places, _ in self._groups]
        return np.sort(np.concatenate(places)) if places else np.zeros(0, np.int64)


def _joined(one: Span, other: Span) -> Span:
    return Span(
        min(one.place, other.place),
        one.values + other.values,
        min(one.first_step, other.first_step),
        max(one.last_step, other.last_step),
    )
