"""Loss landscapes: the mesh, the pictures, the table."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tensorboard.plugins.mesh import metadata, plugin_data_pb2

from rec_summary.tensorboard.dashboards.colours import sequential
from rec_summary.tensorboard.dashboards.landscape.mapper import LandscapeMapper, facts
from rec_summary.tensorboard.dashboards.landscape.mesh import is_wide, landscape_mesh
from rec_summary.tensorboard.dashboards.landscape.pictures import (
    contour_picture,
    surface_picture,
    title,
)
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.values.landscape import Landscape, from_landscape
from tests.support import event_files
from tests.support.landscape_cases import landscape, landscape_value
from tests.support.record_dirs import event, write_segment

SIZES = st.integers(1, 6)
NUMBERS = st.floats(width=32)


@st.composite
def landscapes(draw: Any) -> Landscape:
    rows, columns = draw(SIZES), draw(SIZES)

    def array(*shape: int) -> Any:
        count = math.prod(shape)
        return np.array(draw(st.lists(NUMBERS, min_size=count, max_size=count))).reshape(shape)

    end = draw(st.none() | st.tuples(NUMBERS, NUMBERS, NUMBERS))
    path = array(draw(st.integers(0, 4)), 3)
    return Landscape(array(columns), array(rows), array(rows, columns), path, convergence=end)


def areas(mesh: Any) -> Any:
    corners = mesh.vertices[mesh.faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    return np.linalg.norm(normal, axis=1)


def test_every_point_of_the_grid_is_a_vertex_and_every_cell_two_faces() -> None:
    found = from_landscape(landscape(rows=12, columns=9, path=0))
    mesh = landscape_mesh(found)
    # and two points without a face, which move the camera back
    assert mesh.vertices.shape == mesh.colours.shape == (12 * 9 + 2, 3)
    assert mesh.faces.max() == 12 * 9 - 1
    assert len(mesh.faces) == 2 * 11 * 8
    assert areas(mesh).min() > 0
    assert len({tuple(sorted(face)) for face in mesh.faces.tolist()}) == len(mesh.faces)


def test_the_lowest_loss_is_the_darkest_vertex() -> None:
    found = from_landscape(landscape(path=0))
    lightness = landscape_mesh(found).colours[: found.z.size].sum(axis=1)
    assert lightness.argmin() == found.z.argmin()
    assert lightness.argmax() == found.z.argmax()


def test_points_without_a_loss_are_holes() -> None:
    whole = landscape_mesh(from_landscape(landscape(path=0)))
    holed = landscape_mesh(from_landscape(landscape(path=0, hole=True)))
    assert len(whole.faces) - len(holed.faces) == 2 * 9  # 2 × 2 points are corners of 3 × 3 cells
    assert np.isfinite(holed.vertices).all()


def test_the_path_and_its_ends_are_in_the_same_mesh() -> None:
    bare = landscape_mesh(from_landscape(landscape(path=0)))
    mesh = landscape_mesh(from_landscape(landscape(path=5)))
    added = len(mesh.vertices) - len(bare.vertices)
    assert added == 5 * 6 + 2 * 42
    colours = {tuple(colour) for colour in mesh.colours[len(bare.vertices) - 2 :].tolist()}
    assert len(colours) == 3


def test_losses_of_different_magnitudes_are_shown_as_logarithms() -> None:
    narrow, wide = (from_landscape(landscape(wide=wide, path=0)) for wide in (False, True))
    assert (is_wide(narrow.z), is_wide(wide.z)) == (False, True)
    np.testing.assert_allclose(landscape_mesh(narrow).vertices, landscape_mesh(wide).vertices)


def test_losses_at_the_ends_of_the_numbers_are_shown() -> None:
    """Their difference is greater than any number, and so is the path's distance from them."""
    axis, least = np.array([0.0, 1.0]), float(np.finfo(np.float64).min)
    for z, top in (([[least, 0.0], [0.0, -least]], 3), ([[0.0, 1e-300], [1e-300, 2e-300]], 3)):
        path = np.array([[0.0, 0.0, -least]])
        with np.errstate(all="raise", under="ignore"):
            mesh = landscape_mesh(Landscape(axis, axis, np.array(z), path))
        assert len(mesh.faces) > 2
        lightness = mesh.colours[:4].sum(axis=1).tolist()
        assert lightness[0] < lightness[1] == lightness[2] < lightness[top]


