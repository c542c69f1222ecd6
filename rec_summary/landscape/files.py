"""Landscapes as files for other programs: NumPy's `.npz`, and VTK's for ParaView.

Source: "VTK File Formats", the legacy format, `STRUCTURED_GRID` and `POLYDATA`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.records.files import refuse_link, write_atomically
from rec_summary.values.landscape import Landscape

FORMATS: Final = ("npz", "vtk")


def write_files(
    directory: str, tag: str, landscape: Landscape, formats: Iterable[str]
) -> list[str]:
    """Writes a landscape in other formats; files of the same name are replaced.

    `<tag>.npz` has x (columns,), y (rows,), z (rows, columns), path (checkpoints, 3), and the
    facts. `<tag>.vtk` has the surface, with the loss as height and as a value of each point;
    `<tag>_path.vtk` the path as a line.

    Args:
        directory: Where to; made if need be.
        tag: What the files are called.
        landscape: The landscape.
        formats: Some of `FORMATS`.

    Returns:
        The files.

    Raises:
        OSError: They cannot be written.
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
    points = np.stack([x, y, np.nan_to_num(landscape.z)], axis=-1).reshape(-1, 3)
    return "\n".join(
        [
            *_header("loss surface", "STRUCTURED_GRID"),
            f"DIMENSIONS {columns} {rows} 1",
            f"POINTS {rows * columns} double",
            *_lines(points),
            f"POINT_DATA {rows * columns}",
            "SCALARS loss double 1",
            "LOOKUP_TABLE default",
            *_lines(landscape.z.reshape(-1, 1)),
            "",
        ]
    )


def _path(landscape: Landscape) -> str:
    count = len(landscape.path)
    return "\n".join(
        [
            *_header("path of the training", "POLYDATA"),
            f"POINTS {count} double",
            *_lines(landscape.path),
            f"LINES 1 {count + 1}",
            " ".join(map(str, [count, *range(count)])),
            f"POINT_DATA {count}",
            "SCALARS loss double 1",
            "LOOKUP_TABLE default",
            *_lines(landscape.path[:, 2:]),
            "",
        ]
    )


def _header(title: str, kind: str) -> list[str]:
    return ["# vtk DataFile Version 3.0", title, "ASCII", f"DATASET {kind}"]


def _lines(points: npt.NDArray[np.float64]) -> list[str]:
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
