"""Which values of a series stay: four points of each bucket of steps, or every n-th value.

A bucket is `2**k` steps wide and begins at a multiple of its width. So thinning twice, the second
time in wider buckets, gives the same values as thinning once in the wider ones.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Flags, Floats, Integers
from rec_summary.metrics.tags import EVALUATION
from rec_summary.series.batch import SCALAR, SUMMARY, Batch
from rec_summary.series.options import EVERYTHING
from rec_summary.values.summary import encode_event, encode_scalar

KEPT_KINDS: Final = frozenset(("loss_landscape",))

_MOST_POINTS: Final = 1 << 18  # that wait
_MOST_BYTES: Final = 1 << 24
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


class Widths(NamedTuple):
    """How coarse a part of the records becomes.

    Attributes:
        scalars: The width of a bucket of scalars is `2**scalars` steps; 0 keeps all.
        reduction: Of other series, about one value in so many stays; 1 keeps all.
    """

    scalars: int = 0
    reduction: float = 1.0


class _Other(NamedTuple):
    """A record with values that stay as they are; `payload` for anything but values."""

    serial: int
    step: int
    wall_time: float
    values: list[bytes]
    payload: bytes | None = None


class Thinner:
    """Takes the records of one writer, in order; returns the payloads of those that stay."""

    def __init__(self, intervals: dict[tuple[str, str], float]) -> None:
        """Begins.

        Args:
            intervals: How many steps lie between two values of each series that is not one of
                scalars.
        """
        self._intervals = intervals
        self._widths = Widths()
        self._codes: dict[str, int] = {}  # of the tags of scalars
        self._heads: list[bytes] = []  # what stands in front of a scalar, by the code of its tag
        self._points: list[tuple[Array, ...]] = []
        self._count = 0
        self._others: list[_Other] = []
        self._other_bytes = 0
        self._serial = 0
        self._kept: dict[tuple[str, str], int] = {}  # the last step that stayed

    def add(self, batch: Batch, widths: Widths) -> Iterator[bytes]:
        """Takes values that are in force; yields the payloads that are complete."""
        if widths != self._widths or self._count >= _MOST_POINTS or self._other_bytes > _MOST_BYTES:
            yield from self.flush()
            self._widths = widths
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
        shift = np.where(np.array(is_kept, bool)[columns.codes], 0, self._widths.scalars)
        self._points.append(
            (
                codes_of_tags[columns.codes],
                columns.steps >> shift,
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
            stays = [
                value.value.SerializeToString()
                for value in record.values
                if self._stays(value.kind, value.tag, step)
            ]
            if stays:
                serial = self._serial + int(np.searchsorted(steps, step))
                other = _Other(serial, step, record.wall_time, stays)
                self._put(other, sum(map(len, stays)))

    def _stays(self, kind: str, tag: str, step: int) -> bool:
        """Whether a value is the first one in its bucket."""
        last = self._kept.get((kind, tag))
        reduction = self._widths.reduction
        if last is not None and reduction > 1 and kind not in KEPT_KINDS:
            width = reduction * self._intervals.get((kind, tag), 1.0)
            shift = math.ceil(math.log2(width))
            if last >> shift == step >> shift:
                return False
        self._kept[kind, tag] = step
        return True

    def flush(self) -> Iterator[bytes]:
        """Yields the payloads of all records that stay and were not yielded."""
        others, self._others, self._other_bytes = self._others, [], 0
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
