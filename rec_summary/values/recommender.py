"""Values that only the metrics of recommenders have: curves, frequent ids, states of metrics."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import MetricStates, PrCurve, Reliability, Summary, TopIds
from rec_summary.errors import three_part
from rec_summary.values.summary import ScalarValue

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

_SMALL: Final = 256  # bytes that are not worth compressing
_LARGEST: Final = 1 << 26  # bytes of one array; a stranger may say anything
CURVE_ROWS: Final = (
    *("true_positives", "false_positives", "true_negatives", "false_negatives"),
    *("precision", "recall"),
)
"""The fields of a `PrCurve`, in the order of TensorBoard's PR curve plugin."""


def recommender_values(
    scalars: Mapping[str, float],
    histograms: Mapping[str, tuple[Array, Array]],
    pr_curves: Mapping[str, Array],
    reliabilities: Mapping[str, tuple[Array, Array, Array]],
    tops: Mapping[str, tuple[Array, Array, Array, Array]],
) -> list[Summary.Value]:
    """Returns all that was read from metrics, by tag; the shapes are those of the functions below.

    Args:
        scalars: Numbers.
        histograms: Edges and counts.
        pr_curves: Precision-recall curves.
        reliabilities: Predicted and observed rates, and weights.
        tops: Ids, counts, and the bounds of these.
    """
    return [
        *(
            Summary.Value.FromString(ScalarValue(tag, number).encode())
            for tag, number in scalars.items()
        ),
        *(buckets_value(tag, *parts) for tag, parts in histograms.items()),
        *(pr_curve_value(tag, rows) for tag, rows in pr_curves.items()),
        *(reliability_value(tag, *parts) for tag, parts in reliabilities.items()),
        *(top_ids_value(tag, *parts) for tag, parts in tops.items()),
    ]


def pr_curve_value(tag: str, rows: npt.ArrayLike) -> Summary.Value:
    """Returns a PR curve; `rows` has shape (6, thresholds), in the order of `CURVE_ROWS`."""
    found = np.asarray(rows, np.float64).tolist()
    curve = PrCurve(**dict(zip(CURVE_ROWS, found, strict=True)))
    return Summary.Value(tag=tag, pr_curve=curve)


def reliability_value(
    tag: str, predicted: npt.ArrayLike, observed: npt.ArrayLike, weights: npt.ArrayLike
) -> Summary.Value:
    """Returns a reliability curve; the arguments have shape (groups,)."""
    parts = (np.asarray(each, np.float64).tolist() for each in (predicted, observed, weights))
    names = ("predicted", "observed", "weights")
    return Summary.Value(tag=tag, reliability=Reliability(**dict(zip(names, parts, strict=True))))


def top_ids_value(
    tag: str,
    ids: npt.ArrayLike,
    counts: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
) -> Summary.Value:
    """Returns frequent ids with their counts and the bounds of these, each of shape (k,)."""
    top = TopIds(
        ids=np.asarray(ids).tolist(),
        counts=np.asarray(counts).tolist(),
        low=np.asarray(low).tolist(),
        high=np.asarray(high).tolist(),
    )
    return Summary.Value(tag=tag, top_ids=top)


def buckets_value(tag: str, edges: npt.ArrayLike, counts: npt.ArrayLike) -> Summary.Value:
    """Returns a histogram that was counted in bins already.

    Args:
        tag: Its tag.
        edges: Rising, (n + 1,).
        counts: In each bin, (n,); rounded, because the format has whole numbers.
    """
    borders, heights = np.asarray(edges, np.float64), np.asarray(counts, np.float64)
    whole = np.rint(heights)
    value = Summary.Value(tag=tag)
    histogram = value.histogram
    histogram.count = int(whole.sum())
    histogram.nan_count = histogram.pos_inf_count = histogram.neg_inf_count = 0
    histogram.min, histogram.max = float(borders[0]), float(borders[-1])
    histogram.sum = float(whole @ ((borders[1:] + borders[:-1]) / 2))
    for left, right, count in zip(borders[:-1], borders[1:], whole, strict=True):
        histogram.buckets.add(left=float(left), width=float(right - left), count=int(count))
    return value


def pack_state(into: MetricStates, key: str, kind: str, arrays: Arrays) -> None:
    """Adds a state to a message.

    Args:
        into: The message.
        key: What the state is for.
        kind: The name of its class.
        arrays: Its arrays.
    """
    state = into.states.add(key=key, kind=kind)
    for name, array in arrays.items():
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        data = np.ascontiguousarray(little).tobytes()
        part = state.arrays.add(name=name, dtype=little.dtype.str, shape=array.shape)
        # The fastest level: counts are mostly zero bytes, and the writer's thread has more to do.
        part.deflated = len(data) > _SMALL
        part.data = zlib.compress(data, 1) if part.deflated else data


def unpack_states(message: MetricStates) -> dict[str, tuple[str, dict[str, npt.NDArray[Any]]]]:
    """Returns kind and arrays of each state by its key.

    Raises:
        ValueError: An array is not what it should be.
    """
    return {
        state.key: (state.kind, {part.name: _array(part) for part in state.arrays})
        for state in message.states
    }


def _array(part: MetricStates.Array) -> npt.NDArray[Any]:
    shape = tuple(part.shape)
    try:
        dtype = np.dtype(part.dtype)
    except TypeError as error:
        raise ValueError(three_part("an array's type", part.dtype, "one of numpy's")) from error
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "biufU" or any(each < 0 for each in shape) or size > _LARGEST:
        raise ValueError(three_part(f"the array {part.name!r}", f"{dtype} {shape}", "numbers"))
    data = part.data
    if part.deflated:
        try:
            # No more than is expected: a damaged stream must not fill the memory.
            data = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise ValueError(three_part(f"the array {part.name!r}", str(error), "zlib")) from error
    if len(data) != size:
        raise ValueError(three_part(f"the bytes of {part.name!r}", len(data), f"{size}"))
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))
