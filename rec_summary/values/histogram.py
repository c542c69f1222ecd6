"""Histograms of arrays, with the same bins as MindSpore."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.arrays import Array, Flags, Floats, Integers
from rec_summary.records.format import wire

MAX_BINS: Final = 90

_TINY32: Final = 1e-30  # narrower bins overflow in float32
_WIDE32: Final = 1e38
_TINY64: Final = 1e-290
_LARGEST: Final = float(np.finfo(np.float64).max)
_HUGE64: Final = 1e300  # the distance between two such values overflows


def bin_count(valid: int) -> int:
    """Returns MindSpore's number of bins for `valid` finite values."""
    if valid == 0:
        return 1
    if valid <= 5:
        return 2
    if valid <= 10:
        return 3
    return min(valid // 10 + 1, MAX_BINS)


def histogram(values: npt.ArrayLike) -> Summary.Histogram:
    """Returns the histogram of an array, see `encode_histogram`."""
    return Summary.Histogram.FromString(encode_histogram(values))


def population(histogram: Summary.Histogram) -> int:
    """Returns the number of values; a histogram of a sample counts fewer."""
    stated = histogram.population if histogram.HasField("population") else histogram.count
    return int(stated)


class Buckets(NamedTuple):
    """The buckets of histograms that have equally many of them.

    Attributes:
        left: The left edges, shape (buckets, histograms), as the next two.
        width: The widths.
        counts: How many values are in each.
        sound: For which histograms all of this was read, shape (histograms,).
    """

    left: Floats
    width: Floats
    counts: Integers
    sound: Flags


def decode_buckets(histograms: Sequence[Summary.Histogram], size: int) -> Buckets:
    """Returns the buckets of histograms with `size` buckets each, at least one.

    They are read from the serialised messages, which begin with the buckets: that takes a fraction
    of the time that as many attributes take. What neither MindSpore nor our collectors write, such
    as a negative count or a bucket without a count, is not read.
    """
    contents = [histogram.SerializePartialToString() for histogram in histograms]
    data = np.frombuffer(b"".join([*contents, bytes(_COUNT_AT + _SIZES[1])]), np.uint8)
    at = np.cumsum([0, *map(len, contents[:-1])])
    places = np.empty((size, len(histograms)), np.int64)
    for row in places:
        row[:] = at
        at = np.minimum(at + 2 + data[at + 1], len(data) - _COUNT_AT - _SIZES[1])
    lengths = data[places + 1].astype(np.int64)
    sound = (lengths >= _SIZES[0]) & (lengths <= _SIZES[1])
    for place, key in _KEYS_AT:
        sound &= data[places + place] == key
    counts = np.zeros(places.shape, np.int64)
    longest = int(lengths[sound].max(initial=_SIZES[0]))
    for place in range(longest - _SIZES[0] + 1):
        byte = data[places + _COUNT_AT + place].astype(np.int64)
        inside = lengths >= _SIZES[0] + place
        counts += np.where(inside, (byte & 0x7F) << (7 * place), 0)
        # The count is one number, up to the end.
        sound &= ~inside | ((byte >= 0x80) == (lengths > _SIZES[0] + place))
    # Those that begin at every byte.
    doubles: Floats = np.ndarray((len(data) - 7,), "<f8", data, 0, (1,))
    left, width = doubles[places + _LEFT_AT], doubles[places + _WIDTH_AT]
    return Buckets(left, width, counts, sound.all(axis=0))


def encode_histogram(values: npt.ArrayLike) -> bytes:
    """Returns the histogram of an array as the bytes of a `Summary.Histogram`.

    The count includes all values; min, max, sum and the buckets only the finite ones, as in
    MindSpore (`mindspore.train.summary`). If min equals max, the buckets span one unit around
    it. An array without finite values has no buckets.

    Args:
        values: An array of real numbers or booleans, of any shape.
    """
    array = np.asarray(values)
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    flat = array.reshape(-1)
    low, high = (flat.min(), flat.max()) if flat.size else (0.0, 0.0)
    counts = (0, 0, 0)
    if not (math.isfinite(low) and math.isfinite(high)):
        flat, counts = _finite(flat)
        low, high = (flat.min(), flat.max()) if flat.size else (0.0, 0.0)
    rest = _FIELDS(**dict(zip(_REST, counts, strict=True)))
    if not flat.size:
        return rest + _FIELDS(count=array.size)
    low, high = float(low), float(high)
    buckets = _buckets(flat, low, high)
    return buckets + rest + _FIELDS(max=high, min=low, sum=_sum(flat), count=array.size)


def encode_counted(edges: Floats, counts: Floats) -> bytes:
    """Returns counted bins as the bytes of a `Summary.Histogram`.

    Args:
        edges: Ascending edges, shape (bins + 1,).
        counts: The count of each bin, shape (bins,), of at most `MAX_BINS`; rounded, because the
            format has integers.
    """
    rounded = np.rint(counts)
    total = float(rounded @ ((edges[1:] + edges[:-1]) / 2))
    buckets = _encode_buckets(edges[:-1], np.diff(edges), rounded.astype(np.int64))
    rest = _FIELDS(**dict.fromkeys(_REST, 0), max=edges[-1], min=edges[0], sum=total)
    return buckets + rest + _FIELDS(count=int(rounded.sum()))


def _sum(flat: Array) -> float:
    if flat.dtype.kind != "f" or flat.dtype.itemsize < 8:
        return float(flat.sum(dtype=np.float64))
    with np.errstate(over="ignore"):  # the sum of finite values may be infinite
        return float(flat.sum())


def _finite(flat: Array) -> tuple[Array, tuple[int, int, int]]:
    """Returns the finite values, and the numbers of NaN, positive and negative infinity."""
    mask = np.isfinite(flat)
    rest = flat[~mask]
    positive, negative = np.count_nonzero(rest > 0), np.count_nonzero(rest < 0)
    return flat[mask], (int(rest.size - positive - negative), int(positive), int(negative))


def _buckets(finite: Array, low: float, high: float) -> bytes:
    if not low < high:
        margin = max(0.5, abs(low) * 2.0**-45)  # rounding drops half a unit beside 1e16
        low, high = max(low - margin, -_LARGEST), min(high + margin, _LARGEST)
    bins = bin_count(finite.size)
    work, scale, origin = finite, 1.0, 0.0
    largest = max(abs(low), abs(high))
    narrow = (high - low) / bins < max(4 * largest * _EPS32, _TINY32)
    if work.dtype != np.float32 or narrow or high - low > _WIDE32:
        # Half-precision edges collide, 64-bit integers wrap, and the distance between two float32
        # numbers may overflow.
        work = work.astype(np.float64)
        if (high - low) / bins < 4 * largest * _EPS64:
            # Edges of adjacent numbers collide, which newer numpy refuses. Distances are exact.
            origin = low
            work, low, high = work - low, 0.0, high - low
        scale = _scale(low, high)
    work = work / scale if scale != 1.0 else work
    counts, edges = _counted(work, bins, low / scale, high / scale)
    widths = (edges[1:] - edges[:-1]) * scale
    return _encode_buckets(edges[:-1] * scale + origin, widths, counts)


def _counted(values: Array, bins: int, low: float, high: float) -> tuple[Array, Array]:
    """Returns the counts and the edges of `numpy.histogram`, in half of its time.

    The bin of a value is computed from its distance to `low`. Where rounding may decide, because
    that is near an edge, the bin is searched among the edges.
    """
    edges = np.histogram_bin_edges(values, bins, (low, high))
    kind = values.dtype.type
    spacing = max(abs(low), abs(high)) * float(np.finfo(kind).eps)
    uncertain = 1e-4 + 2 * bins * spacing / (high - low)  # more than rounding can move it
    position = (values - kind(low)) * kind(bins / (high - low))
    places = position.astype(np.uint8)
    position -= np.rint(position)
    (near,) = np.nonzero(np.abs(position, out=position) < uncertain)
    places[near] = edges[1:-1].searchsorted(values[near], "right")
    return np.bincount(places, minlength=bins), edges


def _encode_buckets(lefts: Array, widths: Array, counts: Array) -> bytes:
    """Returns the field of all buckets; the arrays have shape (bins,), at most `MAX_BINS`."""
    size = counts.size
    rows = _ROWS[:size].copy()
    rows["left"], rows["width"] = lefts, widths
    most = int(counts.max())
    if most < 1 << 7:  # most arrays; all rows have the same length
        rows["count"] = counts
        return rows.tobytes()
    digits = counts[:, None] >> 7 * np.arange(-(-most.bit_length() // 7))
    more = digits >= 1 << 7  # of each byte of a count, whether another one follows
    rows["length"] += more.sum(axis=1).astype(np.uint8)
    heads = rows.view(np.uint8).reshape(size, -1)[:, :-1]
    table = np.hstack([heads, (digits & 0x7F | more << 7).astype(np.uint8)])
    taken = np.ones(table.shape, np.bool_)
    taken[:, heads.shape[1] + 1 :] = more[:, :-1]
    return table[taken].tobytes()


def _scale(low: float, high: float) -> float:
    """Returns a power of two that scales extreme values so that numpy does not overflow."""
    if max(abs(low), abs(high)) > _HUGE64:
        return 2.0**1020
    if high - low < _TINY64:
        return 2.0 ** max(math.floor(math.log2(high - low)), -1074)
    return 1.0


_HISTOGRAM: Final = Summary.Histogram
_FIELDS: Final = wire.Fields(_HISTOGRAM)
_REST: Final = ("nan_count", "pos_inf_count", "neg_inf_count")
# A bucket with a count of one byte: key and length, then keys and values of its fields.
_ROW: Final = np.dtype(
    [
        *(("keys", "u1"), ("length", "u1")),
        *(("left_key", "u1"), ("left", "<f8")),
        *(("width_key", "u1"), ("width", "<f8")),
        *(("count_key", "u1"), ("count", "u1")),
    ]
)
_BUCKET_BYTES: Final = _ROW.itemsize - 3  # without key, length and count
_KEYS: Final = (
    wire.number_of(_HISTOGRAM, "buckets") << 3 | wire.LENGTH,
    wire.number_of(_HISTOGRAM.bucket, "left") << 3 | wire.FIXED64,
    wire.number_of(_HISTOGRAM.bucket, "width") << 3 | wire.FIXED64,
    wire.number_of(_HISTOGRAM.bucket, "count") << 3 | wire.VARINT,
)
# In a serialised bucket: where its fields and their keys are, after its own key and length.
_KEYS_AT: Final = ((2, _KEYS[1]), (11, _KEYS[2]), (20, _KEYS[3]))
_LEFT_AT, _WIDTH_AT, _COUNT_AT = 3, 12, 21
_SIZES: Final = (20, 24)  # of its content, with a count of one byte up to five
_EPS32: Final = float(np.finfo(np.float32).eps)
_EPS64: Final = float(np.finfo(np.float64).eps)
_ROWS: Final = np.zeros(MAX_BINS, _ROW)  # with the constant fields filled in
_ROWS["keys"], _ROWS["left_key"], _ROWS["width_key"], _ROWS["count_key"] = _KEYS
_ROWS["length"] = _BUCKET_BYTES + 1
