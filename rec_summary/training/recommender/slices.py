"""`Slice`: a column by whose values metrics are split, and the names of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import check_elements, check_int, check_part_of_tag, check_that, check_type
from rec_summary.errors import three_part, verbatim
from rec_summary.metrics.hashing import hashed
from rec_summary.metrics.slices.states import Slicing
from rec_summary.metrics.tables.seen import SeenCounts
from rec_summary.metrics.tags import OF_SLICES
from rec_summary.training.recommender.columns import Source, check_source, columns_of

MISSING: Final = "missing"
"""The slice of examples without a value."""

_NAMES: Final = "a dict of str by int"
_METRICS: Final = "a sequence of one name of a metric or more, such as 'auc' or 'ndcg_at_10'"
_NEW: Final = ("new", "known")


@dataclass(frozen=True)
class Slice:
    """A column by whose values the metrics of each task are split.

    `RecommenderMetrics(slices={"country": ("context", 3), "age": Slice("age", edges=(18, 30))})`.

    Integers and strings are values. Floats need `edges`, between which they are in ranges, or
    `names`, for which they are rounded to integers. A matrix has several values for each example,
    which counts in the slice of each.

    Attributes:
        column: Where the column is, as in `RecommenderMetrics.features`.
        edges: Ascending numbers at which ranges begin.
        new: In place of its value, whether an id is new: whether this rank has seen it fewer than
            this many times before, 1 to 255. The slices are `new` and `known`.
        names: The names of integers, such as ``{0: "female", 1: "male"}``. With `edges`, those of
            ranges by their number, from 0; with `new`, those of new and of known ids, such as
            ``{0: "cold", 1: "warm"}``.
        missing: The number that stands for no value. In a matrix it fills up rows. NaN stands for
            it as well.
        shown: The most frequent values, which have tags of their own.
        most: The number of values that are counted one by one: if there are more, the most
            frequent ones of the first examples. All others are the slice `other`.
        metrics: The metrics of a slice that have tags: any that judges predictions, such as
            ``"log_loss"``, ``"gauc"`` or ``"ndcg_at_10"``.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    column: Source
    edges: Sequence[float] = ()
    new: int = 0
    names: Mapping[int, str] = field(default_factory=dict)
    missing: float | None = None
    shown: int = 8
    most: int = 64
    metrics: Sequence[str] = OF_SLICES

    def __post_init__(self) -> None:
        """Checks the options."""
        check_source("column", self.column)
        expected = "ascending finite numbers"
        edges = check_elements("edges", self.edges, (int, float), expected)
        if any(not math.isfinite(edge) for edge in edges) or list(edges) != sorted(set(edges)):
            raise ValueError(three_part("edges", self.edges, expected))
        object.__setattr__(self, "edges", edges)
        check_int("new", self.new, 0, 255)
        check_that(not (self.new and edges), "new", self.new, "0 for a slice with edges")
        check_type("names", self.names, Mapping, _NAMES)
        object.__setattr__(self, "names", dict(self.names))
        for number, name in self.names.items():
            check_type("names", number, int, _NAMES)
            check_type("names", name, str, _NAMES)
        check_type("missing", self.missing, (int, float, type(None)), "a number or None")
        check_int("shown", self.shown, 0)
        check_int("most", self.most, 1, 4096)
        object.__setattr__(self, "metrics", check_elements("metrics", self.metrics, str, _METRICS))
        check_that(self.metrics, "metrics", self.metrics, _METRICS)


def check_slices(slices: Mapping[str, Any]) -> dict[str, Slice]:
    """Returns slices by name; places become a `Slice`.

    Raises:
        TypeError: One is neither a `Slice` nor a place.
        ValueError: A name or a place is invalid.
    """
    for name in slices:
        check_part_of_tag("a name of slices", name)
    return columns_of("slices", slices, Slice)


def slicing(options: Slice, values: Array, seen: SeenCounts | None) -> Slicing:
    """Returns the slices of examples.

    Args:
        options: The slice.
        values: The column, (examples,) or (examples, values).
        seen: The ids that were seen, which counts these; None without `Slice.new`.

    Raises:
        ValueError: The column has another shape, or is of a type that needs other options.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in (1, 2):
        shape = verbatim(f"an array of shape {values.shape}")
        raise ValueError(three_part("a column of slices", shape, "one or two dimensions"))
    flat = values.reshape(-1)
    if flat.dtype.kind == "O":
        flat = flat.astype(np.str_)
    missing = np.zeros(len(flat), np.bool_)
    if flat.dtype.kind == "f":
        # Of ids, infinity and what is beyond all integers is none either.
        missing = np.isnan(flat) if seen is None else ~(np.abs(flat) < 2.0**63)
    if options.missing is not None and flat.dtype.kind in "iubf":
        missing |= flat == options.missing
    if options.edges and flat.dtype.kind not in "iubf":
        raise ValueError(three_part("a column of slices with edges", flat.dtype, "numbers"))
    if seen is not None:
        codes = np.zeros(len(flat), np.int64)
        codes[~missing] = seen.add(hashed(flat[~missing]).astype(np.int64)) >= options.new
        keys: list[Any] = [0, 1]
        name_of: Callable[[Any], str] = _NEW.__getitem__
    else:
        if flat.dtype.kind == "f" and not options.edges:
            missing |= np.isinf(flat)
            expected = "integers or strings; floats need `edges`, or `names` of integers"
            check_that(options.names, "a column of slices", flat.dtype, expected)
            flat = np.rint(np.where(missing, 0, flat)).astype(np.int64)
        value_keys, name_of = _keyed(flat, options.edges)
        unique, codes = np.unique(value_keys, return_inverse=True)
        codes, keys = codes.reshape(-1), unique.tolist()
    names = [options.names.get(key) or name_of(key) for key in keys]
    # A row of several values is filled up with missing ones.
    codes = np.where(missing, len(names) if values.ndim == 1 else -1, codes)
    return Slicing(codes.astype(np.intp).reshape(values.shape), [*names, MISSING])


def _keyed(flat: Array, edges: Sequence[float]) -> tuple[Array, Callable[[Any], str]]:
    """Returns a key of each value, and how a key is named."""
    if edges:
        ends = [-math.inf, *edges, math.inf]
        ranges = np.searchsorted(edges, flat, side="right")
        return ranges, lambda number: _range(ends[number], ends[number + 1])
    if flat.dtype.kind == "S":
        flat = np.char.decode(flat, "utf-8", "replace")
    return flat, _text


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()


def _range(low: float, high: float) -> str:
    if low == -math.inf:
        return f"below {high:.12g}"
    if high == math.inf:
        return f"from {low:.12g}"
    return f"{low:.12g} to {high:.12g}"
