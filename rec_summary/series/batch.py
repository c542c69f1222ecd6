"""Records in a row of one file, one or many of them, through one interface.

`EventReader` yields batches. A batch of many records is a `Block` (see `series.blocks`): its
steps, times and scalars are columns already, and nothing is decoded before it is asked for. A
`Record` is a batch of one record, which is decoded. A consumer asks for columns, for series or for
single records and need not know which of the two it has.
"""

from __future__ import annotations

import abc
import itertools
import sys
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.records.format import framing
from rec_summary.series.options import Selection
from rec_summary.series.text import valid

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

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
        place: The number of the first record of the batch that has a value of the series.
        values: How many values there are.
        first_step: The lowest step.
        last_step: The highest step.
    """

    place: int
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


class Batch(abc.ABC):
    """Records in a row of one file.

    Attributes:
        path: The file.
        offset: Where in the file the first record begins, in bytes.
        end_offset: Where the last record ends: reading can go on from there.
        kind: What the records hold, a field of the event; `summary` for recorded values.
    """

    path: str
    offset: int
    end_offset: int
    kind: str

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
    def count(self) -> int:
        """How many values there are."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns how many records there are."""

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
    def series(self) -> dict[Series, Span]:
        """Returns the series, in no particular order."""

    @abc.abstractmethod
    def scalars(self) -> Columns:
        """Returns the scalars."""

    @abc.abstractmethod
    def located(self) -> Iterator[Located]:
        """Yields where the values are that are not scalars; a series may come several times."""

    @abc.abstractmethod
    def frames(self) -> list[bytes | memoryview] | None:
        """Returns the records as events of an event file, framed.

        Each value is under its recorded tag and without metadata. The last piece is the last
        event alone.

        Returns:
            The pieces; None where values have to be converted one by one, or the reader was opened
            without `frames`.
        """


class Record(Batch):
    """A batch of one record.

    Attributes:
        nbytes: The size of the payload.
        wall_time: When it was written, in seconds since the epoch; always finite.
        event: A `summary_pb2.Event` or a `lineage_pb2.LineageEvent`, by the kind of the file.
        values: The values, in order.
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

    @cached_property
    def kind(self) -> str:  # type: ignore[override]
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
        if not (selection.step(self.step) and selection.time(self.wall_time)):
            return self.of([])
        return self.of(
            [
                each
                for each in self.values
                if (kinds is None or each.kind in kinds) and selection.tag(each.tag)
            ]
        )

    def only(self, series: Container[Series]) -> Record:
        """Returns the values of some series."""
        return self.of([each for each in self.values if each[:2] in series])

    def records(self) -> Iterator[Record]:
        """Yields this record."""
        yield self

    def series(self) -> dict[Series, Span]:
        """Returns the series."""
        step = self.step
        found: dict[Series, Span] = {}
        for each in self.values:
            before = found.get(each[:2])
            found[each[:2]] = Span(0, 1 + (before.values if before else 0), step, step)
        return found

    def scalars(self) -> Columns:
        """Returns the scalars."""
        scalars = [each for each in self.values if each.kind == SCALAR]
        count = len(scalars)
        return Columns(
            tuple(each.tag for each in scalars),
            np.arange(count),
            np.full(count, self.step, np.int64),
            np.full(count, self.wall_time, np.float64),
            np.array([each.value.scalar_value for each in scalars], np.float64),
        )

    def located(self) -> Iterator[Located]:
        """Yields where the values are that are not scalars: in this record."""
        for series in self.series():
            if series[0] != SCALAR:
                yield Located(series, self.steps, self.wall_times, np.array([self.offset]))

    def frames(self) -> None:
        """Returns None: the values of a single record are converted one by one."""
        return


def concatenated(parts: Sequence[Columns]) -> Columns:
    """Returns columns as one, with each tag once."""
    numbers: dict[str, int] = {}
    codes = [_NO_INTEGERS]
    for part in parts:
        known = [numbers.setdefault(tag, len(numbers)) for tag in part.tags]
        codes.append(np.array(known, np.int64)[part.codes])
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
    count = len(columns.tags)
    codes = columns.codes.astype(np.int16) if count < 1 << 15 else columns.codes  # sorts faster
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(count + 1))
    for tag, (start, end) in zip(columns.tags, itertools.pairwise(bounds.tolist()), strict=True):
        if start < end:
            yield tag, rows_of(columns, order[start:end])


def rows_of(columns: Columns, rows: slice | npt.NDArray[Any]) -> Columns:
    """Returns some rows of columns."""
    tags, codes, steps, wall_times, values = columns
    return Columns(tags, codes[rows], steps[rows], wall_times[rows], values[rows])
