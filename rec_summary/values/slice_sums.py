"""Sums by slice as a value: those of an interval in a record, and the sum of several records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from rec_summary._pb.summary_pb2 import SliceSums
from rec_summary.arrays import Array, Floats, Integers
from rec_summary.errors import three_part, verbatim
from rec_summary.metrics.slices.gate import Part
from rec_summary.metrics.slices.states import OTHER
from rec_summary.metrics.slices.sums import (
    CELLS,
    FIELDS,
    SERVED_EXAMPLES,
    ColumnSums,
)
from rec_summary.metrics.tags import PREFIX
from rec_summary.records.format import wire
from rec_summary.values.recommender import encode_array, read_array
from rec_summary.values.summary import encode_value

KIND: Final = "slice_sums"
"""The field of `Summary.Value`."""

_SUMS_TAG: Final = PREFIX + "sums"
_ORDERS_TAG: Final = _SUMS_TAG + "/orders"

_OF_ONES: Final = {
    "weight": "examples",
    "weight_squares": "examples",
    "click_squares": "clicks",
    "squared_loss_weights": "loss",
}
"""The fields that are equal to another one if each weight is 1; then they are not recorded."""

_OWN: Final = FIELDS[:SERVED_EXAMPLES]  # of the new scores; the others are an array of their own
_BRIEF: Final = [number for number, name in enumerate(_OWN) if name not in _OF_ONES]
_FULL: Final = [_OWN.index(_OF_ONES.get(name, name)) for name in _OWN]
_NOTHING: Final[Mapping[str, float]] = MappingProxyType({})
_MOST_VALUES: Final = 4097  # of a column: as many as `Slice.most` allows, and all others

_ORDER: Final = 2 * CELLS  # cells of a value: those of non-clicks, and those of clicks


class SlicedSums(NamedTuple):
    """The sums of a task and a column in an interval.

    Attributes:
        task: The name of the task; empty for the unnamed one.
        column: The name of the column; empty for the whole task, which has one value, the empty
            one.
        several: Whether an example may have several values.
        values: The values of the column.
        sums: The sums, (values, len(FIELDS)).
        cells: Where the orders are not 0: places in an array (values, 2, CELLS), ascending. None
            if there are no orders.
        weights: The weights there.
    """

    task: str
    column: str
    several: bool
    values: list[str]
    sums: Floats
    cells: Integers | None
    weights: Floats | None

    @classmethod
    def of(cls, task: str, column: str, several: bool, sums: ColumnSums) -> SlicedSums:
        """Returns sums that were counted."""
        if sums.orders is None:
            return cls(task, column, several, sums.values, sums.sums, None, None)
        flat = sums.orders.reshape(-1)
        cells = np.flatnonzero(flat)
        return cls(task, column, several, sums.values, sums.sums, cells, flat[cells])


def encode_sums(
    after: int, columns: Sequence[SlicedSums], numbers: Mapping[str, float]
) -> list[bytes]:
    """Returns the sums of an interval, and the orders, each as the bytes of a `Summary.Value`.

    They have tags of their own, because the last report of a run may be a second one at its step,
    with the orders only. Numbers are rounded to float32.

    Args:
        after: The step of the report before.
        columns: The sums.
        numbers: Numbers by tag that `why` needs, and that have no curve.
    """
    without = [each._replace(cells=None, weights=None) for each in columns if each.sums.any()]
    orders = [
        each._replace(sums=np.zeros_like(each.sums)) for each in columns if each.cells is not None
    ]
    found = [encode_interval(_SUMS_TAG, after, without)] if without else []
    if orders or numbers:
        found.append(encode_interval(_ORDERS_TAG, after, orders, numbers))
    return found


def encode_interval(
    tag: str, after: int, columns: Sequence[SlicedSums], numbers: Mapping[str, float] = _NOTHING
) -> bytes:
    """Returns sums as the bytes of a `Summary.Value`; its arguments are as of `encode_sums`."""
    content = _SUMS(after=after, columns=list(map(_encoded, columns)), tags=list(numbers))
    if numbers:
        content += _SUMS(numbers=np.array(list(numbers.values()), "<f8").tobytes())
    return encode_value(tag, KIND, content)


def decode_numbers(message: SliceSums) -> dict[str, float]:
    """Returns the numbers by tag; only the first ones if there are not as many as tags."""
    return dict(zip(message.tags, message.numbers, strict=False))


def decode_sums(message: SliceSums) -> list[SlicedSums]:
    """Returns the sums of an interval.

    Raises:
        ValueError: They are damaged.
    """
    return [_decoded(column) for column in message.columns]


def dense_orders(part: SlicedSums) -> Floats:
    """Returns the weights of non-clicks and of clicks by cell, (values, 2, CELLS)."""
    orders = np.zeros(len(part.values) * _ORDER)
    if part.cells is not None:
        orders[part.cells] = part.weights
    return orders.reshape(-1, 2, CELLS)


def added(parts: Sequence[SlicedSums]) -> SlicedSums:
    """Returns the sum of one or more parts of a task and a column.

    If they have too many values together, those with the fewest examples become `other`.
    """
    values = list(dict.fromkeys(value for part in parts for value in part.values))
    row_of = {value: row for row, value in enumerate(values)}
    sums = np.zeros((len(values), len(FIELDS)))
    orders: list[tuple[Integers, Floats]] = []
    for part in parts:
        rows = np.array([row_of[value] for value in part.values], np.intp)
        sums[rows] += part.sums  # a part has a value once
        if part.cells is not None and part.weights is not None:
            at, cell = np.divmod(part.cells, _ORDER)
            orders.append((rows[at] * _ORDER + cell, part.weights))
    if len(values) > _MOST_VALUES:
        own = [row for row in np.argsort(-sums[:, 0], kind="stable") if values[row] != OTHER]
        kept = sorted(own[: _MOST_VALUES - 1])
        to = np.full(len(values), len(kept))
        to[kept] = np.arange(len(kept))
        whole = np.zeros((len(kept) + 1, len(FIELDS)))
        np.add.at(whole, to, sums)
        sums, values = whole, [*(values[row] for row in kept), OTHER]
        orders = [(to[at // _ORDER] * _ORDER + at % _ORDER, weights) for at, weights in orders]
    first = parts[0]
    several = any(part.several for part in parts)
    if not orders:
        return SlicedSums(first.task, first.column, several, values, sums, None, None)
    cells, places = np.unique(np.concatenate([at for at, _ in orders]), return_inverse=True)
    counts = np.concatenate([weight for _, weight in orders])
    weights = np.bincount(places, counts, len(cells)).astype(np.float64)
    return SlicedSums(first.task, first.column, several, values, sums, cells, weights)


def joined(columns: Iterable[SlicedSums]) -> list[SlicedSums]:
    """Returns the sums of each task and column, those that are there several times added up."""
    by_key: dict[tuple[str, str], list[SlicedSums]] = {}
    for each in columns:
        by_key.setdefault((each.task, each.column), []).append(each)
    return [added(parts) if len(parts) > 1 else parts[0] for parts in by_key.values()]


def parts_of(columns: Iterable[SlicedSums]) -> list[Part]:
    """Returns what a gate judges: the sums of each task and column, without orders."""
    without = (each._replace(cells=None, weights=None) for each in columns)
    return [Part(each.task, each.column, each.values, each.sums) for each in joined(without)]


def _encoded(column: SlicedSums) -> bytes:
    sums, served = np.split(column.sums.astype(np.float32), [len(_OWN)], axis=1)
    arrays = []
    if np.array_equal(sums[:, _FULL], sums):
        sums = sums[:, _BRIEF]
    if sums.any():
        arrays.append(encode_array("sums", sums))
    if served.any():
        arrays.append(encode_array("served", served))
    if column.cells is not None and column.weights is not None:
        arrays.append(encode_array("cells", _smallest(np.diff(column.cells, prepend=0))))
        arrays.append(encode_array("weights", _smallest(column.weights)))
    names = {"task": column.task, "column": column.column, "several": column.several}
    return _COLUMN(**names, values=column.values, arrays=arrays)


def _smallest(numbers: Array) -> Array:
    """Returns numbers in as few bytes as integers take, or as float32."""
    if not len(numbers) or ((np.rint(numbers) == numbers).all() and numbers.max() < 2**32):
        return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
    return numbers.astype(np.float32)


def _decoded(column: SliceSums.Column) -> SlicedSums:
    what = f"The sums of {column.column!r}"
    values = list(column.values)
    if len(values) > _MOST_VALUES or len(set(values)) < len(values):
        received = verbatim(f"{len(values):,} values, {len(set(values)):,} of them different")
        raise ValueError(three_part(what, received, f"at most {_MOST_VALUES:,} different ones"))
    if not column.column and values != [""]:
        raise ValueError(three_part(what, values, "the empty value of a whole task"))
    arrays = {part.name: read_array(part) for part in column.arrays}
    sums = np.zeros((len(values), len(_OWN)))
    if "sums" in arrays:
        sums = _numbers(what, arrays["sums"], "f")
    if sums.shape == (len(values), len(_BRIEF)):
        brief = dict(zip(_BRIEF, range(len(_BRIEF)), strict=True))
        sums = sums[:, [brief[number] for number in _FULL]]
    served = np.zeros((len(values), len(FIELDS) - len(_OWN)))
    if "served" in arrays:  # differences may be below 0
        served = _numbers(what, arrays["served"], "f", least=-np.inf)
    for own, width in ((sums, len(_OWN)), (served, len(FIELDS) - len(_OWN))):
        if own.shape != (len(values), width):
            received = verbatim(f"an array {own.shape}")
            raise ValueError(three_part(what, received, "a row for a value"))
    sums = np.concatenate([sums, served], axis=1)
    names = (column.task, column.column, column.several, values, sums)
    if "cells" not in arrays:
        return SlicedSums(*names, None, None)
    steps = _numbers(what, arrays["cells"], "u")
    weights = _numbers(what, arrays.get("weights"), "uf")
    cells = steps.cumsum()
    is_rising = steps.ndim == 1 and bool((steps[1:] > 0).all()) and cells.shape == weights.shape
    if not is_rising or (cells >= len(values) * _ORDER).any():
        raise ValueError(three_part(what, "other cells", "rising ones of its values, with weights"))
    return SlicedSums(*names, cells.astype(np.int64), weights)


def _numbers(what: str, array: Array | None, kinds: str, least: float = 0.0) -> Floats:
    if array is None or array.dtype.kind not in kinds or array.dtype.itemsize > 8:
        raise ValueError(three_part(what, "no such array", "numbers"))
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers < least).any():
        raise ValueError(three_part(what, numbers, f"finite numbers of at least {least:g}"))
    return numbers


_SUMS: Final = wire.Fields(SliceSums)
_COLUMN: Final = wire.Fields(SliceSums.Column)
