"""Which values of a series stay: four points of each bucket of steps, or the first value.

Sums by slice are added up, so that none is lost.

A bucket is a power of ten of steps wide and begins at a multiple of its width. So thinning twice,
the second time in wider buckets, gives the same values as thinning once in the wider ones. Buckets
of other values than scalars are 100 times as wide.
"""

from __future__ import annotations

import contextlib
import operator
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Flags, Floats, Integers
from rec_summary.metrics.tags import EVALUATION
from rec_summary.series.batch import SCALAR, SUMMARY, Batch
from rec_summary.series.options import EVERYTHING
from rec_summary.values import slice_sums
from rec_summary.values.summary import encode_event, encode_scalar

_OTHER_WIDTHS: Final = 100  # scalars are small, and people compare them
_SUMS_WIDTHS: Final = 10  # sums of an interval are as many scalars
KEPT_KINDS: Final = frozenset(("loss_landscape",))

_FLOAT: Final = struct.Struct("<f")


def extremes(buckets: Integers, values: Floats) -> Integers:
    """Returns which points of each bucket stay.

    The first and the last one, the least and the greatest finite one, and the first of each of
    NaN, infinity and minus infinity.

    Args:
        buckets: The bucket of each point, ascending, of shape [n], with n of at least 1.
        values: The values of the points, of shape [n].

    Returns:
        The numbers of the points, ascending, each once.
    """
    starts = np.flatnonzero(np.diff(buckets, prepend=buckets[:1] - 1))
    sizes = np.diff(starts, append=len(buckets))
    chosen_places = [starts, starts + sizes - 1]
    finite = np.where(np.isfinite(values), values, np.nan)
    for choose in (np.fmin, np.fmax):
        best = np.repeat(choose.reduceat(finite, starts), sizes)
        chosen_places.append(_first_of(buckets, finite == best))
    for special in (np.isnan(values), values == np.inf, values == -np.inf):
        chosen_places.append(_first_of(buckets, special))
    chosen: Integers = np.unique(np.concatenate(chosen_places))
    return chosen


def _first_of(buckets: Integers, mask: Flags) -> Integers:
    """Returns the first point of each bucket that is in a mask."""
    places = np.flatnonzero(mask)
    _, firsts = np.unique(buckets[places], return_index=True)
    first: Integers = places[firsts]
    return first


class Limits(NamedTuple):
    """How much may wait.

    Attributes:
        points: How many scalars.
        nbytes: The bytes of other records.
    """

    points: int = 1 << 18
    nbytes: int = 1 << 24


class _Other(NamedTuple):
    """A record with values that stay as they are; `payload` for anything but values."""

    serial: int
    step: int
    wall_time: float
    values: list[bytes]
    payload: bytes | None = None


class _Sums(NamedTuple):
    """Sums by slice of one bucket, where the last of its records was."""

    serial: int
    step: int
    wall_time: float
    tag: str
    after: int
    columns: list[slice_sums.SlicedSums]
    numbers: dict[str, float]

    def with_next(self, later: _Sums) -> _Sums:
        columns = slice_sums.joined([*self.columns, *later.columns])
        numbers = self.numbers | later.numbers
        return later._replace(after=self.after, columns=columns, numbers=numbers)


