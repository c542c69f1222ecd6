"""Pictures of scalars: all runs in one picture, a panel for each tag. Needs matplotlib."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import DestinationError, RecSummaryError, three_part, verbatim
from rec_summary.records.files import write_atomically
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR
from rec_summary.series.options import ArgumentError, Selection, tags_named
from rec_summary.series.report import Report
from rec_summary.series.sampling import RunSampler
from rec_summary.series.text import printable
from rec_summary.series.values import finished

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = ("png", "svg", "pdf")
X: Final = ("step", "time", "relative")
LOG: Final = ("none", "x", "y", "both")
MOST_PANELS: Final = 16
_PANELS: Final = 6  # of a picture for which no tags were chosen
_IMPORTANT: Final = (
    (tags_named("loss"), 1),
    (r"\Arecommender/auc/", 1),
    (r"\Arecommender/calibration/", 1),
    (tags_named("learning_rate"), 1),
    (r"\Aeval/", 2),
    (r"(?i)\A(?!rec_summary/|recommender/).*(?:loss|auc)", 2),
)
_HEALTH: Final = "rec_summary/"
_LEGEND: Final = 20  # lines; the names of more lines are not readable
_MOST_POINTS: Final = 20_000  # of a line; more cannot be distinguished, and make files huge
_MOST_PIXELS: Final = 20_000

Array = npt.NDArray[np.float64]


class NothingToPlot(RecSummaryError):
    """No scalars were found, or more than a picture can hold."""


@dataclass(frozen=True)
class PlotOptions:
    """How a picture looks.

    Attributes:
        x: The horizontal axis: `step`, `time` (UTC), or `relative` (hours since the
            first value of a line).
        smooth: The weight of earlier values, from 0 (no smoothing) to below 1; the exponential
            moving average of TensorBoard. The values themselves are drawn pale behind.
        log: Which axes are logarithmic.
        width: The picture's width, in inches.
        height: Its height, in inches.
        dpi: Pixels for each inch, in a PNG.
        title: The title; None for no title.
    """

    x: str = "step"
    smooth: float = 0.0
    log: str = "none"
    width: float = 8.0
    height: float = 5.0
    dpi: int = 120
    title: str | None = None

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            ArgumentError: A value is invalid.
        """
        for name, choices in (("x", X), ("log", LOG)):
            if getattr(self, name) not in choices:
                expected = f"one of {', '.join(choices)}"
                raise ArgumentError(three_part(name, getattr(self, name), expected))
        if not 0 <= self.smooth < 1:
            raise ArgumentError(three_part("smooth", self.smooth, "a number from 0 to below 1"))
        for name in ("width", "height"):
            if not 1 <= getattr(self, name) <= 100:
                expected = "from 1 to 100 inches"
                raise ArgumentError(three_part(name, getattr(self, name), expected))
        if self.dpi < 1 or self.dpi * max(self.width, self.height) > _MOST_PIXELS:
            expected = f"an int of at least 1, so that no side has more than {_MOST_PIXELS} pixels"
            raise ArgumentError(three_part("dpi", self.dpi, expected))


@dataclass(frozen=True)
class Line:
    """A series to draw; all arrays have the shape (values,).

    Attributes:
        run: The name of the line: the run, with its rank if there are several.
        tag: The tag.
        step: The steps, ascending.
        wall_time: Seconds since the epoch.
        value: The values, which may be NaN or infinite.
    """

    run: str
    tag: str
    step: npt.NDArray[np.int64]
    wall_time: Array
    value: Array


def read_lines(runs: Sequence[Run], selection: Selection, report: Report) -> list[Line]:
    """Reads scalars; of a value that was recorded several times for a step, the last counts.

    Long series are downsampled while they are read. After a restart, earlier values of the steps
    from there on are left out, as in an export with a limit of points.

    Args:
        runs: The runs.
        selection: Which tags and steps.
        report: Counts what is read, and takes problems.
    """
    lines = []
    for run in runs:
        samplers: dict[str, RunSampler] = {}
        for writer, batch in finished(run, (SCALAR,), selection, report):
            name = writer.name(run.name)
            name += "" if run.ranks == (0,) else f" rank {writer.rank}"
            samplers.setdefault(name, RunSampler(_MOST_POINTS)).add(batch)
        for name, sampler in samplers.items():
            for tag, points in sampler.scalars():
                last = np.diff(points["step"], append=np.iinfo(np.int64).max) != 0
                columns = (points[last][field] for field in ("step", "wall_time", "value"))
                lines.append(Line(name, tag, *columns))
    return lines


def important(lines: Sequence[Line]) -> list[Line]:
    """Returns the lines of the tags that matter most, at most `_PANELS` of them."""
    tags = sorted({line.tag for line in lines})
    if len(tags) <= _PANELS:
        return list(lines)
    found: dict[str, None] = {}
    for pattern, most in _IMPORTANT:
        matching = [tag for tag in tags if re.search(pattern, tag) and tag not in found]
        found.update(dict.fromkeys(matching[:most]))
    others = [tag for tag in tags if not tag.startswith(_HEALTH)]
    chosen = list(found or dict.fromkeys(others or tags))[:_PANELS]
    return [line for line in lines if line.tag in chosen]


def check_output(path: str) -> str:
    """Returns the format of a picture, by the suffix of its name.

    Raises:
        ArgumentError: The suffix is none of `FORMATS`.
    """
    form = os.path.splitext(path)[1].lower().removeprefix(".")
    if form not in FORMATS:
        expected = f"a file name ending in one of {', '.join('.' + each for each in FORMATS)}"
        raise ArgumentError(three_part("the picture's name", path, expected))
    return form


