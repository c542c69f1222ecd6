"""A loss landscape as a mesh: the surface, the path of the training, and its end.

The Mesh dashboard shows one mesh of at most 65,535 vertices (its indices have 16 bits). So the
path is a tube in the same mesh, a little above the surface. Its y axis points upwards.
Source: `tensorboard/plugins/mesh/plugin_data.proto`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.mesh import plugin_data_pb2

from rec_summary.arrays import Bytes, Floats
from rec_summary.tensorboard.dashboards import colours
from rec_summary.tensorboard.dashboards.points import Point, plugin, tensor_value
from rec_summary.values.landscape import Landscape

_MOST_PER_SIDE: Final = 220  # 48,400 vertices leave room for the path
_MOST_OF_PATH: Final = 1000
_HEIGHT: Final = 1.1  # of the surface, which is 2 wide and 2 deep
_LIFT: Final = 0.015  # of the path above the surface
_RADIUS: Final = 0.012
_SIDES: Final = 6
_BALL: Final = 0.035
_PATH: Final = (230, 30, 30)
_START: Final = (255, 255, 255)
_END: Final = (255, 200, 0)
_ANGLE: Final = math.radians(38)
_COS, _SIN = math.cos(_ANGLE), math.sin(_ANGLE)
_TILT: Final = np.array([[1, 0, 0], [0, _COS, -_SIN], [0, _SIN, _COS]])
_IN_VIEW: Final = np.array([[-1.4, -1.4, -1.4], [1.4, 1.4, 1.4]])
_WIDE: Final = 50.0  # with a greater ratio of the greatest to the least loss, logarithms are shown

_CONFIG: Final = json.dumps(
    {
        "camera": {"cls": "PerspectiveCamera", "fov": 60},
        "lights": [
            {"cls": "AmbientLight", "color": "#ffffff", "intensity": 0.85},
            {
                "cls": "DirectionalLight",
                "color": "#ffffff",
                "intensity": 0.45,
                "position": [1, 3, 2],
            },
        ],
        # The surface is visible from below as well (2 is three.js's DoubleSide).
        "material": {"cls": "MeshStandardMaterial", "roughness": 0.9, "metalness": 0, "side": 2},
    },
    sort_keys=True,
)


class Mesh(NamedTuple):
    """A mesh: positions (n, 3), triangles as indices (m, 3), red, green and blue (n, 3)."""

    vertices: Floats
    faces: npt.NDArray[np.int32]
    colours: Bytes


def is_wide(z: Floats) -> bool:
    """Whether losses differ so much that their logarithms are shown."""
    finite = z[np.isfinite(z)]
    return bool(finite.size) and 0 < float(finite.min()) * _WIDE < float(finite.max())


def mesh_points(tag: str, landscape: Landscape) -> Iterator[Point]:
    """Yields the three series of a mesh: vertices, faces and colours."""
    mesh = landscape_mesh(landscape)
    kind = plugin_data_pb2.MeshPluginData
    parts = (
        ("VERTEX", kind.VERTEX, mesh.vertices.astype("<f4")),
        ("FACE", kind.FACE, mesh.faces.astype("<i4")),
        ("COLOR", kind.COLOR, mesh.colours),
    )
    metadata = kind(version=0, name=tag, json_config=_CONFIG)
    metadata.components = sum(1 << part for _, part, _ in parts)
    for name, part, array in parts:
        metadata.content_type = part
        metadata.shape[:] = (1, *array.shape)
        owner = plugin("mesh", summary_pb2.DATA_CLASS_TENSOR, metadata.SerializeToString())
        yield Point(f"{tag}_{name}", owner, tensor_value(array[None]))


def landscape_mesh(landscape: Landscape) -> Mesh:
    """Returns the mesh of a landscape, in a box of 2 by 1.1 by 2 around the origin.

    The box is tilted towards the viewer, because the page shows a mesh from the front.
    """
    rows, columns = (_choice(size) for size in landscape.z.shape)
    z = landscape.z[np.ix_(rows, columns)]
    frame = _Frame(landscape)
    x, y = landscape.x[columns], landscape.y[rows]
    parts = [_surface(_spread(x, *frame.x), _spread(y, *frame.y), frame.heights(z))]
    path = landscape.path[_choice(len(landscape.path), _MOST_OF_PATH)]
    path = path[np.isfinite(path).all(axis=1)]
    if len(path):
        line = frame.place(path)
        parts.append(_tube(line))
        parts.append(_ball(line[0], _START))
    end = landscape.convergence
    if end is not None and all(map(math.isfinite, end)):
        parts.append(_ball(frame.place(np.array([end]))[0], _END))
    mesh = _joined(parts)
    # The page moves the camera back until all points are in view, and does not draw what is too
    # near. Two points without a face make it move back far enough.
    vertices = np.concatenate([mesh.vertices @ _TILT.T, _IN_VIEW])
    return Mesh(vertices, mesh.faces, np.concatenate([mesh.colours, _plain(2, _START)]))


class _Frame:
    """Scales coordinates into the box."""

    def __init__(self, landscape: Landscape) -> None:
        self._log = is_wide(landscape.z)
        self.x = _range(landscape.x)
        self.y = _range(landscape.y)
        self._z = _range(self._scaled(landscape.z))

    def heights(self, z: Floats) -> Floats:
        """Returns heights from 0 to 1."""
        z = self._scaled(z)
        return np.where(np.isfinite(z), np.clip(_share(z, *self._z), 0, 1), math.nan)

    def place(self, points: Floats) -> Floats:
        """Returns points of the path, shape (n, 3), above the surface."""
        x, y = _spread(points[:, 0], *self.x), _spread(points[:, 1], *self.y)
        height = np.nan_to_num(self.heights(points[:, 2])) * _HEIGHT - _HEIGHT / 2 + _LIFT
        return np.stack([x, height, y], axis=1)

    def _scaled(self, z: Floats) -> Floats:
        if not self._log:
            return z
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(z)


def _spread(values: Floats, low: float, width: float) -> Floats:
    """Returns coordinates from -1 to 1; those of the path may be up to 1.5."""
    return np.clip(_share(values, low, width), -0.25, 1.25) * 2 - 1


def _share(values: Floats, low: float, width: float) -> Floats:
    """Returns where values are in a range: 0 at its lower end, 1 at its upper end."""
    with np.errstate(over="ignore"):  # of values that are very far outside
        share: Floats = (values / 2 - low) / width
    return share


def _range(values: Floats) -> tuple[float, float]:
    """Returns half of the least finite value, and how much greater half of the greatest is.

    The difference of the whole ones may be greater than the greatest number.
    """
    halves = values[np.isfinite(values)] / 2
    if not halves.size:
        return 0.0, 0.5
    low = float(halves.min())
    return low, float(halves.max()) - low or 0.5


def _choice(size: int, most: int = _MOST_PER_SIDE) -> npt.NDArray[np.intp]:
    """Returns indices at even distances, the first and the last among them."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.intp))


