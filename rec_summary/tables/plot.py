"""Pictures of scalars: several runs in one, a panel for each tag. Needs matplotlib."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import DestinationError, RecSummaryError, three_part, verbatim
from rec_summary.records.files import write_atomically
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ArgumentError, Selection
from rec_summary.series.report import Report
from rec_summary.series.values import recorded_values
from rec_summary.series.words import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = ("png", "svg", "pdf")
X: Final = ("step", "time", "relative")
LOG: Final = ("none", "x", "y", "both")
MOST_PANELS: Final = 16
_LEGEND: Final = 20  # more lines than that have no names that could be read
_MOST_POINTS: Final = 20_000  # of a line; more cannot be told apart, and make files huge
_MOST_PIXELS: Final = 20_000

Array = npt.NDArray[np.float64]


class NothingToPlot(RecSummaryError):
    """No scalars were found, or more than a picture can hold."""


@dataclass(frozen=True)
class PlotOptions:
    """How a picture looks.

    Attributes:
        x: What is to the right: `step`, `time` (UTC), or `relative` (hours since the
            first value of a line).
        smooth: The weight of what was before, from 0 (no smoothing) to below 1; the mean
            with exponentially falling weights as TensorBoard has it. The values themselves
            are drawn pale behind.
        log: Which axes are logarithmic.
        width: The picture's width, in inches.
        height: Its height, in inches.
        dpi: Pixels for each inch, in a PNG.
        title: What stands above; by default nothing.
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
            ArgumentError: A value cannot be meant.
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
        run: What it is called: the run, with its rank if there are several.
        tag: Its tag.
        step: The steps.
        wall_time: Seconds since the epoch.
        value: The values, which may be NaN or infinite.
    """

    run: str
    tag: str
    step: npt.NDArray[np.int64]
    wall_time: Array
    value: Array


def read_lines(
    runs: Sequence[Run],
    selection: Selection,
    report: Report,
    advance: Callable[[Run], Callable[[int], None]] | None = None,
) -> list[Line]:
    """Reads scalars; of a value that was recorded several times for a step, the last counts.

    Args:
        runs: The runs.
        selection: Which tags and steps.
        report: Takes what cannot be read.
        advance: Makes for a run what is called with the number of bytes read.
    """
    lines = []
    for run in runs:
        found: dict[tuple[str, int], dict[int, tuple[float, float]]] = {}
        told = advance(run) if advance is not None else lambda nbytes: None
        for value in recorded_values(run, ["scalar_value"], selection, report, told):
            recorded = value.recorded
            series = found.setdefault((recorded.tag, value.rank), {})
            # A step that comes again, after a restart, takes its later place.
            series.pop(value.step, None)
            series[value.step] = (recorded.origin.wall_time, recorded.value.scalar_value)
        for (tag, rank), series in sorted(found.items()):
            name = run.name if run.ranks == (0,) else f"{run.name} rank {rank}"
            steps = np.array(list(series), dtype=np.int64)
            values = np.array(list(series.values()), dtype=np.float64)
            order = np.argsort(steps, kind="stable")
            lines.append(Line(name, tag, steps[order], values[order, 0], values[order, 1]))
    return lines


def check_output(path: str) -> str:
    """Returns the format that a picture's name asks for.

    Raises:
        ArgumentError: It asks for none of `FORMATS`.
    """
    form = os.path.splitext(path)[1].lower().removeprefix(".")
    if form not in FORMATS:
        expected = f"a file name ending in one of {', '.join('.' + each for each in FORMATS)}"
        raise ArgumentError(three_part("the picture's name", path, expected))
    return form


def plot(lines: Sequence[Line], path: str, options: PlotOptions) -> list[str]:
    """Draws lines, and writes the picture; it replaces one of the same name as a whole.

    Args:
        lines: What is drawn.
        path: Where to; the suffix says which of `FORMATS`.
        options: How it looks.

    Returns:
        The tags, one for each panel.

    Raises:
        ArgumentError: The suffix is none of them.
        NothingToPlot: There are no lines, or too many tags.
        DestinationError: The picture cannot be written.
        ImportError: matplotlib is not installed.
    """
    form = check_output(path)
    tags = list(dict.fromkeys(sorted(line.tag for line in lines)))
    if not tags:
        received = verbatim("a choice in which there are no scalars")
        expected = "--tags, --since and --until that leave some: `rec-summary inspect` tells tags"
        raise NothingToPlot(three_part("the choice of tags", received, expected))
    if len(tags) > MOST_PANELS:
        received = verbatim(f"{len(tags)} tags, such as {', '.join(map(printable, tags[:3]))}")
        expected = f"at most {MOST_PANELS} in one picture: choose with --tags"
        raise NothingToPlot(three_part("the choice of tags", received, expected))
    figure = _figure(lines, tags, options)
    # Dates and random names would make every picture of the same records another file.
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
    """Returns the mean with exponentially falling weights; what is not finite is passed over.

    Source: TensorBoard's time series chart (`debiased` exponential moving average).

    Args:
        values: Shape (values,).
        weight: The weight of what was before, from 0 to below 1.
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
        # Names from records are text, never formulas; matplotlib hides those with a `_`.
        labels = [f" {printable(name)}" for name in handles]
        legend = figure.legend(
            list(handles.values()), labels, loc="outside lower center", ncols=min(len(labels), 4)
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    if options.title:
        figure.suptitle(printable(options.title)).set_parse_math(False)
    return figure


def _draw(axis: Axes, line: Line, colour: Any, options: PlotOptions) -> Any:
    thin = max(1, math.ceil(len(line.value) / _MOST_POINTS))
    x = _x(line, options.x)
    finite = np.where(np.isfinite(line.value), line.value, np.nan)
    marker = "." if np.isfinite(finite).sum() == 1 else ""
    if options.smooth:
        axis.plot(x[::thin], finite[::thin], color=colour, alpha=0.25, linewidth=1, marker=marker)
        finite = smoothed(finite, options.smooth)
    [drawn] = axis.plot(x[::thin], finite[::thin], color=colour, linewidth=1.5, marker=marker)
    return drawn


def _x(line: Line, kind: str) -> Any:
    if kind == "step":
        return line.step
    if kind == "relative":
        return (line.wall_time - line.wall_time[0]) / 3600
    # Times beyond the calendar, which damage can bring, are shown near its ends (the years
    # 1653 and 7990), with room for the picture's margins.
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
