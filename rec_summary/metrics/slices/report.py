"""The values of metrics by slice: the most frequent slices, the worst one, the widest gap."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Floats
from rec_summary.metrics.directions import costs_of
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.slices.states import OTHER, Slices, SliceState, label
from rec_summary.metrics.slices.sums import delong
from rec_summary.metrics.tags import CHANCE_ERROR, QUALITY

LEAST: Final = 100
"""The number of clicks and of non-clicks (of ratings: of examples) from which on a slice is
compared with others; of weighted clicks and non-clicks, the effective number."""

_SURE: Final = 2.0  # standard errors by which a slice is worse, or better, than its metric


def sum_of_weights(number: float) -> str:
    """Returns a sum without the rounding of its weights, which are multiples of 2**-20."""
    return f"{number:,.2f}".rstrip("0").rstrip(".") if number >= 1 else f"{number:.3g}"


COLUMNS: Final[dict[str, Callable[[float], str]]] = {
    **dict.fromkeys(("examples", "clicks"), sum_of_weights),
    "click_rate": "{:#.4g}".format,
    **dict.fromkeys(("auc", "normalised_entropy", "calibration", "accuracy"), "{:.4f}".format),
    **dict.fromkeys(("rmse", "mae"), "{:.5g}".format),
    "bias": "{:.4g}".format,
}
"""The columns of the table and their formats; other metrics that are chosen follow. Those of clicks
are what the sums by slice have."""


class _Slice(NamedTuple):
    """A slice.

    Attributes:
        name: Its name.
        metrics: Its metrics by name.
        errors: The standard errors of those that are of a sample, or an AUC; NaN if not known.
        compared: Whether it has examples enough.
    """

    name: str
    metrics: dict[str, float]
    errors: dict[str, float]
    compared: bool

    def cost(self, metric: str) -> float:
        """Returns a number that is larger the worse a metric of the slice is."""
        return float(_costs(metric, np.array(self.metrics.get(metric, math.nan))))

    def is_compared(self, metric: str) -> bool:
        """Returns whether a metric is compared with that of others."""
        known = metric in self.metrics and not math.isnan(self.errors.get(metric, 0.0))
        return self.compared and known

    def margin(self, metric: str) -> float:
        """Returns how far a metric may be off by chance; 0 if it has no error."""
        return _SURE * self.errors.get(metric, 0.0)


def values_of(
    column: str,
    slices: Slices,
    metrics: Sequence[str],
    of_each: Sequence[str],
    metrics_of: Callable[[Any], Mapping[str, float]],
) -> tuple[dict[str, float], list[tuple[str, ...]]]:
    """Returns the values of a column in a window.

    Args:
        column: Its name.
        slices: The states.
        metrics: The names of the metrics.
        of_each: Those of them that have a tag for each slice, and for the gap between slices.
        metrics_of: Returns the metrics of a state by their names.

    Returns:
        Numbers by the part of the tag before the window; and rows of texts, the first one the
        header, with the worst slices first. There are none if the sums by slice have all of it.
    """
    entries = [_slice(label(name), state, metrics_of) for name, _, state in slices.slices()]
    names = set(map(label, slices.shown_names()))
    shown = [slice_ for slice_ in entries if slice_.name in names]
    rest = _slice(OTHER, slices.other, metrics_of)
    if rest.metrics.get("examples"):
        shown.append(rest)
    scalars = {
        f"slice/{column}={quoted(slice_.name)}/{metric}": slice_.metrics[metric]
        for slice_ in shown
        for metric in of_each
        if metric in slice_.metrics
    }
    for metric in metrics:
        ranked = [slice_ for slice_ in entries if slice_.is_compared(metric)]
        if len(ranked) < 2:
            continue
        # The worst is worse than the others even where chance is in its favour.
        numbers = np.array([slice_.metrics[metric] for slice_ in ranked])
        margins = np.array([slice_.margin(metric) for slice_ in ranked])
        costs = _costs(metric, numbers) - margins
        scalars[f"slice/{column}/{metric}_worst"] = float(numbers[np.argmax(costs)])
        low, high = np.argmin(numbers + margins), np.argmax(numbers - margins)
        if metric in of_each:
            scalars[f"slice/{column}/{metric}_gap"] = float(numbers[high] - numbers[low])
        if metric in ranked[0].errors:
            error = math.hypot(margins[low], margins[high]) / _SURE
            scalars[f"slice/{column}/{metric}_gap_error"] = error
        if metric == "auc":
            bound = max(slice_.metrics["roc_error_bound"] for slice_ in ranked)
            scalars[f"slice/{column}/auc_error_bound"] = bound
    return scalars, _table(column, metrics, [*entries, rest])


def quoted(name: str) -> str:
    """Returns the name of a slice as a part of a tag; different names have different ones."""
    return "".join(
        character
        if character.isprintable() and character not in "%/"
        else urllib.parse.quote(character, safe="", errors="replace")
        for character in name
    )


def auc_standard_error(quality: ClickQuality) -> float:
    """Returns the standard error of an AUC; NaN for fewer than two clicks or non-clicks.

    Of weighted examples, there are as many as its `effective_numbers` say.
    """
    orders = np.stack([quality.order.negatives, quality.order.positives])
    _, error = delong(orders[None], np.array([quality.effective_numbers()]))
    return float(error[0])


def _costs(metric: str, numbers: Floats) -> Floats:
    """Returns `costs_of`; of a number of examples or a rate, the least is the most conspicuous."""
    costs = costs_of(metric, numbers)
    return np.where(np.isfinite(numbers) & np.isinf(costs), -numbers, costs)


def _slice(name: str, state: Any, metrics_of: Callable[[Any], Mapping[str, float]]) -> _Slice:
    metrics = dict(metrics_of(state))
    errors = {
        name.removesuffix(CHANCE_ERROR): metrics.pop(name)
        for name in list(metrics)
        if name.endswith(CHANCE_ERROR)
    }
    if "in_batch_examples" in metrics:
        metrics["examples"] = metrics["in_batch_examples"]
    quality = state.states.get(QUALITY) if isinstance(state, SliceState) else state
    least = metrics.get("examples", 0.0)
    if isinstance(quality, ClickQuality):
        least, errors["auc"] = min(quality.effective_numbers()), auc_standard_error(quality)
    return _Slice(name, metrics, errors, least >= LEAST)


def _table(column: str, metrics: Sequence[str], slices: list[_Slice]) -> list[tuple[str, ...]]:
    """Returns a row for each slice, those with too few examples last."""
    slices = [row for row in slices if row.metrics.get("examples")]
    recorded = set().union(*(row.metrics for row in slices))
    judge = next((metric for metric in metrics if metric in recorded), None)
    if judge is None:
        return []

    def rank(row: _Slice) -> tuple[bool, bool, bool, float]:
        return row.name == OTHER, not row.compared, judge not in row.metrics, -row.cost(judge)

    formats = {**dict.fromkeys(metrics, "{:.4f}".format), **COLUMNS}
    used = [name for name in dict.fromkeys((*COLUMNS, *metrics)) if name in recorded]
    if "clicks" in used and COLUMNS.keys() >= set(used):
        return []
    rows = [(column, *(name.replace("_", " ") for name in used))]
    for row in sorted(slices, key=rank):
        own = row.metrics
        cells = {name: formats[name](own[name]) if name in own else "" for name in used}
        for name, error in row.errors.items():
            if math.isfinite(error) and cells.get(name):
                cells[name] += f" ± {error:.4f}"
        rows.append((row.name, *cells.values()))
    return rows
