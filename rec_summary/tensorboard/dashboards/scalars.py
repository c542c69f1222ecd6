"""Scalars to the Scalars and Time Series dashboards."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard.compat.proto import summary_pb2 as tensorboard_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards.points import SCALARS, Point, ValueMapper


class ScalarMapper(ValueMapper):
    """Maps a scalar to itself; NaN and infinities are values of a loss like any other."""

    plugin = SCALARS

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the point for a value that holds a scalar."""
        yield scalar(tag, value.scalar_value)


def scalar(tag: str, number: float) -> Point:
    """Returns a point of a scalar series; TensorBoard keeps it as a float32."""
    return Point(tag, SCALARS, tensorboard_pb2.Summary.Value(simple_value=number))
