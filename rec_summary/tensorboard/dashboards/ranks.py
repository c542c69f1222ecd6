"""All ranks of a run on one page: a heat map of each measure, and a table of who differs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from PIL import Image, ImageDraw

from rec_summary.arrays import Floats, Integers
from rec_summary.series.ranks.restarts import Reached
from rec_summary.series.ranks.summary import (
    INPUT_STALL,
    LAGGING_SECS,
    MEASURES,
    PREFIX,
    STEP_TIME,
    RankHistory,
)
from rec_summary.tensorboard.dashboards import colours
from rec_summary.tensorboard.dashboards.images import picture
from rec_summary.tensorboard.dashboards.points import Point
from rec_summary.tensorboard.dashboards.text import grid, text_point

OVERVIEW: Final = f"{PREFIX}overview"

_ABSENT: Final = (205, 205, 205)
_LEFT, _TOP, _RIGHT, _BOTTOM = 52, 22, 96, 24  # pixels around the map
_WIDE, _HIGH = 576, 384  # pixels of the map, at least
_SIDE: Final = 1024  # pixels of the map, at most
_TICKS: Final = 8
_BAR: Final = 14
_OUTLIERS: Final = (0.1, 99.9)  # percentiles: one rank of hundreds is none
_NAMED: Final = 5
_RECENT: Final = 8  # the part of the time that counts as recent
_STALLED: Final = 0.1  # more than the median of all ranks
_TITLES: Final = {
    STEP_TIME: "time of a step in seconds",
    INPUT_STALL: "share of the time that is spent waiting for data",
}


def heat_map(history: RankHistory) -> Point:
    """Returns the picture of a measure, which is drawn when it is looked at."""
    return picture(f"{PREFIX}{history.measure}/heat_map", functools.partial(_heat_map, history))


def _heat_map(history: RankHistory) -> Image.Image:
    """Draws a measure: a row for each rank, the first one on top, over time.

    Of step time and input stall it shows the values. Of everything else, which changes much while
    a network learns, it shows by how much a rank differs from the median of all at that time. A
    value of NaN is magenta; grey is where a rank has recorded nothing.
    """
    values = history.values
    is_absolute = history.measure in _TITLES
    with np.errstate(all="ignore"):
        if not is_absolute:
            values = values - _median(values)
        finite = values[np.isfinite(values)]
        low, high = np.percentile(finite, _OUTLIERS) if finite.size else (0.0, 0.0)
        if is_absolute:
            shares = (values - low) / (high - low or 1.0)
            pixels = colours.sequential(shares)
        else:
            high = max(-low, high) or 1.0
            low = -high
            pixels = colours.diverging(values / high)
    pixels[history.missing] = _ABSENT
    bar = np.linspace(1, 0 if is_absolute else -1, 64)[:, None]
    legend = colours.sequential(bar) if is_absolute else colours.diverging(bar)
    title = _TITLES.get(history.measure)
    title = title or f"{history.measure.replace('_', ' ')}: difference from the median of the ranks"
    return _framed(pixels, legend, (low, high), history, title)


def overview(histories: Sequence[RankHistory], reached: Mapping[int, Reached]) -> Point:
    """Returns a table of the recent values of each measure, and of ranks that differ or lag."""
    lines = [f"### {len(reached)} ranks", ""]
    lines += [f"* {note}" for note in (*_late(reached), *_stalled(histories))] or ["* none lags"]
    rows: list[tuple[str, ...]] = [("of late", "min", "median", "max", "highest ranks")]
    for history in histories:
        ranks, recent = _recent(history)
        order = np.argsort(np.where(np.isnan(recent), -np.inf, -recent), kind="stable")
        highest = (f"{ranks[i]}: {recent[i]:.4g}" for i in order[:_NAMED])
        numbers = np.sort(recent)
        statistics = (f"{number:.4g}" for number in (numbers[0], _median(recent), numbers[-1]))
        rows.append((history.measure.replace("_", " "), *statistics, ", ".join(highest)))
    return text_point(OVERVIEW, "\n".join([*lines, "", *grid(rows)]))


def measures_of(tags: Sequence[str]) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yields the measures that are among tags, each with the tags of a line and of its band."""
    for measure in MEASURES:
        line, low, high = (f"{PREFIX}{measure}/{name}" for name in ("median", "min", "max"))
        if line in tags:
            yield measure, (line, low, high)


