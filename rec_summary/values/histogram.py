"""Histograms of arrays, with the same bins as MindSpore."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.arrays import Array, Arrays, Bytes, Floats, Integers
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


class Decoded(NamedTuple):
    """Histograms that have equally many buckets, at least one.

    Attributes:
        numbers: Which histograms they are, shape (histograms,).
        left: The left edges, shape (histograms, buckets), as the next two.
        width: The widths.
        counts: How many values are in each.
        statistics: The other fields by name, each of shape (histograms,).
    """

    numbers: Integers
    left: Floats
    width: Floats
    counts: Integers
    statistics: Arrays


def decode_histograms(buffer: bytes, at: Integers, sizes: Integers) -> Iterator[Decoded]:
    """Yields histograms from their bytes, those that have equally many buckets together.

    All are read in step, which takes a fraction of the time that as many messages take. What
    neither MindSpore nor our collectors write is left out, such as a negative count, or another
    order of the fields; so are more than 127 NaNs, or infinities of one sign.

    Args:
        buffer: The bytes.
        at: Where in them each histogram begins, shape (histograms,).
        sizes: How many bytes it takes.
    """
    data = np.frombuffer(buffer + bytes(_PADDING), np.uint8)
    # What looks like a bucket.
    places = np.flatnonzero(data[: len(buffer)] == _KEYS[0])
    for place, key in zip(_KEYS_AT, _KEYS[1:], strict=True):
        places = places[data[places + place] == key]
    first, last = places.searchsorted((at, at + sizes))
    counts = last - first
    order = counts.argsort(kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1):
        size = int(counts[group[0]]) if len(group) else 0
        if 0 < size <= _MOST_BUCKETS:
            buckets = places[first[group, None] + np.arange(size)]
            yield _decoded(data, group, buckets, at[group], at[group] + sizes[group])


def _decoded(
    data: Bytes, numbers: Integers, places: Integers, begins: Integers, ends: Integers
) -> Decoded:
    """Returns those histograms that are as expected.

    Args:
        data: The bytes, and as many more as are read together.
        numbers: Which histograms they are.
        places: Where their buckets seem to begin, shape (histograms, buckets).
        begins: Where the histograms begin.
        ends: Where they end.
    """
    rows = _gathered(data, _WIDE_ROW, places)
    counts, lengths = wire.varints(rows["count"])
    behind = places + (_BUCKET_BYTES + 2) + lengths
    exact = (lengths > 0) & (rows["length"] == lengths + _BUCKET_BYTES)
    exact[:, 1:] &= behind[:, :-1] == places[:, 1:]
    sound = exact.all(axis=1) & (places[:, 0] == begins)

    tail = _gathered(data, _TAIL, np.minimum(behind[:, -1], ends))
    statistics: dict[str, Array] = {name: tail[name] for name in _STATISTICS}
    for name, key in _STATISTICS.items():
        sound &= tail[f"{name}_key"] == key
    for name in _REST:
        sound &= tail[name] < 0x80
    statistics["count"], lengths = wire.varints(tail["count"])
    statistics["population"] = statistics["count"]
    sound &= lengths > 0
    behind = behind[:, -1] + _TAIL.itemsize - 8 + lengths
    if len(others := np.flatnonzero(sound & (behind != ends))):
        more = _gathered(data, _SAMPLED, np.minimum(behind[others], ends[others]))
        population, lengths = wire.varints(more["population"])
        statistics["population"] = statistics["count"].copy()
        statistics["population"][others] = population
        sound[others] = (more["key"] == _SAMPLED_KEY) & (lengths > 0)
        behind[others] += _SAMPLED.itemsize - 8 + lengths
    sound &= behind == ends
    left, width = rows["left"], rows["width"]
    statistics = {name: column[sound] for name, column in statistics.items()}
    return Decoded(numbers[sound], left[sound], width[sound], counts[sound], statistics)


def _gathered(data: Bytes, form: Any, places: Integers) -> Array:
    """Returns what is at some places; as bytes, which takes a tenth of the time of fields."""
    found: Array = wire.unaligned(data, f"V{form.itemsize}")[places]
    return found.view(form)


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
# In a bucket: where the keys of its fields are.
_KEYS_AT: Final = (2, 11, 20)
# The same, with a count of up to eight bytes.
_WIDE_ROW: Final = np.dtype([*_ROW.descr[:-1], ("count", "<u8")])
_MOST_BUCKETS: Final = 1000  # of a histogram that is read together with others
# What is behind the buckets, where counts of what is not finite are small.
_FORMS: Final = {
    **dict.fromkeys(_REST, "u1"),
    "max": "<f8",
    "min": "<f8",
    "sum": "<f8",
    "count": "<u8",
}
_STATISTICS: Final = {
    name: wire.number_of(_HISTOGRAM, name) << 3 | (form == "<f8") for name, form in _FORMS.items()
}
_TAIL: Final = np.dtype(
    [each for name, form in _FORMS.items() for each in ((f"{name}_key", "u1"), (name, form))]
)
_SAMPLED: Final = np.dtype([("key", "<u2"), ("population", "<u8")])
_SAMPLED_KEY: Final = int.from_bytes(
    wire.key(wire.number_of(_HISTOGRAM, "population"), wire.VARINT), "little"
)
_PADDING: Final = 64  # bytes; more than any of these takes
_EPS32: Final = float(np.finfo(np.float32).eps)
_EPS64: Final = float(np.finfo(np.float64).eps)
_ROWS: Final = np.zeros(MAX_BINS, _ROW)  # with the constant fields filled in
_ROWS["keys"], _ROWS["left_key"], _ROWS["width_key"], _ROWS["count_key"] = _KEYS
_ROWS["length"] = _BUCKET_BYTES + 1
