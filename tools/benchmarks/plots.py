"""Pictures of how something grows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INK, _GRID = "#1f4e79", "#d9d9d9"


@dataclass(frozen=True)
class Panel:
    """One curve.

    Attributes:
        label: Of its axis, with the unit.
        values: For each size on the other axis, the values of all rounds.
    """

    label: str
    values: Sequence[Sequence[float]]


def draw(path: Path, axis: str, sizes: Sequence[int], panels: Sequence[Panel]) -> None:
    """Draws curves side by side, each with the band that its values span.

    Args:
        path: The PNG file.
        axis: What grows.
        sizes: The sizes that were measured.
        panels: What was measured at each size.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure = Figure(figsize=(3.6 * len(panels), 2.9), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for plot, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        middle = [statistics.median(values) for values in panel.values]
        low, high = ([pick(values) for values in panel.values] for pick in (min, max))
        plot.fill_between(sizes, low, high, color=INK, alpha=0.2, linewidth=0)
        plot.plot(sizes, middle, color=INK, marker="o", markersize=4)
        plot.set_xlim(0, 1.08 * max(sizes))
        plot.set_xticks(sizes)
        plot.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        plot.xaxis.set_minor_locator(NullLocator())
        plot.set_ylim(0, 1.08 * max(high))
        plot.set_xlabel(axis)
        plot.set_title(panel.label, fontsize=10, loc="left")
        tidied(plot)
    figure.savefig(path, metadata={"Software": None})


def tidied(plot: Any) -> None:
    """Makes axes plain: a pale grid, small numbers, no frame."""
    plot.grid(axis="y", color=_GRID, linewidth=0.6)
    plot.set_axisbelow(True)
    plot.tick_params(labelsize=8)
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)


def _short(value: float) -> str:
    """Returns a number as it fits below an axis: 2500 becomes 2.5k."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:.3g}M"
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"