def _recent(history: RankHistory) -> tuple[Integers, Floats]:
    """Returns the ranks that have recent values, and the mean of those of each."""
    columns = history.values.shape[1]
    part = slice(columns - max(columns // _RECENT, 1), columns)
    values, recorded = history.values[:, part], ~history.missing[:, part]
    has = recorded.any(1)
    with np.errstate(all="ignore"):
        means = np.where(recorded, values, 0.0).sum(1)[has] / recorded.sum(1)[has]
    return history.ranks[has], means


def _median(values: Floats) -> Floats:
    """Returns the median of the finite ones along the first axis; NaN where there are none."""
    ma: Any = np.ma  # which does not state its types
    median = ma.median(ma.masked_invalid(values), axis=0)
    medians: Floats = ma.filled(median, np.nan)
    return medians


def _late(reached: Mapping[int, Reached]) -> Iterator[str]:
    """Yields a text for each rank that lags, and one for all beyond a few."""
    newest = max(last.wall_time for last in reached.values())
    furthest = max(last.step for last in reached.values())
    late = {
        rank: last
        for rank, last in sorted(reached.items(), key=lambda item: item[1].wall_time)
        if newest - last.wall_time > LAGGING_SECS
    }
    for rank, last in list(late.items())[:_NAMED]:
        yield (
            f"**rank {rank}** has recorded nothing for {newest - last.wall_time:,.0f} s: it is at "
            f"step {last.step:,}, others at {furthest:,}"
        )
    if len(late) > _NAMED:
        yield f"and {len(late) - _NAMED} more ranks have recorded nothing for a minute or longer"


def _stalled(histories: Sequence[RankHistory]) -> Iterator[str]:
    """Yields a text for each of the ranks that wait for data longer than others, or for all."""
    for history in histories:
        if history.measure != INPUT_STALL:
            continue
        ranks, recent = _recent(history)
        usual = float(_median(recent))
        order = [i for i in np.argsort(-recent, kind="stable") if recent[i] > usual + _STALLED]
        for i in order[:_NAMED]:
            yield (
                f"**rank {ranks[i]}** waits for data {recent[i]:.0%} of its time; "
                f"the median of all ranks is {usual:.0%}"
            )
        if len(order) > _NAMED:
            yield f"and {len(order) - _NAMED} more ranks wait for data"


def _framed(
    pixels: Any, legend: Any, bounds: tuple[float, float], history: RankHistory, title: str
) -> Image.Image:
    """Returns a map with a title, the ranks at its left, the steps below, and its colours."""
    rows, columns = pixels.shape[:2]
    width, height = (
        min(max(size * max(-(-least // size), 1), least), _SIDE)
        for size, least in ((columns, _WIDE), (rows, _HIGH))
    )
    canvas = Image.new("RGB", (_LEFT + width + _RIGHT, _TOP + height + _BOTTOM), "white")
    resized = Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST)
    canvas.paste(resized, (_LEFT, _TOP))
    draw = ImageDraw.Draw(canvas)
    draw.text((_LEFT, 5), title, fill="black")
    for row in range(0, rows, max(-(-rows // _TICKS), 1)):
        position = (_LEFT - 6, _TOP + (row + 0.5) * height / rows)
        draw.text(position, f"{history.ranks[row]}", fill="black", anchor="rm")
    below, steps = _TOP + height + 6, history.steps
    draw.text((4, 5), "rank", fill="black")
    draw.text((_LEFT, below), f"step {steps[0]:,}", fill="black", anchor="la")
    draw.text((_LEFT + width, below), f"{steps[-1]:,}", fill="black", anchor="ra")
    bar = Image.fromarray(legend).resize((_BAR, height), Image.Resampling.NEAREST)
    right = _LEFT + width + 12
    canvas.paste(bar, (right, _TOP))
    for y, number in zip((_TOP + height, _TOP), bounds, strict=True):
        draw.text((right + _BAR + 4, y), f"{number:.3g}", fill="black", anchor="lm")
    return canvas