class Thinner:
    """Takes the records of one writer, in order; returns the payloads of those that stay."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # a tuple
        """Begins.

        Args:
            limits: How much may wait.
        """
        self._limits = limits
        self._width = 1
        self._codes: dict[str, int] = {}  # of the tags of scalars
        self._heads: list[bytes] = []  # what stands in front of a scalar, by the code of its tag
        self._points: list[tuple[Array, ...]] = []
        self._count = 0
        self._others: list[_Other] = []
        self._other_bytes = 0
        self._sums: dict[str, _Sums] = {}
        self._serial = 0
        self._kept: dict[tuple[str, str], int] = {}  # the last step that stayed

    def add(self, batch: Batch, width: int) -> Iterator[bytes]:
        """Takes values that are in force; yields the payloads that are complete.

        Args:
            batch: The values.
            width: The width of a bucket of scalars, in steps; 1 keeps all.
        """
        points, nbytes = self._limits
        if width != self._width or self._count >= points or self._other_bytes > nbytes:
            yield from self.flush()
            self._width = width
        if batch.kind != SUMMARY:
            for record in batch.records():
                payload = record.event.SerializeToString()
                self._put(_Other(self._serial, 0, 0.0, [], payload), len(payload))
                self._serial += 1
            return
        kinds = {kind for kind, _ in batch.series()}
        if SCALAR in kinds:
            self._add_scalars(batch)
        others = kinds - {SCALAR}
        if others:
            self._add_others(batch.select(EVERYTHING, others), batch.steps)
        self._serial += len(batch)

    def _add_scalars(self, batch: Batch) -> None:
        columns = batch.scalars()
        is_kept = [tag.startswith(EVALUATION) for tag in columns.tags]
        codes_of_tags = np.array([self._code(tag) for tag in columns.tags], np.int64)
        serials = self._serial + np.searchsorted(batch.steps, columns.steps)
        # A bucket of its own for each value that stays in any case.
        widths = np.where(np.array(is_kept, bool)[columns.codes], 1, self._width)
        self._points.append(
            (
                codes_of_tags[columns.codes],
                columns.steps // widths,
                serials,
                columns.steps,
                columns.wall_times,
                columns.values.astype(np.float32),
            )
        )
        self._count += len(columns.codes)

    def _add_others(self, batch: Batch, steps: Integers) -> None:
        for record in batch.records():
            step = record.step
            serial = self._serial + int(np.searchsorted(steps, step))
            stays = []
            for value in record.values:
                if value.kind == slice_sums.KIND and self._width > 1:
                    message = value.value.slice_sums
                    with contextlib.suppress(ValueError):  # what is damaged stays as it is
                        columns = slice_sums.decode_sums(message)
                        place = (serial, step, record.wall_time)
                        numbers = slice_sums.decode_numbers(message)
                        self._add_sums(_Sums(*place, value.tag, message.after, columns, numbers))
                        continue
                    stays.append(value.value.SerializeToString())
                elif self._stays(value.kind, value.tag, step):
                    stays.append(value.value.SerializeToString())
            if stays:
                other = _Other(serial, step, record.wall_time, stays)
                self._put(other, sum(map(len, stays)))

    def _add_sums(self, sums: _Sums) -> None:
        """Adds sums to those of the same bucket."""
        width = self._width * _SUMS_WIDTHS
        if any(each.step // width != sums.step // width for each in self._sums.values()):
            self._put_sums()
        before = self._sums.get(sums.tag)
        self._sums[sums.tag] = sums if before is None else before.with_next(sums)

    def _put_sums(self) -> None:
        """Puts the sums of a bucket together: orders are recorded in some of its reports only."""
        if not self._sums:
            return
        serial, step, wall_time = max(each[:3] for each in self._sums.values())
        values = [slice_sums.encode_interval(*each[3:]) for each in self._sums.values()]
        self._put(_Other(serial, step, wall_time, values), sum(map(len, values)))
        self._sums.clear()

    def _stays(self, kind: str, tag: str, step: int) -> bool:
        """Whether a value is the first one in its bucket."""
        last, width = self._kept.get((kind, tag)), self._width * _OTHER_WIDTHS
        is_thinned = self._width > 1 and kind not in KEPT_KINDS
        if is_thinned and last is not None and last // width == step // width:
            return False
        self._kept[kind, tag] = step
        return True

    def flush(self) -> Iterator[bytes]:
        """Yields the payloads of all records that stay and were not yielded."""
        self._put_sums()
        others, self._others, self._other_bytes = self._others, [], 0
        others.sort(key=operator.attrgetter("serial"))  # of sums, the last one of a bucket counts
        points, self._points, self._count = self._points, [], 0
        at = 0
        for serial, step, wall_time, values in self._of_scalars(points):
            while at < len(others) and others[at].serial < serial:
                yield _payload(others[at])
                at += 1
            while at < len(others) and others[at].serial == serial:
                values += others[at].values
                at += 1
            yield _payload(_Other(serial, step, wall_time, values))
        for other in others[at:]:
            yield _payload(other)

    def _of_scalars(
        self, points: list[tuple[Array, ...]]
    ) -> Iterator[tuple[int, int, float, list[bytes]]]:
        """Yields the scalars that stay, record by record."""
        if not points:
            return
        codes, buckets, serials, steps, times, values = (
            np.concatenate(column) for column in zip(*points, strict=True)
        )
        order = np.argsort(codes, kind="stable")
        changes = np.diff(codes[order], prepend=-1) != 0
        changes |= np.diff(buckets[order], prepend=0) != 0
        stay = np.sort(order[extremes(np.cumsum(changes), values[order].astype(np.float64))])
        stay = stay[np.argsort(serials[stay], kind="stable")]
        serial, step, wall_time = -1, 0, 0.0
        others: list[bytes] = []
        heads, pack = self._heads, _FLOAT.pack
        columns = (codes[stay], serials[stay], steps[stay], times[stay], values[stay])
        for code, number, at, time, value in zip(*(c.tolist() for c in columns), strict=True):
            if number != serial:
                if others:
                    yield serial, step, wall_time, others
                serial, step, wall_time, others = number, at, time, []
            others.append(heads[code] + pack(value))
        yield serial, step, wall_time, others

    def _code(self, tag: str) -> int:
        code = self._codes.get(tag)
        if code is None:
            code = self._codes[tag] = len(self._heads)
            self._heads.append(encode_scalar(tag, 0.0)[: -_FLOAT.size])
        return code

    def _put(self, other: _Other, nbytes: int) -> None:
        self._others.append(other)
        self._other_bytes += nbytes


def _payload(record: _Other) -> bytes:
    if record.payload is not None:
        return record.payload
    return encode_event(record.step, record.wall_time, record.values)
