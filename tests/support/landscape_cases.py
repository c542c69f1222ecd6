"""Loss landscapes for the tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rec_summary._pb.summary_pb2 import LossLandscape, Summary
from rec_summary.values.tensor import to_tensor


def landscape(
    *,
    rows: int = 12,
    columns: int = 9,
    wide: bool = False,
    hole: bool = False,
    path: int = 5,
    decomposition: str = "PCA",
) -> LossLandscape:
    """Returns a bowl with the path of a training into it.

    Args:
        rows: How many points the second direction has.
        columns: How many points the first direction has.
        wide: Whether losses differ by orders of magnitude.
        hole: Whether some are not known.
        path: How many checkpoints the path has.
        decomposition: What the record says of the method.
    """
    x, y = np.linspace(-2, 3, columns), np.linspace(-1, 1.5, rows)
    z = _loss(*np.meshgrid(x, y), wide)
    if hole:
        z[2:4, 3:5] = math.nan
    message = LossLandscape()
    _fill(message.landscape, x, y, z)
    share = np.linspace(0, 1, path)
    track = 2.5 - 2.5 * share, 1.2 * (1 - share) ** 2
    heights = _loss(*track, wide)
    if path:
        _fill(message.loss_path.points, *track, heights)
        message.loss_path.intervals.extend(range(1, path + 1))
        _fill(message.convergence_point, track[0][-1:], track[1][-1:], heights[-1:])
    message.metadata.decomposition = decomposition
    message.metadata.unit = "step"
    message.metadata.step_per_epoch = 10
    return message


def landscape_value(tag: str = "landscape", **options: Any) -> Summary.Value:
    """Returns a landscape as a value of a summary."""
    return Summary.Value(tag=tag, loss_landscape=landscape(**options))


def _loss(x: Any, y: Any, wide: bool) -> Any:
    z = 0.3 + 0.2 * (x - 0.5) ** 2 + 0.6 * (y + 0.1 * x) ** 2
    return np.exp(4 * z) if wide else z


def _fill(points: Any, x: Any, y: Any, z: Any) -> None:
    for name, array in zip("xyz", (x, y, z), strict=True):
        getattr(points, name).CopyFrom(to_tensor(array))
