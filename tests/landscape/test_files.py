from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rec_summary.landscape.files import write_files
from rec_summary.landscape.options import Options
from rec_summary.landscape.summary_landscape import SummaryLandscape
from rec_summary.values.landscape import from_landscape
from tests.support.landscape_cases import landscape
from tests.support.quadratic import Maker, write_run


def test_npz_has_the_arrays(tmp_path: Path) -> None:
    found = from_landscape(landscape(hole=True))
    [path] = write_files(str(tmp_path), "landscape_[1, 5]", found, ["npz"])
    assert Path(path).name == "landscape_1_5.npz"
    with np.load(path, allow_pickle=False) as arrays:
        for name in ("x", "y", "z", "path"):
            np.testing.assert_array_equal(arrays[name], getattr(found, name))
        assert str(arrays["method"]) == "PCA"
        assert arrays["intervals"].tolist() == [1, 2, 3, 4, 5]


def numbers(lines: list[str]) -> np.ndarray:
    return np.array([[float(number) for number in line.split()] for line in lines])


def test_vtk_has_points_and_losses(tmp_path: Path) -> None:
    found = from_landscape(landscape(rows=4, columns=3, path=5))
    surface, path = write_files(str(tmp_path), "l", found, ["vtk"])
    lines = Path(surface).read_text().splitlines()
    assert lines[0] == "# vtk DataFile Version 3.0"
    assert lines[3:6] == ["DATASET STRUCTURED_GRID", "DIMENSIONS 3 4 1", "POINTS 12 double"]
    points = numbers(lines[6:18])
    np.testing.assert_array_equal(points[:, 2].reshape(4, 3), found.z)
    np.testing.assert_array_equal(points[:3, 0], found.x)
    np.testing.assert_array_equal(points[::3, 1], found.y)
    assert lines[18] == "POINT_DATA 12"
    np.testing.assert_array_equal(numbers(lines[21:33])[:, 0], found.z.reshape(-1))
    lines = Path(path).read_text().splitlines()
    np.testing.assert_array_equal(numbers(lines[5:10]), found.path)
    assert lines[10:12] == ["LINES 1 6", "5 0 1 2 3 4"]


def test_what_is_not_finite_is_as_high_as_the_highest_point(tmp_path: Path) -> None:
    found = from_landscape(landscape(rows=4, columns=3, path=2))
    found.z[1, 1], found.z[2, 1], found.path[0, 2] = np.nan, np.inf, np.inf
    highest = found.z[np.isfinite(found.z)].max()
    surface, path = write_files(str(tmp_path), "l", found, ["vtk"])
    heights = numbers(Path(surface).read_text().splitlines()[6:18])[:, 2].reshape(4, 3)
    assert heights[1, 1] == heights[2, 1] == heights.max() == highest
    line = numbers(Path(path).read_text().splitlines()[5:7])
    assert line[0, 2] == line[1, 2] == found.path[1, 2]


def test_they_are_written_on_request(tmp_path: Path) -> None:
    metadata = write_run(tmp_path / "run")
    options = Options(engine="sequential", files=("npz", "vtk"))
    SummaryLandscape(tmp_path / "run").compute(Maker(), metadata, options)
    names = {path.name for path in (tmp_path / "run" / "landscape").iterdir() if path.is_file()}
    assert names == {
        *("landscape_1_6.npz", "landscape_1_6.vtk", "landscape_1_6_path.vtk"),
        *("landscape_6.npz", "landscape_6.vtk"),
    }


def test_formats_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="one of 'npz', 'vtk'"):
        Options(files=("stl",))
