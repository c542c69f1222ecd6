"""Records in a row of one file, one or many of them, through one interface.

`EventReader` yields batches. A batch of many records is a `Block` (see `series.blocks`): its
steps, times and values are columns already, and no record is decoded before it is asked for. A
`Record` is a batch of one record, which is decoded. A consumer asks for columns, for series or for
single records and need not know which of the two it has.
"""

from __future__ import annotations

import abc
import itertools
import sys
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Floats, Integers
from rec_summary.records.format import framing
from rec_summary.series.options import Selection
from rec_summary.series.text import valid

Series = tuple[str, str]
"""A kind of value, by its field's name in the records' protobuf, and a tag."""

SCALAR: Final = "scalar_value"
HISTOGRAM: Final = "histogram"
IMAGE: Final = "image"
SUMMARY: Final = "summary"
UNKNOWN: Final = "unknown"
"""The name of a kind that these protobufs do not know."""

_GATHERED: Final = 16_384  # values
_NO_INTEGERS: Final[Integers] = np.zeros(0, np.int64)
_NO_FLOATS: Final[Floats] = np.zeros(0, np.float64)


class Recorded(NamedTuple):
    """A value as it was recorded.

    Attributes:
        kind: The kind, a field of `Summary.Value`.
        tag: The tag.
        value: The protobuf message that holds the value.
        origin: The record that the value comes from.
    """

    kind: str
    tag: str
    value: Any
    origin: Record


class Columns(NamedTuple):
    """Scalars as columns, in the order of the records; all but `tags` are of shape [n].

    Attributes:
        tags: The tags.
        codes: The number of each value's tag in `tags`.
        steps: The training steps.
        wall_times: Seconds since the epoch, finite.
        values: The values.
    """

    tags: tuple[str, ...]
    codes: Integers
    steps: Integers
    wall_times: Floats
    values: Floats


class Span(NamedTuple):
    """Where a series is in a batch.

    Attributes:
        first_row: The number of the first record of the batch that has a value of the series.
        values: How many values there are.
        first_step: The lowest step.
        last_step: The highest step.
    """

    first_row: int
    values: int
    first_step: int
    last_step: int


class Located(NamedTuple):
    """Where the values of one series are, that are not scalars; the arrays are of shape [n].

    Attributes:
        series: The series.
        steps: The training steps.
        wall_times: Seconds since the epoch.
        offsets: Where in the file the records begin, in bytes.
    """

    series: Series
    steps: Integers
    wall_times: Floats
    offsets: Integers


class Table(NamedTuple):
    """The values of a batch, record by record; all but `series` are of shape [n].

    Attributes:
        series: Series, each once; not all of them need have a value here.
        rows: The number of the record that holds each value, ascending.
        codes: The number of each value's series in `series`.
        values: The scalars; of other values, any number.
    """

    series: Sequence[Series]
    rows: Integers
    codes: Integers
    values: npt.NDArray[np.floating[Any]]

    @property
    def counts(self) -> Integers:
        """How many values of each series there are."""
        return np.bincount(self.codes, minlength=len(self.series))

    def part(self, first: int, last: int) -> Table:
        """Returns the values of the records from number `first` up to, not including, `last`."""
        series, rows, codes, values = self
        begin, end = rows.searchsorted((first, last))
        return Table(series, rows[begin:end] - first, codes[begin:end], values[begin:end])


