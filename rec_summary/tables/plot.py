"""Pictures of scalars: all runs in one picture, a panel for each tag. Needs matplotlib.

A panel of few runs has a line for each. A panel of many has a band from the least to the greatest
run at each place, a darker one of the middle half of the runs, and the best run as a line.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rec_summary.arrays import Array, Floats
from rec_summary.errors import (
    ArgumentError,
    DestinationError,
    RecSummaryError,
    os_errors_as,
    required,
    three_part,
    verbatim,
)
from rec_summary.metrics.directions import direction_of, stated_direction
from rec_summary.records.files import write_atomically
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, by_tag
from rec_summary.series.best_values import best_place
from rec_summary.series.comparison.curves import Curve, aligned
from rec_summary.series.comparison.groups import band
from rec_summary.series.comparison.samples import SAMPLES, STEP, totals_of
from rec_summary.series.lineage import lineage_of
from rec_summary.series.options import Selection, tags_named
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished
from rec_summary.series.sampling import ScalarSampler
from rec_summary.series.text import printable, valid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = ("png", "svg", "pdf")
_X_LABELS: Final = {STEP: "step", SAMPLES: "examples seen"}
MOST_PANELS: Final = 16
_WIDTH, _HEIGHT, _DPI = 8.0, 5.0, 120  # in inches, and pixels for each inch of a PNG
_PANELS: Final = 6  # of a picture for which no tags were chosen
_IMPORTANT: Final = (
    (tags_named("loss"), 1),
    (r"\Arecommender/auc/", 1),  # of the latest examples, if there are such windows
    (r"\Arecommender/calibration/", 1),
    (r"\Arecommender/(?!table/)[^/]+/(?:auc|rmse)/(?:last_\d+|lifetime)\Z", 2),
    (r"\Arecommender/(?!table/)[^/]+/calibration/(?:last_\d+|lifetime)\Z", 2),
    (rf"{tags_named('learning_rate')}|\Alearning_rate/", 2),  # of several groups, the first two
    (r"\Aeval/", 2),
    (r"(?i)\A(?!rec_summary/|recommender/).*(?:loss|auc)", 2),
)
_HEALTH: Final = "rec_summary/"
_RECENT: Final = "/last_"  # in the tags of windows of the latest examples
_TITLE_POINTS: Final = 12.0  # the size of a title that fits
_LETTER: Final = 0.65  # the width of a letter, as a part of the size of the type
_LEGEND: Final = 20  # lines; the names of more lines are not readable
_MOST_LINES: Final = 8  # of a panel; more runs are a band
_BAND_POINTS: Final = 2000  # places at which a band is computed
MOST_POINTS: Final = 20_000  # of a line; more cannot be distinguished, and make files huge


class NothingToPlot(RecSummaryError):
    """No scalars were found, or more than a picture can hold."""


@dataclass(frozen=True)
class Line:
    """A series to draw; all arrays have the shape (values,).

    Attributes:
        run: The name of the line: the run, with its rank if there are several.
        tag: The tag.
        x: Where the values are: steps, examples, hours, or times as `datetime64`; ascending.
        y: The values, which may be NaN or infinite.
        recorded: The name of the recorded run.
        group: The group that it is drawn with; None if it is drawn alone.
        direction: Which values are better, as the run states it; empty if it does not.
    """

    run: str
    tag: str
    x: Array
    y: Floats
    recorded: str = ""
    group: str | None = None
    direction: str = ""

    @property
    def has_points(self) -> bool:
        """Whether a value is finite."""
        return bool(np.isfinite(self.y).any())

    @property
    def result(self) -> float:
        """The mean of the last tenth of the values, at most 100, as in `rec-summary lineage`."""
        finite = self.y[np.isfinite(self.y)]
        return float(finite[-min(100, max(1, len(finite) // 10)) :].mean())


def read_lines(
    runs: Sequence[Run],
    selection: Selection,
    report: Report,
    x: str = STEP,
    most_points: int = MOST_POINTS,
) -> list[Line]:
    """Reads scalars; of a value that was recorded several times for a step, the last counts.

    Long series are downsampled while they are read. After a restart, earlier values of the steps
    from there on are left out, as in an export with a limit of points.

    Args:
        runs: The runs.
        selection: Which tags and steps.
        report: Counts what is read, and takes problems.
        x: The horizontal axis, as in `plot`.
        most_points: The points of a line after which it is downsampled.

    Raises:
        ArgumentError: The axis is `samples`, and a run does not state its batch size.
    """
    lines = []
    for run in runs:
        totals = totals_of(run, report) if x == SAMPLES else None
        stated = lineage_of(run, Report()).directions
        samplers: dict[tuple[str, str], ScalarSampler] = {}
        for writer, batch in finished(run, (SCALAR,), selection, report):
            name = writer.name(run.name)
            name += "" if run.ranks == (0,) else f" rank {writer.rank}"
            for tag, columns in by_tag(batch.scalars()):
                sampler = samplers.setdefault((name, tag), ScalarSampler(most_points))
                sampler.extend(columns.steps, columns.wall_times, columns.values)
        for (name, tag), sampler in samplers.items():
            points = sampler.points()
            points = points[np.diff(points["step"], append=np.iinfo(np.int64).max) != 0]
            where = points["step"] if totals is None else totals.at(points["step"])
            direction = stated_direction(tag, stated)
            line = Line(name, tag, where, points["value"], valid(run.name), direction=direction)
            lines.append(line)
    return lines


def as_json(line: Line, x: str = STEP) -> dict[str, Any]:
    """Returns a line for JSON: its points are the lists `value` and, by the axis, `step`."""
    group = {} if line.group is None else {"group": line.group}
    # As float32, a value has no more digits than were recorded.
    values = list(line.y.astype(np.float32))
    return {"run": line.run, **group, "tag": line.tag, x: line.x, "value": values}


def in_groups(lines: Iterable[Line], groups: Mapping[str, Iterable[str]]) -> list[Line]:
    """Returns lines that are drawn in groups; those of runs in no group are drawn alone.

    Args:
        lines: The lines.
        groups: The recorded runs of each group, by its name.
    """
    names = {run: group for group, runs in groups.items() for run in runs}
    return [dataclasses.replace(line, group=names.get(line.recorded)) for line in lines]


def important(lines: Sequence[Line]) -> list[Line]:
    """Returns the lines of the tags that matter most, at most `_PANELS`, the first ones first."""
    tags = sorted({line.tag for line in lines}, key=lambda tag: (_RECENT not in tag, tag))
    ordered: dict[str, None] = {}
    for pattern, most in _IMPORTANT:
        matching = [tag for tag in tags if re.search(pattern, tag) and tag not in ordered]
        ordered.update(dict.fromkeys(matching[:most]))
    others = [tag for tag in tags if not tag.startswith(_HEALTH)]
    if len(tags) <= _PANELS:
        ordered.update(dict.fromkeys(others + tags))
    chosen = list(ordered or others or tags)[:_PANELS]
    return [line for tag in chosen for line in lines if line.tag == tag]


def check_output(path: str) -> str:
    """Returns the format of a picture, by the suffix of its name.

    Raises:
        ArgumentError: The suffix is none of `FORMATS`.
        ImportError: matplotlib is not installed.
    """
    form = os.path.splitext(path)[1].lower().removeprefix(".")
    if form not in FORMATS:
        expected = f"a file name ending in one of {', '.join('.' + ending for ending in FORMATS)}"
        raise ArgumentError(three_part("the picture's name", path, expected))
    required("matplotlib", "plot", "pictures")
    return form


def plot(lines: Sequence[Line], path: str, x: str = STEP) -> list[str]:
    """Draws lines, and writes the picture; it replaces one of the same name as a whole.

    Args:
        lines: The lines; panels have the order in which their tags appear.
        path: The picture's file; its suffix is one of `FORMATS`.
        x: The horizontal axis that they were read for: `step` or `samples`.

    Returns:
        The tags, one for each panel. A tag without a value that can be drawn has no panel.

    Raises:
        ArgumentError: The suffix is none of `FORMATS`.
        NothingToPlot: There are no lines, none that can be drawn, or too many tags.
        DestinationError: The picture cannot be written.
        ImportError: matplotlib is not installed.
    """
    form = check_output(path)
    tags = list(dict.fromkeys(line.tag for line in lines))
    if not tags:
        received = verbatim("a choice in which there are no scalars")
        expected = "--tags, --since and --until that leave some: `rec-summary inspect` lists tags"
        raise NothingToPlot(three_part("the choice of tags", received, expected))
    if len(tags) > MOST_PANELS:
        received = verbatim(f"{len(tags)} tags, such as {', '.join(map(printable, tags[:3]))}")
        expected = f"at most {MOST_PANELS} in one picture: choose with --tags"
        raise NothingToPlot(three_part("the choice of tags", received, expected))
    panels = {tag: [line for line in lines if line.tag == tag and line.has_points] for tag in tags}
    panels = {tag: drawn for tag, drawn in panels.items() if drawn}
    if not panels:
        received = verbatim(f"{', '.join(map(printable, tags[:3]))} without a value to draw")
        raise NothingToPlot(three_part("the choice of tags", received, "finite values"))
    matplotlib = required("matplotlib", "plot", "pictures")
    figure = _figure(panels, x)
    # Without dates and random names, the same records give the same file.
    about: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    with (
        os_errors_as(
            DestinationError, "the picture", printable(path), "a file that can be written"
        ),
        write_atomically(path) as file,
        matplotlib.rc_context({"svg.hashsalt": "rec_summary"}),
    ):
        figure.savefig(file, format=form, dpi=_DPI, metadata=about)
    return list(panels)


def _figure(panels: Mapping[str, Sequence[Line]], x: str) -> Figure:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    every = [curve for curves in panels.values() for curve in curves]
    names = list(dict.fromkeys(curve.group or curve.run for curve in every))
    colours = colormaps["tab10" if len(names) <= 10 else "tab20"].colors  # type: ignore[attr-defined]
    colour = {name: colours[index % len(colours)] for index, name in enumerate(names)}
    recorded: dict[str, set[str]] = {}
    for curve in every:
        if curve.group is not None:
            recorded.setdefault(curve.group, set()).add(curve.recorded)
    handles: dict[str, Any] = {}
    for axis, (tag, curves) in zip(_grid(figure, len(panels)), panels.items(), strict=True):
        alone = [curve for curve in curves if curve.group is None]
        for group in dict.fromkeys(curve.group for curve in curves if curve.group is not None):
            members = [curve for curve in curves if curve.group == group]
            label = f"{group} ({_runs(len(recorded[group]))})"
            handles[label] = _draw_group(axis, members, colour[group])
        if len(alone) > _MOST_LINES:
            handles.update(_draw_band(axis, alone))
        else:
            handles.update({curve.run: _draw(axis, curve, colour[curve.run]) for curve in alone})
        _label(axis, tag, x)
    if len(handles) <= _LEGEND:
        # Names from records are text, not formulas. Without the space, matplotlib hides names
        # that begin with `_`.
        labels = [f" {printable(name)}" for name in handles]
        legend = figure.legend(
            list(handles.values()),
            labels,
            loc="outside lower center",
            # As many as fit beside each other.
            ncols=max(1, min(len(labels), 4, int(_WIDTH * 12 / (max(map(len, labels)) + 6)))),
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _grid(figure: Figure, count: int) -> list[Axes]:
    """Returns axes in rows; those of a row with fewer of them are wider."""
    rows = np.array_split(np.arange(count), math.ceil(count / math.ceil(math.sqrt(count))))
    width = math.lcm(*map(len, rows))
    axes = figure.subplot_mosaic([np.repeat(row, width // len(row)).tolist() for row in rows])
    return [axes[index] for index in range(count)]


def _draw(axis: Axes, curve: Line, colour: Any) -> Any:
    marker = "." if np.isfinite(curve.y).sum() == 1 else ""
    [line] = axis.plot(curve.x, curve.y, color=colour, linewidth=1.5, marker=marker)
    return line


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _draw_group(axis: Axes, curves: Sequence[Line], colour: Any) -> Any:
    """Draws the mean of a group in a band from its least to its greatest value."""
    places, _, mean, _, least, greatest = band([Curve(c.x, c.y) for c in curves], _BAND_POINTS)
    axis.fill_between(places, least, greatest, color=colour, alpha=0.2, linewidth=0)
    marker = ""
    if len(places) == 1:  # a band without a width does not show
        marker = "."
        axis.vlines(places, least, greatest, color=colour, alpha=0.4)
    [line] = axis.plot(places, mean, color=colour, linewidth=1.5, marker=marker)
    return line


def _draw_band(axis: Axes, curves: Sequence[Line]) -> dict[str, Any]:
    """Draws many runs as bands and a line; returns what the bands are, for the legend.

    The line is the best run. Of a tag of which no value is better than another, such as a learning
    rate, it is the median.
    """
    places, values = aligned([Curve(curve.x, curve.y) for curve in curves], _BAND_POINTS)
    # Where no run has a value, as between two runs on an axis of times, nothing is drawn.
    finite = np.isfinite(values).any(axis=0)
    places, values = places[finite], values[:, finite]
    least, low, median, high, greatest = np.nanquantile(values, (0, 0.25, 0.5, 0.75, 1), axis=0)
    band = axis.fill_between(places, least, greatest, color="C0", alpha=0.15, linewidth=0.5)
    middle = axis.fill_between(places, low, high, color="C0", alpha=0.35, linewidth=0.5)
    best = _best(curves)
    if best is None:
        axis.plot(places, median, color="C0", linewidth=1.5, label="median of the runs")
    else:
        _draw(axis, best, "C1").set_label(f"best: {printable(best.run)}")
    for text in axis.legend(fontsize="small").get_texts():
        text.set_parse_math(False)
    return {"least to greatest run": band, "middle half of the runs": middle}


def _best(curves: Sequence[Line]) -> Line | None:
    """Returns the best of the runs of a tag; None if no value is better than another."""
    tag = curves[0].tag
    directions = {curve.direction or direction_of(tag) for curve in curves}
    if len(directions) > 1:
        return None
    best = best_place(tag, [curve.result for curve in curves], *directions)
    return None if best is None else curves[best]


def _label(axis: Axes, tag: str, x: str) -> None:
    title, subplot = printable(tag), axis.get_subplotspec()
    assert subplot is not None
    width = _WIDTH * 72 * len(subplot.colspan) / subplot.get_gridspec().ncols
    size = min(_TITLE_POINTS, 0.9 * width / (_LETTER * max(len(title), 1)))
    axis.set_title(title, fontsize=size).set_parse_math(False)
    axis.set_xlabel(_X_LABELS[x])
    axis.grid(alpha=0.3)
