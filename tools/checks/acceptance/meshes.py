"""The Mesh dashboard: the surface of every landscape, and the training's path on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tools.checks.acceptance import series
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "mesh"

Floats = npt.NDArray[np.float64]

_PARTS: Final = {1: ("VERTEX", "<f4"), 2: ("FACE", "<i4"), 3: ("COLOR", "<u1")}
_NEAR: Final = 0.05  # of a surface that is 2 wide: how far a path's tube is from its path


@dataclass(frozen=True)
class Surface:
    """A recorded landscape: the grid's points and the path's, shapes (n, 3) and (m, 3)."""

    wall_time: float
    rows: int
    columns: int
    grid: Floats
    path: Floats


@dataclass(frozen=True)
class Mesh:
    """What TensorBoard shows: arrays of three columns by the names of their parts."""

    wall_time: float
    parts: dict[str, npt.NDArray[Any]]


def expected(records: Records) -> Items:
    """Yields landscapes by run, tag and step."""
    for point in series.points(records, "mesh"):
        recorded = point.value.message.loss_landscape
        x, y = (np.array(getattr(recorded.landscape, name).float_data) for name in "xy")
        z = np.array(recorded.landscape.z.float_data)
        grid_x, grid_y = np.meshgrid(x, y)
        grid = np.stack([grid_x.reshape(-1), grid_y.reshape(-1), z], axis=1)
        columns = [getattr(recorded.loss_path.points, name).float_data for name in "xyz"]
        path = np.array(columns, dtype=np.float64).T.reshape(-1, 3)
        yield point.key, Surface(point.value.wall_time, y.size, x.size, grid, path)


def shown(server: TensorBoardServer) -> Items:
    """Yields meshes by run, tag and step."""
    for run, tags in server.get("plugin/mesh/tags").items():
        for tag in tags:
            found: dict[int, Mesh] = {}
            for each in server.get("plugin/mesh/meshes", run=run, tag=tag):
                mesh = found.setdefault(each["step"], Mesh(each["wall_time"], {}))
                name, dtype = _PARTS[each["content_type"]]
                place = {"run": run, "tag": tag, "step": str(each["step"]), "sample": "0"}
                data = server.fetch_query("plugin/mesh/data", content_type=name, **place)
                mesh.parts[name] = np.frombuffer(data, dtype).reshape(-1, 3)
            yield from (((run, tag, step), mesh) for step, mesh in found.items())


def same(expected: Surface, shown: Mesh) -> bool:
    """Whether the first vertices are the grid, turned and stretched; faces join its
    neighbours; and where the path goes there is something else.
    """
    if expected.wall_time != shown.wall_time or set(shown.parts) != {"VERTEX", "FACE", "COLOR"}:
        return False
    vertices, faces = shown.parts["VERTEX"], shown.parts["FACE"]
    size = len(expected.grid)
    if len(shown.parts["COLOR"]) != len(vertices) or len(vertices) < size:
        return False
    if faces.min() < 0 or faces.max() >= len(vertices):
        return False
    if _squares(faces[(faces < size).all(axis=1)], expected.columns) != (
        (expected.rows - 1) * (expected.columns - 1)
    ):
        return False
    for losses in (lambda points: points, _logarithms):
        known = np.isfinite(losses(expected.grid)).all(axis=1)
        inputs = _with_one(losses(expected.grid[known]))
        surface = vertices[:size][known]
        turn = np.linalg.lstsq(inputs, surface, rcond=None)[0]
        if np.abs(inputs @ turn - surface).max() < 1e-4:
            places = _with_one(losses(expected.path)) @ turn
            return all(_is_near(place, vertices[size:]) for place in places)
    return False


def _squares(faces: npt.NDArray[Any], columns: int) -> int:
    """Returns how many squares of a grid two different triangles fill."""
    corners = {tuple(sorted(map(int, face))) for face in faces}
    low = [a for a, _, c in corners if c - a in (columns, columns + 1)]
    return len(corners) // 2 if len(low) == len(corners) else -1


def _is_near(place: Floats, vertices: npt.NDArray[Any]) -> bool:
    return bool(len(vertices) and np.linalg.norm(vertices - place, axis=1).min() < _NEAR)


def _logarithms(points: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.column_stack([points[:, :2], np.log(points[:, 2])])


def _with_one(points: Floats) -> Floats:
    return np.column_stack([points, np.ones(len(points))])