class Batch(abc.ABC):
    """Records in a row of one file.

    Attributes:
        path: The file.
        offset: Where in the file the first record begins, in bytes.
        end_offset: Where the last record ends: reading can go on from there.
    """

    path: str
    offset: int
    end_offset: int

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """What the records hold, a field of the event; `summary` for recorded values."""

    @property
    @abc.abstractmethod
    def steps(self) -> Integers:
        """The training steps, of shape [records]; those of many records never go back."""

    @property
    @abc.abstractmethod
    def wall_times(self) -> Floats:
        """When the records were written, in seconds since the epoch, finite, of shape [records]."""

    @property
    @abc.abstractmethod
    def offsets(self) -> Integers:
        """Where in the file the records begin, in bytes, of shape [records]."""

    @property
    @abc.abstractmethod
    def table(self) -> Table:
        """The values."""

    @abc.abstractmethod
    def part(self, first: int, last: int) -> Batch:
        """Returns the records from number `first` up to, not including, `last`."""

    @abc.abstractmethod
    def select(self, selection: Selection, kinds: Collection[str] | None = None) -> Batch:
        """Returns the values that are selected.

        Args:
            selection: Which tags and steps.
            kinds: Which kinds of values; None means all.
        """

    @abc.abstractmethod
    def only(self, series: Container[Series]) -> Batch:
        """Returns the values of some series."""

    @abc.abstractmethod
    def records(self) -> Iterator[Record]:
        """Yields the records one by one; those without a selected value are left out."""

    @abc.abstractmethod
    def frames(self) -> list[bytes | memoryview] | None:
        """Returns the records as events of an event file, framed.

        Each value is under its recorded tag and without metadata. The last piece is the last
        event alone.

        Returns:
            The pieces; None where values have to be converted one by one, or the reader was opened
            without `frames`.
        """

    def __len__(self) -> int:
        """Returns how many records there are."""
        return len(self.steps)

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.table.codes)

    def series(self) -> Mapping[Series, Span]:
        """Returns the series, in no particular order."""
        return self._series

    @cached_property
    def _series(self) -> dict[Series, Span]:  # several consumers ask
        table, steps = self.table, self.steps
        counts = table.counts
        first, last = np.zeros((2, len(counts)), np.int64)
        # Where a number comes again, the last assignment stays.
        first[table.codes[::-1]], last[table.codes] = table.rows[::-1], table.rows
        present = counts.nonzero()[0]
        first, last = first[present], last[present]
        columns = (present, first, counts[present], steps[first], steps[last])
        return {
            table.series[code]: Span(*span)
            for code, *span in zip(*(column.tolist() for column in columns), strict=True)
        }

    def scalars(self) -> Columns:
        """Returns the scalars."""
        series, rows, codes, values = table = self.table
        present = table.counts.nonzero()[0].tolist()
        scalars = [code for code in present if series[code][0] == SCALAR]
        tag_codes = np.full(len(series), -1)
        tag_codes[scalars] = np.arange(len(scalars))
        codes = tag_codes[codes]
        if len(scalars) < len(present):
            is_scalar = codes >= 0
            rows, codes, values = rows[is_scalar], codes[is_scalar], values[is_scalar]
        return Columns(
            tuple(series[code][1] for code in scalars),
            codes,
            self.steps[rows],
            self.wall_times[rows],
            values.astype(np.float64),
        )

    def located(self) -> Iterator[Located]:
        """Yields where the values are that are not scalars."""
        table = self.table
        for code, positions in _by_code(table.codes, len(table.series)):
            rows = table.rows[positions]
            if table.series[code][0] != SCALAR:
                columns = self.steps[rows], self.wall_times[rows], self.offsets[rows]
                yield Located(table.series[code], *columns)


