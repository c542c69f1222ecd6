"""What the dashboards must show of recorded values, and under which tags."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb import anf_ir_pb2
from rec_summary.tensorboard.tag_groups import grouped

from .recorded import Value

CURVE: Final = (
    *("true_positives", "false_positives", "true_negatives", "false_negatives"),
    *("precision", "recall"),
)
_NON_FINITE: Final = ("nan_count", "pos_inf_count", "neg_inf_count")
_PARTS: Final = {  # of values that are always shown in the same places: part and dashboard
    "scalar_value": (("", "scalars"),),
    "loss_landscape": (
        *(("surface", "mesh"), ("contour", "images")),
        *(("view", "images"), ("facts", "text")),
    ),
    "pr_curve": (("", "pr_curves"),),
    "reliability": (("", "images"), ("points", "text")),
    "top_ids": (("", "text"),),
    "metric_table": (("", "text"),),
}
_EXACT: Final = ("int32_data", "int64_data", "double_data", "uint64_data")

Items = dict[str, list[tuple[tuple[Any, ...], Any]]]
"""For each dashboard, pairs of a key, such as run, tag and step, and a value."""


@dataclass(frozen=True)
class Point:
    """A place where a recorded value is shown: the plugin, the tag, and which part of it."""

    dashboard: str
    tag: str
    part: str
    value: Value


@dataclass(frozen=True)
class Distribution:
    """How values are distributed.

    Attributes:
        wall_time: Seconds since the epoch.
        count: How many finite values there are.
        bounds: The least and the greatest one; empty if there are none.
        buckets: Left edge, right edge and count; None if they are not recorded.
    """

    wall_time: float
    count: float
    bounds: tuple[float, ...]
    buckets: tuple[tuple[float, float, float], ...] | None


@dataclass(frozen=True)
class Picture:
    """A picture: its bytes; None for one that is drawn, and then whether it has one colour."""

    wall_time: float
    data: bytes | None
    is_plain: bool = False


def expected(values: Iterable[Value]) -> Items:
    """Returns what must be shown, by dashboard."""
    makers = {
        "scalars": lambda point: (point.value.wall_time, _number(point)),
        "histograms": _distribution,
        "images": _picture,
        "pr_curves": lambda point: (point.value.wall_time, _curve(point)),
    }
    items: Items = {name: [] for name in makers}
    for point in points(values):
        if point.dashboard in makers and not point.value.superseded:
            key = (point.value.run, point.tag, point.value.step)
            items[point.dashboard].append((key, makers[point.dashboard](point)))
    # Two dashboards show the same again.
    items["distributions"] = items["histograms"]
    items["time_series"] = [
        ((name, *key), value)
        for name in ("scalars", "histograms", "images")
        for key, value in items[name]
    ]
    return items


def points(values: Iterable[Value]) -> Iterator[Point]:
    """Yields where values are shown; superseded ones too, because they have had their tags."""
    given: dict[tuple[str, str, str, str], str] = {}
    begun: set[tuple[str, str, str, str]] = set()
    for value in values:
        for part, dashboard in _parts(value, begun):
            wanted = f"{value.message.tag}/{part}" if part else value.message.tag
            series = (value.run, wanted, dashboard, value.kind)
            if series not in given:
                # The first series that wants a tag has it.
                taken = {tag for (run, *_), tag in given.items() if run == value.run}
                tag = grouped(wanted)
                if tag in taken or tag.startswith("_hparams_/"):
                    tag = f"{tag}/{dashboard}"
                while tag in taken:
                    tag += "_"
                given[series] = tag
            yield Point(dashboard, given[series], part, value)


def _parts(value: Value, begun: set[tuple[str, str, str, str]]) -> Iterator[tuple[str, str]]:
    message = value.message
    yield from _PARTS.get(value.kind, ())
    counts: dict[str, int] = {}
    if value.kind == "image" and message.image.encoded_image:
        yield "", "images"
    elif value.kind == "histogram":
        yield "", "histograms"
        counts = {name: getattr(message.histogram, name) for name in _NON_FINITE}
    elif value.kind == "tensor" and (numbers := _array(message.tensor)) is not None:
        if numbers.size == 1:
            yield "", "scalars"
            return
        yield "", "histograms"
        counts = _non_finite(numbers)
    for name, count in counts.items():  # each is shown from its first number above zero on
        series = (value.run, value.kind, message.tag, name)
        if count:
            begun.add(series)
        if series in begun:
            yield name, "scalars"
    if value.kind == "tensor":
        yield "statistics", "text"
        if numbers is not None and numbers.ndim == 2 and numbers.size:
            yield "heat_map", "images"


def _array(tensor: Any) -> npt.NDArray[Any] | None:
    """Returns a recorded tensor; None if its numbers do not fit its shape."""
    name = anf_ir_pb2.DataType.Name(tensor.data_type).removeprefix("DT_").lower()
    exact = [getattr(tensor, field) for field in _EXACT if getattr(tensor, field)]
    numbers = np.array(exact[0] if exact else tensor.float_data)
    if math.prod(tensor.dims) != numbers.size:
        return None
    with np.errstate(invalid="ignore"):
        return numbers.astype(name).reshape(tuple(tensor.dims))


def _non_finite(numbers: npt.NDArray[Any]) -> dict[str, int]:
    wide = numbers.astype(np.float64)
    masks = (np.isnan(wide), np.isposinf(wide), np.isneginf(wide))
    return {name: int(mask.sum()) for name, mask in zip(_NON_FINITE, masks, strict=True)}


def _number(point: Point) -> float:
    """Returns a scalar: TensorBoard has them as float32."""
    message = point.value.message
    if point.value.kind == "scalar_value":
        return float(message.scalar_value)
    if point.value.kind == "histogram":
        return float(np.float32(getattr(message.histogram, point.part)))
    numbers = _array(message.tensor)
    assert numbers is not None  # otherwise it has no points
    number = _non_finite(numbers)[point.part] if point.part else numbers.reshape(-1)[0]
    return float(np.float32(number))


def _distribution(point: Point) -> Distribution:
    value, message = point.value, point.value.message
    if value.kind == "tensor":
        numbers = _array(message.tensor)
        assert numbers is not None  # otherwise it has no points
        wide = numbers.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        bounds = (float(finite.min()), float(finite.max())) if finite.size else ()
        return Distribution(value.wall_time, float(finite.size), bounds, None)
    histogram = message.histogram
    edges = [[b.left, b.left + b.width, float(b.count)] for b in histogram.buckets if b.count]
    if edges:
        # The outermost values are known better than by the edges of their buckets.
        edges[0][0], edges[-1][1] = histogram.min, histogram.max
    return distribution(value.wall_time, edges)


def distribution(wall_time: float, buckets: Iterable[Any]) -> Distribution:
    """Returns a distribution of buckets: left edge, right edge and count of each, in order."""
    filled = tuple((float(a), float(b), float(count)) for a, b, count in buckets if count)
    bounds = (filled[0][0], filled[-1][1]) if filled else ()
    return Distribution(wall_time, sum(count for *_, count in filled), bounds, filled)


def _picture(point: Point) -> Picture:
    value = point.value
    if value.kind == "image":
        return Picture(value.wall_time, value.message.image.encoded_image)
    matrix = _array(value.message.tensor) if point.part == "heat_map" else None
    is_plain = matrix is not None and np.unique(matrix).size == 1
    return Picture(value.wall_time, None, is_plain)


def _curve(point: Point) -> list[list[float]]:
    """Returns a curve as the page has it: whole counts, and no end where nothing is predicted."""
    curve = point.value.message.pr_curve
    rows = np.array([list(getattr(curve, name)) for name in CURVE], np.float32)
    rows[:4] = np.trunc(rows[:4])
    some = np.flatnonzero(rows[0] + rows[1])
    return rows[:, : some[-1] + 1 if some.size else 1].tolist()