def plot(lines: Sequence[Line], path: str, options: PlotOptions) -> list[str]:
    """Draws lines, and writes the picture; it replaces one of the same name as a whole.

    Args:
        lines: The lines.
        path: The picture's file; its suffix is one of `FORMATS`.
        options: How the picture looks.

    Returns:
        The tags, one for each panel.

    Raises:
        ArgumentError: The suffix is none of `FORMATS`.
        NothingToPlot: There are no lines, or too many tags.
        DestinationError: The picture cannot be written.
        ImportError: matplotlib is not installed.
    """
    form = check_output(path)
    tags = list(dict.fromkeys(sorted(line.tag for line in lines)))
    if not tags:
        received = verbatim("a choice in which there are no scalars")
        expected = "--tags, --since and --until that leave some: `rec-summary inspect` lists tags"
        raise NothingToPlot(three_part("the choice of tags", received, expected))
    if len(tags) > MOST_PANELS:
        received = verbatim(f"{len(tags)} tags, such as {', '.join(map(printable, tags[:3]))}")
        expected = f"at most {MOST_PANELS} in one picture: choose with --tags"
        raise NothingToPlot(three_part("the choice of tags", received, expected))
    figure = _figure(lines, tags, options)
    # Without dates and random names, the same records give the same file.
    about: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    try:
        import matplotlib

        with (
            write_atomically(path) as file,
            matplotlib.rc_context({"svg.hashsalt": "rec_summary"}),
        ):
            figure.savefig(file, format=form, dpi=options.dpi, metadata=about)
    except OSError as error:
        received = verbatim(f"{printable(path)}: {error.strerror or error}")
        expected = "a file that can be written"
        raise DestinationError(three_part("the picture", received, expected)) from error
    return tags


def smoothed(values: Array, weight: float) -> Array:
    """Returns the exponential moving average; values that are not finite are skipped.

    Source: TensorBoard's time series chart (`debiased` exponential moving average).

    Args:
        values: Shape (values,).
        weight: The weight of earlier values, from 0 to below 1.
    """
    result = np.array(values, dtype=np.float64)
    mean, count = 0.0, 0
    for index, value in enumerate(values):
        if math.isfinite(value):
            mean = mean * weight + (1 - weight) * value
            count += 1
            result[index] = mean / (1 - weight**count)
    return result


def _figure(lines: Sequence[Line], tags: Sequence[str], options: PlotOptions) -> Figure:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    columns = math.ceil(math.sqrt(len(tags)))
    rows = math.ceil(len(tags) / columns)
    figure = Figure(figsize=(options.width, options.height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    names = list(dict.fromkeys(line.run for line in lines))
    colours = colormaps["tab10" if len(names) <= 10 else "tab20"].colors  # type: ignore[attr-defined]
    colour = {name: colours[index % len(colours)] for index, name in enumerate(names)}
    handles: dict[str, Any] = {}
    for axis, tag in zip(axes, tags, strict=False):
        for line in lines:
            if line.tag == tag:
                handles[line.run] = _draw(axis, line, colour[line.run], options)
        _label(axis, tag, options)
    for axis in list(axes)[len(tags) :]:
        axis.set_visible(False)
    if 1 <= len(handles) <= _LEGEND:
        # Names from records are text, not formulas. Without the space, matplotlib hides names
        # that begin with `_`.
        labels = [f" {printable(name)}" for name in handles]
        legend = figure.legend(
            list(handles.values()),
            labels,
            loc="outside lower center",
            ncols=_legend_columns(labels, options),
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    if options.title:
        figure.suptitle(printable(options.title)).set_parse_math(False)
    return figure


def _legend_columns(labels: Sequence[str], options: PlotOptions) -> int:
    """Returns how many names fit beside each other."""
    return max(1, min(len(labels), 4, int(options.width * 12 / (max(map(len, labels)) + 6))))


def _draw(axis: Axes, line: Line, colour: Any, options: PlotOptions) -> Any:
    x = _x(line, options.x)
    finite = np.where(np.isfinite(line.value), line.value, np.nan)
    marker = "." if np.isfinite(finite).sum() == 1 else ""
    if options.smooth:
        axis.plot(x, finite, color=colour, alpha=0.25, linewidth=1, marker=marker)
        finite = smoothed(finite, options.smooth)
    [drawn] = axis.plot(x, finite, color=colour, linewidth=1.5, marker=marker)
    return drawn


def _x(line: Line, kind: str) -> Any:
    if kind == "step":
        return line.step
    if kind == "relative":
        return (line.wall_time - line.wall_time[0]) / 3600
    # A damaged record may have a time beyond the calendar. It is drawn near the end of the
    # calendar (the years 1653 and 7990), with room for the margins of the picture.
    seconds = np.clip(line.wall_time, -1e10, 1.9e11)
    return (seconds * 1e6).astype("datetime64[us]")


def _label(axis: Axes, tag: str, options: PlotOptions) -> None:
    axis.set_title(printable(tag)).set_parse_math(False)
    axis.set_xlabel({"step": "step", "time": "time (UTC)", "relative": "hours"}[options.x])
    axis.grid(alpha=0.3)
    if options.log in ("x", "both") and options.x != "time":
        axis.set_xscale("symlog" if options.x == "step" else "log")
    if options.log in ("y", "both"):
        axis.set_yscale("log")
    if options.x == "time":
        axis.tick_params(axis="x", rotation=30)
