"""Many recorded histograms to TensorBoard's at once.

Only what MindSpore's and our collectors write is taken: all fields of buckets and statistics,
finite numbers, filled buckets at both ends, and all values finite. Everything else is left to
`dashboards.histograms`, which gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from rec_summary.arrays import Array, Bytes, Floats, Integers
from rec_summary.records.format import wire
from rec_summary.values.histogram import decode_histograms


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
    """Adds up buckets, from left to right; all arrays are of shape [histograms, buckets]."""
    middles = left + width / 2
    weighted = counts * middles
    # Bucket by bucket: in which order `np.sum` adds up depends on how many there are.
    totals = (reduce(np.add, parts.T) for parts in (counts, weighted, weighted * middles))
    return BucketSums(*totals)


def convert(buffer: bytes, at: Integers, sizes: Integers) -> Iterator[tuple[Integers, Bytes]]:
    """Yields TensorBoard's `HistogramProto` of recorded histograms, those of one size together.

    Args:
        buffer: Has messages of the type `Summary.Histogram`.
        at: Where in it each of them begins, of shape [histograms].
        sizes: How many bytes it takes.

    Yields:
        Which histograms they are, of shape [n], and their bytes, of shape [n, bytes]. Those that
        are not as expected are left out.
    """
    for numbers, left, width, integers, statistics in decode_histograms(buffer, at, sizes):
        counts = integers.astype(np.float64)
        low, high, total = (statistics[name] for name in ("min", "max", "sum"))
        with np.errstate(all="ignore"):  # histograms that are not as expected may have any numbers
            right = left + width
            sums = bucket_sums(left, width, counts)
        sound = np.isfinite(right).all(axis=1) & (counts[:, 0] > 0) & (counts[:, -1] > 0)
        for name in ("nan_count", "pos_inf_count", "neg_inf_count"):
            sound &= statistics[name] == 0
        for number in (high, low, total, sums.num, sums.squares):
            # TensorBoard's messages have no field for a number of zero.
            sound &= np.isfinite(number) & (number != 0)
        packed = wire.varint(8 * left.shape[1])
        limits = np.hstack([left[:, 1:], right[:, -1:]])
        rows = matrix(
            [
                *(b"\x09", low, b"\x11", high, b"\x19", sums.num),
                *(b"\x21", total, b"\x29", sums.squares),
                *(b"\x32" + packed, limits),
                *(b"\x3a" + packed, counts),
            ]
        )
        yield (numbers, rows) if sound.all() else (numbers[sound], rows[sound])


def matrix(parts: Sequence[bytes | Array]) -> Bytes:
    """Returns equal bytes and arrays of numbers side by side, as rows of bytes."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    form = np.dtype(
        [
            ("", f"V{len(part)}") if isinstance(part, bytes) else ("", part.dtype, part.shape[1:])
            for part in parts
        ]
    )
    row = np.zeros(1, form)
    for name, part in zip(form.names or (), parts, strict=True):
        if isinstance(part, bytes):
            row[name] = np.void(part)
    rows = np.repeat(row.view(f"V{form.itemsize}"), len(arrays[0])).view(form)
    for name, part in zip(form.names or (), parts, strict=True):
        if isinstance(part, np.ndarray):
            rows[name] = part
    return rows.view(np.uint8).reshape(len(rows), form.itemsize)
