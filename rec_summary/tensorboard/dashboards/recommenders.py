"""What only recommenders record: to the PR Curves, Images and Text dashboards."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from PIL import Image, ImageDraw
from tensorboard.compat.proto import summary_pb2 as tensorboard_pb2
from tensorboard.plugins.pr_curve import plugin_data_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import three_part
from rec_summary.metrics.slices.report import sum_of_weights
from rec_summary.records.format.limits import MOST_ENTRIES
from rec_summary.tensorboard.dashboards.images import picture
from rec_summary.tensorboard.dashboards.points import Point, ValueMapper, plugin, tensor_value
from rec_summary.tensorboard.dashboards.text import grid, table, text_point
from rec_summary.values.recommender import CURVE_ROWS

POINTS: Final = "points"
_SIDE, _MARGIN = 360, 36  # pixels of the picture
_GREY, _BLUE, _PALE = (150, 150, 150), (31, 105, 180), (215, 226, 240)
_DOT: Final = 4
_NAMED: Final = 3  # numbers in a message
_CURVE_NOTE: Final = (
    "The points are even in recall. The thresholds in the tooltip are not theirs: TensorBoard"
    " computes them as even in the score, from the number of points."
)


class PrCurveMapper(ValueMapper):
    """Maps a precision-recall curve to the dashboard of that name.

    Source: `tensorboard/plugins/pr_curve`: a tensor of shape (6, thresholds). The dashboard takes
    thresholds to be even from 0 to 1, and has no place for others; the description says so.
    """

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the point for a value that holds a curve.

        Raises:
            ValueError: Its rows differ in length, or are too short.
        """
        rows = [list(getattr(value.pr_curve, name)) for name in CURVE_ROWS]
        sizes = {len(row) for row in rows}
        if len(sizes) != 1 or min(sizes) < 2:
            raise ValueError(
                three_part("the length of its rows", sorted(sizes), "one length, at least 2")
            )
        data = np.array(rows, "<f4")
        content = plugin_data_pb2.PrCurvePluginData(version=0, num_thresholds=data.shape[1])
        owner = plugin("pr_curves", tensorboard_pb2.DATA_CLASS_TENSOR, content.SerializeToString())
        owner.metadata.summary_description = _CURVE_NOTE
        yield Point(tag, owner, tensor_value(data))


class ReliabilityMapper(ValueMapper):
    """Maps a reliability curve to a picture, and to a table `<tag>/points`."""

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the points for a value that holds such a curve.

        Raises:
            ValueError: Its columns differ in length, or are empty or not finite.
        """
        curve = value.reliability
        columns = np.array(_equal(curve.predicted, curve.observed, curve.weights))
        if not columns.size or not np.isfinite(columns).all():
            received = columns[~np.isfinite(columns)][:_NAMED].tolist()
            expected = "finite numbers, one or more"
            raise ValueError(three_part("the content of its columns", received, expected))
        yield picture(tag, functools.partial(reliability_picture, columns))
        rows = [(f"{p:.6g}", f"{o:.6g}", sum_of_weights(n)) for p, o, n in columns.T[:MOST_ENTRIES]]
        points = grid([("predicted", "observed", "examples"), *rows])
        yield text_point(f"{tag}/{POINTS}", "\n".join(points))


class TopIdsMapper(ValueMapper):
    """Maps the most frequent ids to a table in Text."""

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the point for a value that holds ids.

        Raises:
            ValueError: Its columns differ in length.
        """
        top = value.top_ids
        columns = _equal(top.ids, top.counts, top.low, top.high)
        yield text_point(tag, table("", _frequencies(zip(*columns, strict=True))))


class MetricTableMapper(ValueMapper):
    """Maps a table of texts to a table in Text."""

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the point for a value that holds a table.

        Raises:
            ValueError: Its rows are not equally long.
        """
        cells, width = list(value.metric_table.cells), value.metric_table.columns
        if width < 1 or not cells or len(cells) % width:
            expected = "whole rows, one or more"
            raise ValueError(three_part("its cells", f"{len(cells)} in {width} columns", expected))
        starts = range(0, min(len(cells), width * MOST_ENTRIES), width)
        yield text_point(tag, "\n".join(grid([cells[at : at + width] for at in starts])))


def reliability_picture(columns: Any) -> Image.Image:
    """Returns a picture: observed over predicted click rate, and how many examples each group has.

    Args:
        columns: Predicted rates, observed rates and weights, (3, groups).
    """
    predicted, observed, weights = columns
    most = max(float(predicted.max()), float(observed.max()), 1e-9)
    reach = _SIDE - 2 * _MARGIN
    canvas = Image.new("RGB", (_SIDE, _SIDE), "white")
    draw = ImageDraw.Draw(canvas)

    def place(x: float, y: float) -> tuple[float, float]:
        return _MARGIN + x / most * reach, _SIDE - _MARGIN - y / most * reach

    for x, weight in zip(predicted, weights / weights.max(), strict=True):
        left, base = place(float(x), 0.0)
        draw.rectangle((left - 5, base - 0.3 * reach * float(weight), left + 5, base), fill=_PALE)
    draw.rectangle((*place(0, most), *place(most, 0)), outline=_GREY)
    draw.line((*place(0, 0), *place(most, most)), fill=_GREY)
    line = [place(float(x), float(y)) for x, y in zip(predicted, observed, strict=True)]
    if len(line) > 1:
        draw.line(line, fill=_BLUE, width=2)
    for x, y in line:
        draw.ellipse((x - _DOT, y - _DOT, x + _DOT, y + _DOT), fill=_BLUE)
    heading = "observed over predicted click rate; bars: examples"
    draw.text((_MARGIN, _MARGIN - 16), heading, fill="black")
    draw.text((_MARGIN - 8, _SIDE - _MARGIN + 8), "0", fill="black")
    draw.text((_SIDE - _MARGIN - 24, _SIDE - _MARGIN + 8), f"{most:.3g}", fill="black")
    return canvas


def _frequencies(rows: Any) -> Iterator[tuple[str, object]]:
    for rank, (number, count, low, high) in enumerate(rows, 1):
        bounds = "" if low == high else f" ({low:,.0f} to {high:,.0f})"
        yield f"{rank}. id {number}", f"{count:,.0f}{bounds}"


def _equal(*columns: Any) -> list[list[Any]]:
    equal = [list(column) for column in columns]
    if len({len(column) for column in equal}) != 1:
        raise ValueError(
            three_part("the length of its columns", [len(c) for c in equal], "one length")
        )
    return equal
