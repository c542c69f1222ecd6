"""Pictures of a loss landscape: contours from above, and the surface from the side."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np

from rec_summary.errors import required
from rec_summary.series.text import printable
from rec_summary.tensorboard.dashboards import colours
from rec_summary.tensorboard.dashboards.landscape.mesh import is_wide
from rec_summary.values.landscape import Landscape

_INCHES: Final = (4.95, 3.85)  # small, so that letters are large: TensorBoard shows 350 pixels
_DPI: Final = 160
_LEVELS: Final = 30
_PATH: Final = "#d01515"
_MARK: Final = {"markeredgecolor": "black", "ls": ""}
_LONGEST_LABEL: Final = 60


def contour_picture(landscape: Landscape) -> bytes:
    """Returns a PNG of the loss as contours, with the path of the training.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure, axes = _figure(landscape)
    z, norm = _values(landscape)
    x, y = landscape.x, landscape.y
    has_contours = z.count() and min(z.shape) > 1 and float(z.max()) > float(z.min())
    if has_contours:
        levels = _levels(z, norm)
        filled = axes.contourf(x, y, z, levels=levels, cmap=_map(), norm=norm, extend="both")
        axes.contour(x, y, z, levels=levels[::3], colors="black", linewidths=0.4, alpha=0.5)
        bar = figure.colorbar(filled, ax=axes, label="loss")
        bar.ax.set_yscale("log" if norm is not None else "linear")
    _draw_path(axes, landscape, depth=2)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", framealpha=0.85)
    return _png(figure)


def surface_picture(landscape: Landscape) -> bytes:
    """Returns a PNG of the loss as a surface, with the path of the training.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure, axes = _figure(landscape, projection="3d")
    z, norm = _values(landscape)
    if norm is not None:
        z = np.ma.log10(z)
    x, y = np.meshgrid(landscape.x, landscape.y)
    if z.count() and min(z.shape) > 1:
        style = {"cmap": _map(), "vmin": float(z.min()), "vmax": float(z.max()), "alpha": 0.9}
        axes.plot_surface(x, y, z.filled(np.nan), rcount=100, ccount=100, linewidth=0, **style)
    axes.computed_zorder = False  # otherwise half of the surface hides the path
    _draw_path(axes, landscape, depth=3, log=norm is not None)
    axes.set_zlabel("log10 loss" if norm is not None else "loss")
    axes.view_init(elev=35, azim=-60)
    return _png(figure)


def title(landscape: Landscape) -> str:
    """Returns the title of a picture: the method and the checkpoints."""
    what = _label(landscape.decomposition) or "Loss landscape"
    unit, intervals = _label(landscape.unit) or "checkpoint", landscape.intervals
    if len(intervals) > 1:
        return f"{what}, {unit}s {intervals[0]} to {intervals[-1]}"
    return f"{what}, {unit} {intervals[0]}" if intervals else what


def _label(text: str) -> str:
    """Returns text for a label: short, in one line, not read as a formula."""
    return printable(text[:_LONGEST_LABEL]).replace("$", r"\$")


def _figure(landscape: Landscape, **options: Any) -> tuple[Any, Any]:
    figures = required("matplotlib.figure", "a picture of a loss landscape", "pictures")
    # Not pyplot, which keeps figures and needs a display.
    figure = figures.Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot(**options)
    axes.set(xlabel="direction 1", ylabel="direction 2", title=title(landscape))
    return figure, axes


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        figure.savefig(buffer, format="png", metadata={"Software": None})
    except IndexError as error:  # of matplotlib 3.7, where numbers are close to the largest
        raise ArithmeticError("its numbers are too large to be drawn") from error
    return buffer.getvalue()


def _map() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap(colours.sequential(np.linspace(0, 1, 256)) / 255.0, name="loss")


def _values(landscape: Landscape) -> tuple[Any, Any]:
    """Returns the loss with holes where it is not finite, and how to scale it."""
    from matplotlib.colors import LogNorm

    holes = ~np.isfinite(landscape.z)
    z: Any = np.ma.MaskedArray(landscape.z, mask=holes)  # type: ignore[no-untyped-call]
    return z, LogNorm(float(z.min()), float(z.max())) if is_wide(landscape.z) else None


def _levels(z: Any, norm: Any) -> Any:
    low, high = float(z.min()), float(z.max())
    if norm is not None:
        return np.geomspace(low, high, _LEVELS)
    # Most of a landscape is steep; the interesting part is low.
    return np.unique(low + (high - low) * np.linspace(0, 1, _LEVELS) ** 1.5)


def _draw_path(axes: Any, landscape: Landscape, *, depth: int, log: bool = False) -> None:
    path = landscape.path[np.isfinite(landscape.path).all(axis=1)]
    heights = np.log10(path[:, 2]) if log and (path[:, 2] > 0).all() else path[:, 2]
    columns = [path[:, 0], path[:, 1], heights][:depth]
    if len(path):
        axes.plot(*columns, color=_PATH, marker=".", markersize=4, linewidth=1.5, label="training")
        start = [column[:1] for column in columns]
        axes.plot(*start, color="white", marker="o", label="start", **_MARK)
    if landscape.convergence is not None and np.isfinite(landscape.convergence).all():
        x, y, loss = landscape.convergence
        end = [[x], [y], [np.log10(loss) if log and loss > 0 else loss]][:depth]
        axes.plot(*end, color="gold", marker="*", markersize=13, label="end", **_MARK)
