"""Scalars to the Scalars and Time Series dashboards."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tensorboard.compat.proto import summary_pb2 as tensorboard_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards.points import SCALARS, Point, ValueMapper
from rec_summary.tensorboard.tag_groups import overview


class ScalarMapper(ValueMapper):
    """Maps a scalar to itself; NaN and infinities are values of a loss like any other.

    The most important metrics are shown in the overview besides.
    """

    plugin = SCALARS

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the points for a value that holds a scalar."""
        for shown_tag in scalar_tags(tag):
            yield scalar(shown_tag, value.scalar_value)

    def shows_more(self, tag: str) -> bool:
        """Whether the overview has the tag."""
        return len(scalar_tags(tag)) > 1


@functools.lru_cache(1024)
def scalar_tags(tag: str) -> tuple[str, ...]:
    """Returns the tags of the points that are made of a scalar recorded under `tag`."""
    return tuple(shown_tag for shown_tag in (tag, overview(tag)) if shown_tag is not None)


def scalar(tag: str, number: float) -> Point:
    """Returns a point of a scalar series; TensorBoard keeps it as a float32."""
    return Point(tag, SCALARS, tensorboard_pb2.Summary.Value(simple_value=number))
