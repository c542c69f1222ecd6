"""Values of recommender metrics: curves, frequent ids, tables, states of metrics.

`wire` encodes them, because the thread of the writer runs beside the training.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import MetricStates, MetricTable, PrCurve, Reliability, TopIds
from rec_summary.arrays import Array, Arrays
from rec_summary.errors import three_part, verbatim
from rec_summary.records.format import wire
from rec_summary.values.histogram import encode_counted
from rec_summary.values.summary import encode_scalar, encode_value

Columns = Mapping[str, Any]
"""Arrays of one value each, by its tag."""

_SMALL: Final = 256  # bytes; smaller arrays are not compressed
_LARGEST: Final = 1 << 26  # bytes of one array; the size in a file is not trusted
MOST_STATES: Final = 64 << 20
"""Bytes of the arrays of all states in one record."""

CURVE_ROWS: Final = tuple(PrCurve.DESCRIPTOR.fields_by_name)
"""The fields of a `PrCurve`, in the order of TensorBoard's PR curve plugin."""


def recommender_values(
    scalars: Mapping[str, float],
    histograms: Columns,
    pr_curves: Columns,
    reliabilities: Columns,
    tops: Columns,
    tables: Mapping[str, Sequence[Sequence[str]]],
) -> list[bytes]:
    """Returns values by tag, each as the bytes of a `Summary.Value`.

    Args:
        scalars: Numbers.
        histograms: Edges and counts.
        pr_curves: Precision-recall curves.
        reliabilities: Predicted and observed rates, and weights.
        tops: Ids, counts, and lower and upper bounds of the counts.
        tables: Rows of texts of equal length, the first one the header.
    """
    columns = {"pr_curve": pr_curves, "reliability": reliabilities, "top_ids": tops}
    return [
        *(encode_scalar(tag, number) for tag, number in scalars.items()),
        *(
            encode_value(tag, "histogram", encode_counted(*parts))
            for tag, parts in histograms.items()
        ),
        *(
            encode_columns(tag, kind, parts)
            for kind, by_tag in columns.items()
            for tag, parts in by_tag.items()
        ),
        *(encode_table(tag, rows) for tag, rows in tables.items()),
    ]


def encode_columns(tag: str, kind: str, columns: Iterable[npt.ArrayLike]) -> bytes:
    """Returns a value whose message is columns of equal length.

    Args:
        tag: The tag.
        kind: `pr_curve`, `reliability` or `top_ids`.
        columns: The fields of the message, in their order, each of shape (n,).
    """
    content = []
    for field, column in zip(_COLUMNS[kind], columns, strict=True):
        if field.cpp_type == field.CPPTYPE_DOUBLE:
            data = np.asarray(column, "<f8").tobytes()
        else:
            data = wire.packed_varints(np.asarray(column))
        content += [wire.bytes_field(field.number, data)] if data else []
    return encode_value(tag, kind, b"".join(content))


def encode_table(tag: str, rows: Sequence[Sequence[str]]) -> bytes:
    """Returns a table: rows of texts of equal length, the first one the header."""
    content = _TABLE(cells=[cell for row in rows for cell in row], columns=len(rows[0]))
    return encode_value(tag, "metric_table", content)


def encode_state(key: str, kind: str, arrays: Arrays) -> bytes:
    """Returns a state as a field of the bytes of `MetricStates`.

    Args:
        key: The key of the state.
        kind: The name of its class.
        arrays: Its arrays.
    """
    encoded = [encode_array(name, array) for name, array in arrays.items()]
    return _STATES(states=_STATE(key=key, kind=kind, arrays=encoded))


def encode_array(name: str, array: Array) -> bytes:
    """Returns an array as the bytes of `MetricStates.Array`."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = np.ascontiguousarray(little).tobytes()
    # The fastest level: counts are mostly zero bytes, and the thread of the writer is busy.
    deflated = len(data) > _SMALL
    data = zlib.compress(data, 1) if deflated else data
    form = {"name": name, "dtype": little.dtype.str, "shape": array.shape}
    return _ARRAY(**form, data=data, deflated=deflated)


def unpack_states(
    message: MetricStates, most: int | None = None
) -> dict[str, tuple[str, dict[str, Array]]]:
    """Returns kind and arrays of each state by its key.

    Args:
        message: The states.
        most: How many bytes all arrays may take together.

    Raises:
        ValueError: An array is damaged, or all are too large together.
    """
    forms = [_form(part) for state in message.states for part in state.arrays]
    total = sum(math.prod(shape) * dtype.itemsize for dtype, shape in forms)
    if most is not None and total > most:
        received = verbatim(f"{total:,} bytes")
        raise ValueError(three_part("the size of states", received, f"at most {most:,} bytes"))
    return {
        state.key: (state.kind, {part.name: read_array(part) for part in state.arrays})
        for state in message.states
    }


def _form(part: MetricStates.Array) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Returns the checked type and shape of an array."""
    shape = tuple(part.shape)
    try:
        dtype = np.dtype(part.dtype)
    except TypeError as error:
        raise ValueError(three_part("an array's type", part.dtype, "one of numpy's")) from error
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "biufU" or any(length < 0 for length in shape) or size > _LARGEST:
        raise ValueError(three_part(f"the array {part.name!r}", f"{dtype} {shape}", "numbers"))
    return dtype, shape


def read_array(part: MetricStates.Array) -> Array:
    """Returns an array of `encode_array`.

    Raises:
        ValueError: It is damaged, or too large.
    """
    dtype, shape = _form(part)
    size = math.prod(shape) * dtype.itemsize
    data = part.data
    if part.deflated:
        try:
            # Limited, so that a damaged stream does not fill the memory.
            data = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise ValueError(three_part(f"the array {part.name!r}", str(error), "zlib")) from error
    if len(data) != size:
        raise ValueError(three_part(f"the bytes of {part.name!r}", len(data), f"{size}"))
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


_STATES: Final = wire.Fields(MetricStates)
_STATE: Final = wire.Fields(MetricStates.State)
_ARRAY: Final = wire.Fields(MetricStates.Array)
_TABLE: Final = wire.Fields(MetricTable)
_COLUMNS: Final[Mapping[str, Any]] = {
    "pr_curve": PrCurve.DESCRIPTOR.fields,
    "reliability": Reliability.DESCRIPTOR.fields,
    "top_ids": TopIds.DESCRIPTOR.fields,
}
