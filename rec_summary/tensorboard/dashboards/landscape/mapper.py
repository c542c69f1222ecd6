"""Loss landscapes to the dashboards Mesh, Images and Text."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.series.limits import MOST_PICTURES
from rec_summary.tensorboard.dashboards.images import encoded
from rec_summary.tensorboard.dashboards.landscape.mesh import mesh_points
from rec_summary.tensorboard.dashboards.landscape.pictures import contour_picture, surface_picture
from rec_summary.tensorboard.dashboards.points import Point, ValueMapper
from rec_summary.tensorboard.dashboards.text import table, text_point
from rec_summary.values.landscape import Landscape, from_landscape

SURFACE: Final = "surface"
CONTOUR: Final = "contour"
VIEW: Final = "view"
FACTS: Final = "facts"
_CHANNELS: Final = 4
_LISTED: Final = 1000
_ENDLESS: Final = 2**31 - 1  # what a run without epochs states
_PNG_SIZE: Final = struct.Struct(">II")


class LandscapeMapper(ValueMapper):
    """Maps a landscape to a mesh `<tag>/surface`, the pictures `<tag>/contour` and
    `<tag>/view`, and a table `<tag>/facts`.

    Attributes:
        memory: A number for each landscape that has pictures.
    """

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the points for a value that holds a landscape.

        Raises:
            ValueError: Its parts do not fit each other.
        """
        landscape = from_landscape(value.loss_landscape)
        yield from mesh_points(f"{tag}/{SURFACE}", landscape)
        yield from self._pictures(tag, landscape)
        yield text_point(f"{tag}/{FACTS}", table("", facts(landscape)))

    def _pictures(self, tag: str, landscape: Landscape) -> Iterator[Point]:
        if len(self.memory) >= MOST_PICTURES:
            self.note = f"of the loss landscapes of a run, the first {MOST_PICTURES} get pictures"
            return
        self.memory.add(str(len(self.memory)))
        try:
            for name, draw in ((CONTOUR, contour_picture), (VIEW, surface_picture)):
                data = draw(landscape)
                width, height = _PNG_SIZE.unpack_from(data, 16)
                yield encoded(f"{tag}/{name}", data, height, width, _CHANNELS)
        except ImportError as error:
            self.note = str(error)


def facts(landscape: Landscape) -> Iterator[tuple[str, object]]:
    """Yields names and values of what describes a landscape."""
    yield "plane", landscape.decomposition or "not stated"
    if landscape.explained:
        shares = " and ".join(f"{share:.1%}" for share in landscape.explained)
        yield "explained variance of the path", shares
    if landscape.eigenvalues:
        yield "eigenvalues", " and ".join(f"{value:.6g}" for value in landscape.eigenvalues)
    if landscape.seed is not None:
        yield "seed", landscape.seed
    if landscape.moved:
        yield "parameters that move", f"{landscape.moved:,} ({landscape.selection or 'all'})"
    if landscape.samples:
        yield "samples", f"{landscape.samples:,}"
    unit = landscape.unit or "checkpoint"
    if landscape.intervals:
        yield f"{unit}s", ", ".join(map(str, landscape.intervals[:_LISTED]))
    if 0 < landscape.step_per_epoch < _ENDLESS:
        yield "steps per epoch", landscape.step_per_epoch
    z = landscape.z
    yield "grid", f"{z.shape[1]} × {z.shape[0]} points"
    known = np.isfinite(z)
    if not known.all():
        yield "points without a finite loss", f"{int((~known).sum()):,}"
    if known.any():
        row, column = np.unravel_index(int(np.where(known, z, np.inf).argmin()), z.shape)
        yield (
            "least loss",
            f"{z[row, column]:.6g} at {_place(landscape.x[column], landscape.y[row])}",
        )
        yield "greatest loss", f"{z[known].max():.6g}"
    if len(landscape.path):
        yield "loss at the start of the path", f"{landscape.path[0, 2]:.6g}"
        yield "loss at the end of the path", f"{landscape.path[-1, 2]:.6g}"
    if landscape.convergence is not None:
        x, y, loss = landscape.convergence
        yield "loss where training had converged", f"{loss:.6g} at {_place(x, y)}"


def _place(x: float, y: float) -> str:
    return f"({x:.4g}, {y:.4g})"
