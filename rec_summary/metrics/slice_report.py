"""The values of metrics by slice: the most frequent slices, the worst one, the widest gap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.quality.slices import Slices

OTHER: Final = "other"  # all values without a state of their own
LEAST: Final = 100
"""The number of clicks and of non-clicks (of ratings: of examples) from which on a slice is
compared with others."""

_WORSE: Final[Mapping[str, Callable[[float], float]]] = {
    "auc": lambda value: -value,
    "calibration": lambda value: abs(math.log(max(value, 1e-300))),
    "accuracy": lambda value: -value,
    "rmse": lambda value: value,
    "bias": abs,
}
"""The metrics of a slice that have tags, with a number that is larger the worse they are."""

_COLUMNS: Final = (
    ("examples", "{:,.10g}"),
    ("clicks", "{:,.10g}"),
    ("click_rate", "{:.4g}"),
    ("auc", "{:.4f}"),
    ("normalised_entropy", "{:.4f}"),
    ("calibration", "{:.4f}"),
    ("accuracy", "{:.4f}"),
    ("rmse", "{:.5g}"),
    ("mae", "{:.5g}"),
    ("bias", "{:.4g}"),
)


class _Slice(NamedTuple):
    """A slice.

    Attributes:
        name: Its name.
        metrics: Its metrics by name.
        error: The standard error of its AUC; NaN of ratings.
        compared: Whether it has examples enough.
    """

    name: str
    metrics: dict[str, float]
    error: float
    compared: bool


class SliceValues(NamedTuple):
    """The values of a column in a window.

    Attributes:
        scalars: Numbers by the part of the tag before the window.
        table: Rows of texts, the first one the header; the worst slices first.
    """

    scalars: dict[str, float]
    table: list[tuple[str, ...]]


def values_of(
    column: str, slices: Slices, metrics_of: Callable[[Any], Mapping[str, float]]
) -> SliceValues:
    """Returns the values of a column.

    Args:
        column: Its name.
        slices: The states.
        metrics_of: Returns the metrics of a state by their names.
    """
    found = [_slice(_shown(name), state, metrics_of) for name, _, state in slices.slices()]
    shown = found[: slices.shown]
    rest = _slice(OTHER, slices.other, metrics_of)
    if rest.metrics.get("examples"):
        shown.append(rest)
    scalars = {
        f"slice/{column}={quoted(each.name)}/{metric}": each.metrics[metric]
        for each in shown
        for metric in _WORSE
        if metric in each.metrics
    }
    compared = [each for each in found if each.compared]
    for metric, worse in _WORSE.items():
        ranked = sorted(
            (each for each in compared if metric in each.metrics),
            key=lambda each: worse(each.metrics[metric]),
        )
        if len(ranked) < 2:
            continue
        numbers = [each.metrics[metric] for each in ranked]
        scalars[f"slice/{column}/{metric}_worst"] = numbers[-1]
        scalars[f"slice/{column}/{metric}_gap"] = max(numbers) - min(numbers)
        if metric == "auc":
            error = math.hypot(ranked[0].error, ranked[-1].error)
            scalars[f"slice/{column}/auc_gap_error"] = error
            bound = max(each.metrics["roc_error_bound"] for each in ranked)
            scalars[f"slice/{column}/auc_error_bound"] = bound
    return SliceValues(scalars, _table(column, [*found, rest]))


def quoted(name: str) -> str:
    """Returns the name of a slice as a part of a tag."""
    printable = "".join(each if each.isprintable() else "�" for each in name)
    return printable.replace("%", "%25").replace("/", "%2F")


def _shown(name: str) -> str:
    """Returns the name of a value, in quotes if it could be that of all other values."""
    return f"'{name}'" if name.strip("'") == OTHER else name


def auc_standard_error(order: ScoreOrder) -> float:
    """Returns the standard error of an AUC; NaN for fewer than two clicks or non-clicks.

    From the variances of the share of non-clicks below each click, and of clicks above each
    non-click (DeLong, DeLong and Clarke-Pearson 1988). Scores of a cell count as equal. Weights
    count as numbers of examples.
    """
    negatives, positives = order.negatives, order.positives
    total = float(negatives.sum()), float(positives.sum())
    if min(total) < 2:
        return math.nan
    below = (np.cumsum(negatives) - 0.5 * negatives) / total[0]
    above = (np.cumsum(positives[::-1])[::-1] - 0.5 * positives) / total[1]
    area = float(positives @ below) / total[1]
    of_clicks = float(positives @ (below - area) ** 2) / (total[1] - 1)
    of_others = float(negatives @ (above - area) ** 2) / (total[0] - 1)
    return math.sqrt(of_clicks / total[1] + of_others / total[0])


def _slice(name: str, state: Any, metrics_of: Callable[[Any], Mapping[str, float]]) -> _Slice:
    metrics = dict(metrics_of(state))
    examples, error = metrics.get("examples", 0.0), math.nan
    least = examples
    if isinstance(state, ClickQuality):
        clicks = metrics.get("clicks", 0.0)
        least, error = min(clicks, examples - clicks), auc_standard_error(state.order)
    return _Slice(name, metrics, error, least >= LEAST)


def _table(column: str, slices: list[_Slice]) -> list[tuple[str, ...]]:
    """Returns a row for each slice, those with too few examples last."""
    slices = [each for each in slices if each.metrics.get("examples")]
    judge = next((each for each in ("auc", "rmse") if any(each in s.metrics for s in slices)), "")

    def place(each: _Slice) -> tuple[bool, bool, float]:
        value = each.metrics.get(judge, math.nan)
        return each.name == OTHER, not each.compared, -_WORSE[judge](value) if judge else 0.0

    used = [(n, form) for n, form in _COLUMNS if any(n in each.metrics for each in slices)]
    rows = [(column, *(name.replace("_", " ") for name, _ in used))]
    for each in sorted(slices, key=place):
        cells = [form.format(each.metrics[n]) if n in each.metrics else "" for n, form in used]
        for number, (name, _) in enumerate(used):
            if name == "auc" and math.isfinite(each.error):
                cells[number] += f" ± {each.error:.4f}"
        rows.append((each.name, *cells))
    return rows if len(rows) > 1 else []
