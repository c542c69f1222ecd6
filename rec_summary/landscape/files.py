"""Landscapes as files for other programs: NumPy `.npz`, and VTK for ParaView.

Source: "VTK File Formats", the legacy format, `STRUCTURED_GRID` and `POLYDATA`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from rec_summary.arrays import Floats
from rec_summary.records.files import refuse_link, write_atomically
from rec_summary.values.landscape import Landscape

FORMATS: Final = ("npz", "vtk")


def write_files(
    directory: str, tag: str, landscape: Landscape, formats: Iterable[str]
) -> list[str]:
    """Writes a landscape in other formats; files of the same name are replaced.

    `<tag>.npz` contains x (columns,), y (rows,), z (rows, columns), path (checkpoints, 3), and the
    metadata. `<tag>.vtk` contains the surface, with the loss as the height and as a value of each
    point; `<tag>_path.vtk` contains the path as a line. A point without a finite loss is as high as
    the highest of the others.

    Args:
        directory: The directory of the files; created if it is missing.
        tag: The tag of the landscape, from which the file names are made.
        landscape: The landscape.
        formats: Some of `FORMATS`.

    Returns:
        The paths of the files.

    Raises:
        OSError: A file cannot be written.
    """
    refuse_link(directory)
    os.makedirs(directory, exist_ok=True)
    base = os.path.join(directory, re.sub(r"[\W_]+", "_", tag).strip("_") or "landscape")
    written = []
    if "npz" in formats:
        written.append(_write_arrays(f"{base}.npz", landscape))
    if "vtk" in formats:
        written.append(_write(f"{base}.vtk", _surface(landscape)))
        if len(landscape.path):
            written.append(_write(f"{base}_path.vtk", _path(landscape)))
    return written


def _surface(landscape: Landscape) -> str:
    rows, columns = landscape.z.shape
    x, y = np.meshgrid(landscape.x, landscape.y)
    points = np.stack([x, y, _heights(landscape.z)], axis=-1).reshape(-1, 3)
    dataset = ["DATASET STRUCTURED_GRID", f"DIMENSIONS {columns} {rows} 1"]
    return _vtk("loss surface", dataset, points, [], landscape.z.reshape(-1, 1))


def _path(landscape: Landscape) -> str:
    count, losses = len(landscape.path), landscape.path[:, 2:]
    points = np.hstack([landscape.path[:, :2], _heights(losses)])
    line = [f"LINES 1 {count + 1}", " ".join(map(str, [count, *range(count)]))]
    return _vtk("path of the training", ["DATASET POLYDATA"], points, line, losses)


def _heights(losses: Floats) -> Floats:
    finite = np.isfinite(losses)
    return np.where(finite, losses, losses[finite].max() if finite.any() else 0.0)


def _vtk(title: str, dataset: list[str], points: Floats, cells: list[str], losses: Floats) -> str:
    """Returns a dataset with points, (n, 3), cells and losses, (n, 1), in the legacy format."""
    count = len(points)
    return "\n".join(
        [
            *("# vtk DataFile Version 3.0", title, "ASCII", *dataset),
            *(f"POINTS {count} double", *_lines(points), *cells),
            *(f"POINT_DATA {count}", "SCALARS loss double 1", "LOOKUP_TABLE default"),
            *(*_lines(losses), ""),
        ]
    )


def _lines(points: Floats) -> list[str]:
    return [" ".join(repr(float(number)) for number in point) for point in points]


def _write(path: str, text: str) -> str:
    with write_atomically(path) as file:
        file.write(text.encode("ascii"))
    return path


def _write_arrays(path: str, landscape: Landscape) -> str:
    with write_atomically(path) as file:
        np.savez(
            file,
            x=landscape.x,
            y=landscape.y,
            z=landscape.z,
            path=landscape.path,
            intervals=np.array(landscape.intervals, dtype=np.int64),
            convergence=np.array(landscape.convergence or (np.nan,) * 3),
            explained_variance=np.array(landscape.explained),
            eigenvalues=np.array(landscape.eigenvalues),
            method=np.array(landscape.decomposition),
        )
    return path