def _surface(x: Floats, y: Floats, share: Floats) -> Mesh:
    rows, columns = share.shape
    finite = np.isfinite(share)
    grid_x, grid_y = np.meshgrid(np.nan_to_num(x), np.nan_to_num(y))
    height = np.where(finite, share, 0.0) * _HEIGHT - _HEIGHT / 2
    vertices = np.stack([grid_x, height, grid_y], axis=-1).reshape(-1, 3)
    index = np.arange(rows * columns).reshape(rows, columns)
    corners = [index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]]
    complete = finite[:-1, :-1] & finite[:-1, 1:] & finite[1:, :-1] & finite[1:, 1:]
    a, b, c, d = (corner[complete] for corner in corners)
    faces = np.concatenate([np.stack([a, c, b], axis=1), np.stack([b, c, d], axis=1)])
    return Mesh(vertices, faces.astype(np.int32), colours.sequential(share).reshape(-1, 3))


def _tube(line: Floats) -> Mesh:
    """Returns a tube along a line of points, shape (n, 3)."""
    ahead = np.gradient(line, axis=0) if len(line) > 1 else np.array([[1.0, 0.0, 0.0]])
    # A direction that is not parallel to the line gives two at right angles to it.
    up = np.where(np.abs(ahead[:, 1:2]) > np.abs(ahead[:, :1]), [[1.0, 0, 0]], [[0, 1.0, 0]])
    side = _unit(np.cross(ahead, up))
    other = _unit(np.cross(ahead, side))
    angles = np.arange(_SIDES) * 2 * math.pi / _SIDES
    cosine, sine = np.cos(angles)[None, :, None], np.sin(angles)[None, :, None]
    ring = cosine * side[:, None] + sine * other[:, None]
    vertices = (line[:, None] + _RADIUS * ring).reshape(-1, 3)
    index = np.arange(len(line) * _SIDES).reshape(len(line), _SIDES)
    faces = np.concatenate(_between(index)).astype(np.int32)
    return Mesh(vertices, faces, _plain(len(vertices), _PATH))


def _ball(centre: Floats, colour: tuple[int, int, int]) -> Mesh:
    """Returns a small ball: rings of latitude between two poles."""
    latitudes = np.linspace(-math.pi / 2, math.pi / 2, 7)[1:-1]
    latitude, angle = np.meshgrid(latitudes, np.arange(8) * math.pi / 4, indexing="ij")
    radius, height = np.cos(latitude), np.sin(latitude)
    rings = np.stack([radius * np.cos(angle), height, radius * np.sin(angle)], axis=-1)
    poles = [[0, -1.0, 0], [0, 1.0, 0]]
    vertices = centre + _BALL * np.concatenate([rings.reshape(-1, 3), poles])
    index = np.arange(40).reshape(5, 8)
    caps = [
        np.stack([index[0], np.roll(index[0], -1), np.full(8, 40)], axis=-1),
        np.stack([np.roll(index[-1], -1), index[-1], np.full(8, 41)], axis=-1),
    ]
    faces = np.concatenate([*_between(index), *caps])
    return Mesh(vertices, faces.astype(np.int32), _plain(len(vertices), colour))


def _between(rings: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
    """Returns the triangles between rings of vertices, given by their indices, (rings, sides)."""
    here, there = rings[:-1], rings[1:]
    after_here, after_there = np.roll(here, -1, axis=1), np.roll(there, -1, axis=1)
    corners = (here, there, after_here), (after_here, there, after_there)
    return [np.stack(corner, axis=-1).reshape(-1, 3) for corner in corners]


def _joined(parts: list[Mesh]) -> Mesh:
    starts = np.cumsum([0, *(len(part.vertices) for part in parts)])
    faces = [part.faces + start for part, start in zip(parts, starts, strict=False)]
    vertices, _, colour = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Mesh(vertices, np.concatenate(faces).astype(np.int32), colour)


def _plain(count: int, colour: tuple[int, int, int]) -> Bytes:
    return np.full((count, 3), colour, dtype=np.uint8)


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: Floats = vectors / np.where(length > 0, length, 1)
    return result