class Record(Batch):
    """A batch of one record.

    Attributes:
        nbytes: The size of the payload.
        wall_time: When it was written, in seconds since the epoch; always finite.
        event: A `summary_pb2.Event` or a `lineage_pb2.LineageEvent`, by the kind of the file.
    """

    def __init__(
        self,
        path: str,
        offset: int,
        nbytes: int,
        wall_time: float,
        event: Any,
        values: list[Recorded] | None = None,
    ) -> None:
        """Holds a record.

        Args:
            path: The file.
            offset: Where in the file the record begins, in bytes.
            nbytes: The size of its payload.
            wall_time: When it was written, in seconds since the epoch; finite.
            event: The decoded payload.
            values: Those of its values that are selected; None means all.
        """
        self.path = path
        self.offset = offset
        self.end_offset = offset + nbytes + framing.OVERHEAD_BYTES
        self.nbytes = nbytes
        self.wall_time = wall_time
        self.event = event
        if values is not None:
            self.values = values

    @property
    def kind(self) -> str:
        """What the record holds."""
        return self.event.WhichOneof("what") or UNKNOWN

    @property
    def step(self) -> int:
        """The training step."""
        return int(self.event.step)

    @cached_property
    def values(self) -> list[Recorded]:
        """The values, in order."""
        if self.kind != SUMMARY:
            return []
        return [  # thousands of runs may have the same tags
            Recorded(
                value.WhichOneof("value") or UNKNOWN, sys.intern(valid(value.tag)), value, self
            )
            for value in self.event.summary.value
        ]

    @property
    def steps(self) -> Integers:
        """The training step, of shape [1]."""
        return np.array([self.event.step], np.int64)

    @property
    def wall_times(self) -> Floats:
        """The wall time, of shape [1]."""
        return np.array([self.wall_time], np.float64)

    @property
    def offsets(self) -> Integers:
        """The offset, of shape [1]."""
        return np.array([self.offset], np.int64)

    @cached_property
    def table(self) -> Table:
        """The values."""
        numbers: dict[Series, int] = {}
        codes = [numbers.setdefault(recorded[:2], len(numbers)) for recorded in self.values]
        scalars = [recorded.value.scalar_value for recorded in self.values]
        rows = np.zeros(len(codes), np.int64)
        return Table([*numbers], rows, np.array(codes, np.int64), np.array(scalars, np.float64))

    @cached_property
    def _series(self) -> dict[Series, Span]:
        counts = Counter(recorded[:2] for recorded in self.values)
        return {each: Span(0, n, self.step, self.step) for each, n in counts.items()}

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.values)

    def __len__(self) -> int:
        return 1

    def part(self, first: int, last: int) -> Record:
        """Returns this record, or nothing of it."""
        return self if first == 0 < last else self.of([])

    def of(self, values: list[Recorded]) -> Record:
        """Returns the same record with only these of its values."""
        kind = type(self)
        return kind(self.path, self.offset, self.nbytes, self.wall_time, self.event, values)

    def select(self, selection: Selection, kinds: Collection[str] | None = None) -> Record:
        """Returns the values that are selected."""
        if not selection.among(self.step, self.wall_time):
            return self.of([])
        return self.of(
            [
                recorded
                for recorded in self.values
                if (kinds is None or recorded.kind in kinds) and selection.tag(recorded.tag)
            ]
        )

    def only(self, series: Container[Series]) -> Record:
        """Returns the values of some series."""
        return self.of([recorded for recorded in self.values if recorded[:2] in series])

    def records(self) -> Iterator[Record]:
        """Yields this record."""
        yield self

    def frames(self) -> None:
        """Returns None: the values of a single record are converted one by one."""
        return


def concatenated(parts: Sequence[Columns]) -> Columns:
    """Returns columns as one, with each tag once."""
    numbers: dict[str, int] = {}
    codes = [_NO_INTEGERS]
    for part in parts:
        tag_codes = [numbers.setdefault(tag, len(numbers)) for tag in part.tags]
        codes.append(np.array(tag_codes, np.int64)[part.codes])
    return Columns(
        tuple(numbers),
        np.concatenate(codes),
        np.concatenate([_NO_INTEGERS, *(part.steps for part in parts)]),
        np.concatenate([_NO_FLOATS, *(part.wall_times for part in parts)]),
        np.concatenate([_NO_FLOATS, *(part.values for part in parts)]),
    )


def gathered(parts: Iterable[Columns]) -> Iterator[Columns]:
    """Yields the same values in columns of about 16,384 values or more, except the last."""
    held: list[Columns] = []
    count = 0
    for part in parts:
        if not len(part.codes):
            continue
        held.append(part)
        count += len(part.codes)
        if count >= _GATHERED:
            yield concatenated(held)
            held, count = [], 0
    if held:
        yield concatenated(held)


def by_tag(columns: Columns) -> Iterator[tuple[str, Columns]]:
    """Yields each tag and its values, in their order."""
    for code, positions in _by_code(columns.codes, len(columns.tags)):
        yield columns.tags[code], rows_of(columns, positions)


def _by_code(codes: Integers, count: int) -> Iterator[tuple[int, Integers]]:
    """Yields each of the codes, which are below `count`, and the positions where it is."""
    codes = codes.astype(np.int16) if count < 1 << 15 else codes  # sorts faster
    order = codes.argsort(kind="stable")
    bounds = codes[order].searchsorted(np.arange(count + 1))
    for code, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
        if start < end:
            yield code, order[start:end]


def rows_of(columns: Columns, rows: slice | Array) -> Columns:
    """Returns some rows of columns."""
    tags, codes, steps, wall_times, values = columns
    return Columns(tags, codes[rows], steps[rows], wall_times[rows], values[rows])
