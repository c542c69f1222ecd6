"""Loss landscapes to the dashboards Mesh, Images and Text."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.series.limits import MOST_PICTURES
from rec_summary.tensorboard.dashboards.images import picture
from rec_summary.tensorboard.dashboards.landscape.mesh import mesh_points
from rec_summary.tensorboard.dashboards.landscape.pictures import contour_picture, surface_picture
from rec_summary.tensorboard.dashboards.points import Point, ValueMapper
from rec_summary.tensorboard.dashboards.text import table, text_point
from rec_summary.values.landscape import Landscape, from_landscape

SURFACE: Final = "surface"
CONTOUR: Final = "contour"
VIEW: Final = "view"
FACTS: Final = "facts"
_LISTED: Final = 1000
_ENDLESS: Final = 2**31 - 1  # steps per epoch of a run without epochs


class LandscapeMapper(ValueMapper):
    """Maps a landscape to a mesh, two pictures and a table.

    They are `<tag>/surface`, `<tag>/contour` and `<tag>/view`, and `<tag>/facts`.

    Attributes:
        memory: A number for each landscape that has pictures.
    """

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the points for a value that holds a landscape.

        Raises:
            ValueError: The sizes of its parts differ, or there is no surface.
        """
        landscape = from_landscape(value.loss_landscape)
        yield from mesh_points(f"{tag}/{SURFACE}", landscape)
        yield from self._pictures(tag, landscape)
        yield text_point(f"{tag}/{FACTS}", table("", facts(landscape).items()))

    def _pictures(self, tag: str, landscape: Landscape) -> Iterator[Point]:
        if len(self.memory) >= MOST_PICTURES:
            self.note = f"of the loss landscapes of a run, the first {MOST_PICTURES} get pictures"
            return
        self.memory.add(str(len(self.memory)))
        for name, draw in ((CONTOUR, contour_picture), (VIEW, surface_picture)):
            yield picture(f"{tag}/{name}", functools.partial(draw, landscape))


def facts(landscape: Landscape) -> dict[str, object]:
    """Returns the facts about a landscape by name; None where one is not known."""
    z, unit = landscape.z, landscape.unit or "checkpoint"
    finite = np.isfinite(z)
    entries: dict[str, object] = {
        "plane": landscape.decomposition or "not stated",
        "explained variance of the path": _joined(f"{share:.1%}" for share in landscape.explained),
        "eigenvalues": _joined(f"{value:.6g}" for value in landscape.eigenvalues),
        "seed": landscape.seed,
        "parameters that move": None,
        "samples": f"{landscape.samples:,}" if landscape.samples else None,
        f"{unit}s": ", ".join(map(str, landscape.intervals[:_LISTED])) or None,
        "steps per epoch": None,
        "grid": f"{z.shape[1]} × {z.shape[0]} points",
        "points without a finite loss": None if finite.all() else f"{int((~finite).sum()):,}",
    }
    if landscape.moved:
        selection = landscape.selection or "all"
        entries["parameters that move"] = f"{landscape.moved:,} ({selection})"
    if 0 < landscape.step_per_epoch < _ENDLESS:
        entries["steps per epoch"] = landscape.step_per_epoch
    if finite.any():
        row, column = np.unravel_index(int(np.where(finite, z, np.inf).argmin()), z.shape)
        least = (landscape.x[column], landscape.y[row], z[row, column])
        entries["least loss"] = _loss_at(*least)
        entries["greatest loss"] = f"{z[finite].max():.6g}"
    if len(landscape.path):
        entries["loss at the start of the path"] = f"{landscape.path[0, 2]:.6g}"
        entries["loss at the end of the path"] = f"{landscape.path[-1, 2]:.6g}"
    if landscape.convergence is not None:
        entries["loss where training had converged"] = _loss_at(*landscape.convergence)
    return entries


def _joined(texts: Iterable[str]) -> str | None:
    return " and ".join(texts) or None


def _loss_at(x: float, y: float, loss: float) -> str:
    return f"{loss:.6g} at ({x:.4g}, {y:.4g})"
