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
_CHARTS: Final = (
    ("Loss", rf"(?!eval/|{BEST})(.*/)?[^/]*[lL]oss[^/]*(/auto)?$"),
    ("AUC", r"recommender/g?auc/.*"),
    ("Calibration", r"recommender/calibration/.*"),
)
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
    layout = layout_pb2.Layout()
    for title, pattern in _charts(tags, evaluation):
        content = layout_pb2.MultilineChartContent(tag=[pattern])
        chart = layout_pb2.Chart(title=title, multiline=content)
        layout.category.add(title=title, chart=[chart])
    if not evaluation:
        for measure in summary.MEASURES:
            start = f"{summary.PREFIX}{measure}/"
            line, low, high = (start + name for name in ("median", "min", "max"))
            if line not in tags:
                continue
            band = layout_pb2.MarginChartContent.Series(value=line, lower=low, upper=high)
            content = layout_pb2.MarginChartContent(series=[band])
            title = f"Ranks: {measure.replace('_', ' ')}"
            chart = layout_pb2.Chart(title=title, margin=content)
            layout.category.add(title=title, chart=[chart])
    serialized: bytes = layout.SerializeToString(deterministic=True)
    return serialized


def _charts(tags: Sequence[str], evaluation: bool) -> Iterator[tuple[str, str]]:
    if not evaluation:
        yield from _matching(_CHARTS, tags)
        for task in named_tasks(tags)[:MOST_CHARTS]:
            start = f"{PREFIX}{re.escape(task)}/"
            charts = [(f"{title}: {task}", start + tag) for title, tag in _TASK_CHARTS]
            yield from _matching(charts, tags)
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