def test_a_large_grid_fits_the_indices_of_the_page() -> None:
    mesh = landscape_mesh(from_landscape(landscape(rows=400, columns=500, path=3000)))
    assert len(mesh.vertices) <= 65_535
    assert mesh.faces.max() < len(mesh.vertices)


@settings(deadline=None)
@given(landscapes())
def test_any_landscape_makes_a_mesh(found: Landscape) -> None:
    mesh = landscape_mesh(found)
    assert np.isfinite(mesh.vertices).all()
    assert np.abs(mesh.vertices).max() < 4
    assert not len(mesh.faces) or mesh.faces.max() < len(mesh.vertices)


@settings(deadline=None, max_examples=15)
@given(landscapes())
def test_any_landscape_makes_pictures_and_a_table(found: Landscape) -> None:
    for draw in (contour_picture, surface_picture):
        assert Image.open(io.BytesIO(draw(found))).size == (792, 616)
    assert dict(facts(found))["grid"]


def test_pictures_are_the_same_each_time() -> None:
    found = from_landscape(landscape(hole=True))
    assert contour_picture(found) == contour_picture(found)
    assert surface_picture(found) == surface_picture(found)


def test_the_path_can_be_seen_in_both_pictures() -> None:
    with_path, without = (from_landscape(landscape(path=path)) for path in (5, 0))
    for draw in (contour_picture, surface_picture):
        pixels = np.asarray(Image.open(io.BytesIO(draw(with_path))).convert("RGB")).astype(int)
        red = (pixels[..., 0] > 180) & (pixels[..., 1] < 60) & (pixels[..., 2] < 60)
        assert red.sum() > 200
        assert draw(without) != draw(with_path)


def test_points_of_the_mapper() -> None:
    points = {point.tag: point for point in LandscapeMapper()("l", landscape_value(hole=True))}
    assert list(points) == [
        *("l/surface_VERTEX", "l/surface_FACE", "l/surface_COLOR"),
        *("l/contour", "l/view", "l/facts"),
    ]
    for name, kind in plugin_data_pb2.MeshPluginData.ContentType.items():
        if name in ("VERTEX", "FACE", "COLOR"):
            point = points[f"l/surface_{name}"]
            parsed = metadata.parse_plugin_metadata(point.plugin.metadata.plugin_data.content)
            assert (parsed.name, parsed.content_type, parsed.components) == ("l/surface", kind, 14)
            shape = [dim.size for dim in point.value.tensor.tensor_shape.dim]
            assert list(parsed.shape) == shape == [1, shape[1], 3]
    text = points["l/facts"].value.tensor.string_val[0].decode()
    assert "| plane | PCA |" in text
    assert "| points without a finite loss | 4 |" in text


def test_without_matplotlib_only_the_pictures_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write_segment(tmp_path / "records" / "run", event(1, landscape_value("l")))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    tags = [value.tag for _, _, value in event_files.values(tmp_path / "logs" / "run")]
    assert tags == ["l/surface_VERTEX", "l/surface_FACE", "l/surface_COLOR", "l/facts"]
    [note] = report.notes
    assert "pip install 'rec_summary[pictures]'" in note


def test_titles() -> None:
    assert title(from_landscape(landscape(path=5))) == "PCA, steps 1 to 5"
    assert title(from_landscape(landscape(path=0, decomposition="Random"))) == "Random"


@pytest.mark.parametrize(("x", "y"), [(0.8, 0.7), (-0.8, 0.7), (0.8, -0.7), (-0.8, -0.7)])
def test_a_minimum_is_at_its_true_place_in_the_contour(x: float, y: float) -> None:
    """Darkest is least; to the right is along x, upwards along y."""
    axis = np.linspace(-1, 1, 41)
    grid_x, grid_y = np.meshgrid(axis, axis)
    bowl = (grid_x - x) ** 2 + (grid_y - y) ** 2
    found = Landscape(axis, axis, bowl, np.zeros((0, 3)))
    pixels = np.asarray(Image.open(io.BytesIO(contour_picture(found))).convert("RGB")).astype(int)
    inner = pixels[46:536, 126:604]  # without the frame and the bar of colours
    distance = np.abs(inner - sequential(0.0).astype(int)).sum(axis=2)
    rows, columns = np.nonzero(distance <= distance.min() + 3)
    place = columns.mean() / inner.shape[1], rows.mean() / inner.shape[0]
    # The frame may move the axes by a tenth, not by half.
    assert place == pytest.approx(((x + 1) / 2, (1 - y) / 2), abs=0.15)
