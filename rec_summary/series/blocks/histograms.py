"""Many recorded histograms to TensorBoard's at once.

Only what MindSpore's and our collectors write is taken: all fields of buckets and statistics,
finite numbers, filled buckets at both ends, and all values finite. Everything else is left to
`dashboards.histograms`, which gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Flags, Floats
from rec_summary.records.format import wire
from rec_summary.values.histogram import decode_buckets

_MOST_BUCKETS: Final = 1000


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


def convert(histograms: Sequence[Any]) -> list[bytes | None]:
    """Returns TensorBoard's `HistogramProto` of recorded histograms, serialised.

    Args:
        histograms: Messages of the type `Summary.Histogram`.

    Returns:
        For each its bytes; None where it is not as expected.
    """
    converted: list[bytes | None] = [None] * len(histograms)
    by_size: dict[int, list[int]] = {}  # by the number of buckets
    for index, histogram in enumerate(histograms):
        size = len(histogram.buckets)
        if 0 < size <= _MOST_BUCKETS and not (
            histogram.nan_count or histogram.pos_inf_count or histogram.neg_inf_count
        ):
            by_size.setdefault(size, []).append(index)
    for size, indices in by_size.items():
        rows, sound = _convert([histograms[index] for index in indices], size)
        for index, row, is_sound in zip(indices, rows, sound.tolist(), strict=True):
            converted[index] = row if is_sound else None
    return converted


def _convert(histograms: Sequence[Any], size: int) -> tuple[list[bytes], Flags]:
    """Converts histograms with equally many buckets, and says which are as expected."""
    left, width, integers, sound = decode_buckets(histograms, size)
    counts = integers.astype(np.float64)
    statistics = [(histogram.max, histogram.min, histogram.sum) for histogram in histograms]
    high, low, total = np.array(statistics).T
    with np.errstate(all="ignore"):  # unsound histograms may have any numbers
        right = left + width
        sound &= np.isfinite(right).all(axis=0) & (counts[0] > 0) & (counts[-1] > 0)
        sums = bucket_sums(left, width, counts)
    for number in (high, low, total, sums.num, sums.squares):
        # TensorBoard's messages have no field for a number of zero.
        sound &= np.isfinite(number) & (number != 0)
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
        columns.append(np.tile(np.frombuffer(key, np.uint8), (len(histograms), 1)))
        flat = np.ascontiguousarray(numbers.reshape(-1, len(histograms)).T, "<f8")
        columns.append(flat.view(np.uint8))
    return [row.tobytes() for row in np.hstack(columns)], sound
