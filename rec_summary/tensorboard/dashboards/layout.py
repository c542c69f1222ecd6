"""The layout of the Custom Scalars dashboard: the most important charts on one page.

TensorBoard merges the layouts of all runs by the titles of their categories, so a chart is
the same message in every run that has it, and every category has one chart. A chart is
there only if a run has something to show in it.
Source: `tensorboard/plugins/custom_scalar/layout.proto` and `custom_scalars_plugin.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.custom_scalar import layout_pb2

from rec_summary.metrics.tags import EVALUATION, PREFIX, named_tasks
from rec_summary.series.limits import MOST_CHARTS
from rec_summary.series.ranks import summary
from rec_summary.tensorboard.dashboards.points import Point, plugin, tensor_value
from rec_summary.tensorboard.tag_groups import BEST

LAYOUT: Final = plugin("custom_scalars", summary_pb2.DATA_CLASS_TENSOR, reserved=True)
_LONGEST: Final = 250  # characters of a tag; the patterns take the square of that in time
_TAG: Final = "custom_scalars__config__"
_LAYOUTS: Final = 16  # that are kept

# Titles, and the tags that belong there; the page matches from the beginning of a tag.
_LOSS: Final = ("Loss", rf"(?!eval/|{BEST})(.*/)?[^/]*[lL]oss[^/]*(/auto)?$")
_TASK_CHARTS: Final = (
    ("AUC", r"g?auc/.*"),
    ("Calibration", r"calibration/.*"),
    ("Error of ratings", r"(rmse|mae)/.*"),
)
_MORE_CHARTS: Final = (
    ("Learning rate", r"(learning_rate|lr)\b.*|.*/(learning_rate|lr)$"),
    ("Values that are not finite", r".*/(nan|pos_inf|neg_inf)_count$"),
    # What only grows would hide the counters of failures.
    ("Telemetry", r"(telemetry|rec_summary)/(?!(bytes|records)$).*"),
)


def layout_point(tags: Iterable[str], *, evaluation: bool = False) -> Point | None:
    """Returns the layout for the scalars of a run; None if no chart matches.

    Args:
        tags: The tags of its scalars; those of best values get no chart.
        evaluation: Whether they are metrics, each of which gets a chart; otherwise those are
            the ones that begin with `eval/`.
    """
    recorded = tuple(sorted(tag for tag in tags if not tag.startswith(BEST)))
    layout = _layout(recorded, evaluation)
    return Point(_TAG, LAYOUT, tensor_value(layout)) if layout else None


@functools.lru_cache(_LAYOUTS)
def _layout(tags: tuple[str, ...], evaluation: bool) -> bytes:
    """Returns the message: runs of a tree mostly have the same tags."""
    charts = [
        layout_pb2.Chart(title=title, multiline={"tag": [pattern]})
        for title, pattern in _charts(tags, evaluation)
    ]
    for measure in () if evaluation else summary.MEASURES:
        start = f"{summary.PREFIX}{measure}/"
        if f"{start}median" in tags:
            band = {"value": f"{start}median", "lower": f"{start}min", "upper": f"{start}max"}
            title = f"Ranks: {measure.replace('_', ' ')}"
            charts.append(layout_pb2.Chart(title=title, margin={"series": [band]}))
    categories = [layout_pb2.Category(title=chart.title, chart=[chart]) for chart in charts]
    layout: bytes = layout_pb2.Layout(category=categories).SerializeToString(deterministic=True)
    return layout


def _charts(tags: Sequence[str], evaluation: bool) -> Iterator[tuple[str, str]]:
    if not evaluation:
        yield from _matching([_LOSS], tags)
        for task in ("", *(f"{task}/" for task in named_tasks(tags)[:MOST_CHARTS])):
            name, start = f": {task[:-1]}" if task else "", PREFIX + re.escape(task)
            yield from _matching([(title + name, start + tag) for title, tag in _TASK_CHARTS], tags)
    start = "" if evaluation else EVALUATION
    metrics = [tag.removeprefix(start) for tag in tags if tag.startswith(start)]
    for metric in list(dict.fromkeys(metrics))[:MOST_CHARTS]:
        # The metrics of one training may be in the run or in its sub-run, by who wrote them.
        yield f"Evaluation: {metric}", f"({EVALUATION})?{re.escape(metric)}$"
    if not evaluation:
        yield from _matching(_MORE_CHARTS, tags)


def _matching(charts: Any, tags: Sequence[str]) -> Iterator[tuple[str, str]]:
    for title, pattern in charts:
        if any(len(tag) <= _LONGEST and re.match(pattern, tag) for tag in tags):
            yield title, pattern
