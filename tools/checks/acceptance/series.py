"""Under which names, on which dashboards, recorded values are to be found.

This is the one place of this tool that knows the names which the export gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb import anf_ir_pb2
from tools.checks.acceptance.records import RecordedRun, Records, Value

NON_FINITE: Final = ("nan_count", "pos_inf_count", "neg_inf_count")
STATISTICS: Final = "statistics"
HEAT_MAP: Final = "heat_map"
SURFACE: Final = "surface"
CONTOUR: Final = "contour"
VIEW: Final = "view"
FACTS: Final = "facts"
RATES: Final = "points"
FREQUENT: Final = "top_ids"
LINEAGE: Final = "lineage"
GRAPH: Final = "graph"
DATASET_GRAPH: Final = "dataset_graph"

_LANDSCAPE: Final = ((SURFACE, "mesh"), (CONTOUR, "images"), (VIEW, "images"), (FACTS, "text"))
_RESERVED: Final = "_hparams_/"
_EXACT: Final = ("int32_data", "int64_data", "double_data", "uint64_data")


@dataclass(frozen=True)
class Point:
    """A place where something of a recorded value is to be seen.

    Attributes:
        dashboard: TensorBoard's plugin.
        run: The TensorBoard run.
        tag: The name that is shown.
        part: What of the value it is: a name from above, or nothing for the value itself.
        value: The recorded value.
    """

    dashboard: str
    run: str
    tag: str
    part: str
    value: Value

    @property
    def key(self) -> tuple[str, str, int]:
        """Run, tag and step."""
        return (self.run, self.tag, self.value.step)


def points(records: Records, dashboard: str) -> list[Point]:
    """Returns all points that a dashboard is to show."""
    return [
        point
        for run in records
        for point in _points(run, _Names())
        if point.dashboard == dashboard and not point.value.superseded
    ]


def lineage_tags(run: RecordedRun) -> dict[str, str]:
    """Returns the tag of the lineage's text by TensorBoard run: values have theirs first."""
    names = _Names()
    for _ in _points(run, names):
        pass
    with_lineage = [rank for rank in run.ranks if rank.has_lineage]
    homes = [run.name if index == 0 else rank.run for index, rank in enumerate(with_lineage)]
    return {home: names.give(home, LINEAGE, "text", LINEAGE) for home in homes}


def array(tensor: Any) -> npt.NDArray[Any] | None:
    """Returns a recorded tensor; None if its numbers do not fit its shape."""
    name = anf_ir_pb2.DataType.Name(tensor.data_type).removeprefix("DT_").lower()
    exact = [getattr(tensor, field) for field in _EXACT if getattr(tensor, field)]
    numbers = np.array(exact[0] if exact else tensor.float_data)
    if math.prod(tensor.dims) != numbers.size:
        return None
    with np.errstate(invalid="ignore"):
        return numbers.astype(name).reshape(tuple(tensor.dims))


def _points(run: RecordedRun, names: _Names) -> Iterator[Point]:
    begun: set[tuple[str, str, str]] = set()
    for value in run.values:
        for part, dashboard in _parts(value, begun):
            tag = value.message.tag
            wanted = f"{tag}/{part}" if part else tag
            shown = names.give(value.run, wanted, dashboard, value.kind)
            yield Point(dashboard, value.run, shown, part, value)


def _parts(value: Value, begun: set[tuple[str, str, str]]) -> Iterator[tuple[str, str]]:
    message = value.message
    if value.kind == "scalar_value":
        yield "", "scalars"
    elif value.kind == "image" and message.image.encoded_image:
        yield "", "images"
    elif value.kind == "loss_landscape":
        yield from _LANDSCAPE
    elif value.kind == "pr_curve":
        yield "", "pr_curves"
    elif value.kind == "reliability":
        yield from (("", "images"), (RATES, "text"))
    elif value.kind == "top_ids":
        yield "", "text"
    elif value.kind == "histogram":
        yield "", "histograms"
        counts = {name: getattr(message.histogram, name) for name in NON_FINITE}
        yield from _counts(value, counts, begun)
    elif value.kind == "tensor" and (numbers := array(message.tensor)) is not None:
        if numbers.size == 1:
            yield "", "scalars"
            return
        yield "", "histograms"
        yield from _counts(value, non_finite(numbers), begun)
        yield STATISTICS, "text"
        if numbers.ndim == 2 and numbers.size:
            yield HEAT_MAP, "images"


def non_finite(numbers: npt.NDArray[Any]) -> dict[str, int]:
    """Returns how many elements are no finite numbers, and which of these."""
    wide = numbers.astype(np.float64)
    found = (np.isnan(wide), np.isposinf(wide), np.isneginf(wide))
    return {name: int(each.sum()) for name, each in zip(NON_FINITE, found, strict=True)}


def _counts(
    value: Value, counts: dict[str, int], begun: set[tuple[str, str, str]]
) -> Iterator[tuple[str, str]]:
    """Yields the counts that are shown: from the first one on that is not zero."""
    for name, count in counts.items():
        series = (value.run, f"{value.kind} {value.message.tag}", name)
        if count:
            begun.add(series)
        if series in begun:
            yield name, "scalars"


class _Names:
    """Gives each series a tag of its own: the first one to want it has it."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str, str, str], str] = {}

    def give(self, run: str, wanted: str, dashboard: str, kind: str) -> str:
        series = (run, wanted, dashboard, kind)
        if series not in self._given:
            taken = {name for (other, *_), name in self._given.items() if other == run}
            name = wanted
            if name in taken or name.startswith(_RESERVED):
                name = f"{name}/{dashboard}"
            while name in taken:
                name += "_"
            self._given[series] = name
        return self._given[series]
