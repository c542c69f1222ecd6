"""Many recorded histograms to TensorBoard's at once, from wire to wire.

Only what MindSpore's and our collectors write is taken: all fields in the order of their
numbers, finite statistics, filled buckets at both ends, and all values finite. Everything else
is left to `dashboards.histograms`, which gives the same bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.records.format import wire

_MOST_BUCKETS: Final = 1000
_BUCKET, _LEFT, _WIDTH, _COUNT = 0x0A, 0x09, 0x11, 0x18  # keys, in a bucket and in front of it
# Behind the buckets: no value that is not finite, then max, min, sum, and the number of values.
_REST: Final = np.frombuffer(b"\x10\0\x18\0\x20\0\x29", np.uint8)
_MAX_AT, _MIN_KEY_AT, _SUM_KEY_AT, _COUNT_KEY_AT = 7, 15, 24, 33
_MIN_KEY, _SUM_KEY, _COUNT_KEY = 0x31, 0x39, 0x40
_LONGEST_COUNT: Final = 8  # bytes
_POPULATION: Final = (0xC0, 0x3E)  # the key of field 1000
_EIGHT: Final = np.arange(8)

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class BucketSums(NamedTuple):
    """What TensorBoard's histograms have besides their buckets, each of shape [histograms].

    Attributes:
        num: How many values.
        weighted: An estimate of their sum, from the middles of the buckets.
        squares: An estimate of the sum of their squares.
    """

    num: Floats
    weighted: Floats
    squares: Floats


def bucket_sums(left: Floats, width: Floats, counts: Floats) -> BucketSums:
    """Adds up buckets, from left to right; all arrays are of shape [buckets, histograms]."""
    middles = left + width / 2
    weighted = counts * middles
    # Row by row: pairwise sums, as of one row, would depend on how many there are.
    totals = [_add(counts), _add(weighted), _add(weighted * middles)]
    return BucketSums(*totals)


def _add(parts: Floats) -> Floats:
    total: Floats = np.cumsum(parts, axis=0)[-1]
    return total


def convert(data: Bytes, starts: Integers, ends: Integers) -> list[bytes | None]:
    """Returns TensorBoard's `HistogramProto` of recorded histograms, serialised.

    Args:
        data: Bytes that hold `Summary.Histogram` messages.
        starts: Where they begin, of shape [n].
        ends: Where they end.

    Returns:
        For each its bytes; None where it is not as expected.
    """
    ends = _without_population(data, starts, ends)
    places, numbers, tails = _find_buckets(data, starts, ends)
    firsts = np.cumsum(numbers) - numbers
    fits = _has_tail(data, tails, ends) & (numbers > 0)
    found: list[bytes | None] = [None] * len(starts)
    for number in np.unique(numbers[fits]).tolist():
        which = np.flatnonzero(fits & (numbers == number))
        buckets = places[firsts[which] + np.arange(number)[:, None]]
        rows, sound = _convert(data, buckets, tails[which])
        for index, row, good in zip(which.tolist(), rows, sound.tolist(), strict=True):
            if good:
                found[index] = row
    return found


def _find_buckets(
    data: Bytes, starts: Integers, ends: Integers
) -> tuple[Integers, Integers, Integers]:
    """Returns where buckets begin, histogram by histogram, their numbers, and where each ends."""
    padded = np.append(data, np.zeros(2, np.uint8))
    at = starts.copy()
    numbers: Integers = np.zeros(len(starts), np.int64)
    which = np.arange(len(starts))  # those that may have another one; very many have none
    owners, rows = [which[:0]], [starts[:0]]
    for _ in range(_MOST_BUCKETS):
        here = at[which]
        inside = (here < ends[which]) & (padded[here] == _BUCKET)
        which, here = which[inside], here[inside]
        if not len(which):
            break
        owners.append(which)
        rows.append(here)
        numbers[which] += 1
        at[which] = np.minimum(here + 2 + padded[here + 1], ends[which])
    order = np.argsort(np.concatenate(owners), kind="stable")
    return np.concatenate(rows)[order], numbers, at


def _without_population(data: Bytes, starts: Integers, ends: Integers) -> Integers:
    """Returns the ends without the field that says of how many values a histogram is a sample."""
    first = ends - 1  # of the last number
    for _ in range(_LONGEST_COUNT - 1):
        before = np.maximum(first - 1, 0)
        first = np.where((first > starts) & (data[before] >= 0x80), first - 1, first)
    key = np.maximum(first - 2, 0)
    stated = (first - 2 >= starts) & (data[key] == _POPULATION[0])
    stated &= (data[key + 1] == _POPULATION[1]) & (data[ends - 1] < 0x80)
    return np.where(stated, first - 2, ends)


def _has_tail(data: Bytes, tails: Integers, ends: Integers) -> npt.NDArray[np.bool_]:
    sizes = ends - tails
    fits = (sizes > _COUNT_KEY_AT + 1) & (sizes <= _COUNT_KEY_AT + 1 + _LONGEST_COUNT)
    at = np.where(fits, tails, 0)
    if len(data) < _COUNT_KEY_AT + 2:
        return np.zeros(len(tails), np.bool_)
    at = np.minimum(at, len(data) - _COUNT_KEY_AT - 2)
    fits &= (data[at[:, None] + np.arange(len(_REST))] == _REST).all(axis=1)
    keys = ((_MIN_KEY_AT, _MIN_KEY), (_SUM_KEY_AT, _SUM_KEY), (_COUNT_KEY_AT, _COUNT_KEY))
    for place, key in keys:
        fits &= data[at + place] == key
    # The last field is one number, up to the end.
    last = np.minimum(ends, len(data)) - 1
    fits &= data[last] < 0x80
    for place in range(_COUNT_KEY_AT + 1, _COUNT_KEY_AT + _LONGEST_COUNT):
        inner = at + place < last
        fits &= ~inner | (data[np.minimum(at + place, len(data) - 1)] >= 0x80)
    return fits


def _convert(
    data: Bytes, places: Integers, tails: Integers
) -> tuple[list[bytes], npt.NDArray[np.bool_]]:
    """Converts histograms with equally many buckets, and tells which are as expected."""
    sound = _are_buckets(data, places)
    limit = len(data) - 28
    at = np.minimum(places, max(limit, 0))
    left, width = _doubles(data, at + 3), _doubles(data, at + 12)
    counts = _counts(data, at)
    high, low, total = (_doubles(data, tails + n) for n in (_MAX_AT, _MIN_KEY_AT + 1, 25))
    with np.errstate(all="ignore"):  # what is not sound may be anything
        right = left + width
        sound &= np.isfinite(right).all(axis=0) & (counts[0] > 0) & (counts[-1] > 0)
        sums = bucket_sums(left, width, counts)
    for number in (high, low, total, sums.num, sums.squares):
        # TensorBoard's messages have no field for a number of zero.
        sound &= np.isfinite(number) & (number != 0)
    size = len(places)
    packed = wire.varint(8 * size)
    parts: list[tuple[bytes, Floats]] = [
        (b"\x09", low),
        (b"\x11", high),
        (b"\x19", sums.num),
        (b"\x21", total),
        (b"\x29", sums.squares),
        (b"\x32" + packed, np.concatenate([left[1:], right[-1:]])),
        (b"\x3a" + packed, counts),
    ]
    columns = []
    for key, numbers in parts:
        columns.append(np.tile(np.frombuffer(key, np.uint8), (places.shape[1], 1)))
        flat = np.ascontiguousarray(numbers.reshape(-1, places.shape[1]).T, "<f8")
        columns.append(flat.view(np.uint8))
    return [row.tobytes() for row in np.hstack(columns)], sound


def _are_buckets(data: Bytes, places: Integers) -> npt.NDArray[np.bool_]:
    at = np.minimum(places, max(len(data) - 28, 0))
    sizes = data[at + 1].astype(np.int64)
    sound = (at == places) & (sizes >= 20) & (sizes <= 24)
    for place, key in ((2, _LEFT), (11, _WIDTH), (20, _COUNT)):
        sound &= data[at + place] == key
    for place in range(1, 6):  # the count is one number, up to the end
        byte = data[np.minimum(at + 20 + place, len(data) - 1)]
        inner, last = sizes > 18 + place + 1, sizes == 18 + place + 1
        sound &= ~(inner & (byte < 0x80)) & ~(last & (byte >= 0x80))
    result: npt.NDArray[np.bool_] = sound.all(axis=0)
    return result


def _counts(data: Bytes, at: Integers) -> Floats:
    sizes = data[at + 1].astype(np.int64)
    counts: Integers = np.zeros(at.shape, np.int64)
    for place in range(5):
        byte = data[np.minimum(at + 21 + place, len(data) - 1)].astype(np.int64)
        counts += np.where(sizes > 19 + place, (byte & 0x7F) << (7 * place), 0)
    return counts.astype(np.float64)


def _doubles(data: Bytes, at: Integers) -> Floats:
    flat = np.ascontiguousarray(data[at[..., None] + _EIGHT])
    found: Floats = flat.view("<f8")[..., 0]
    return found
